"""Commands that error messages suggest are safe to paste into a shell: an id is one word of them, whatever
characters it has."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txn_engine.errors import InvalidRequestError
from txn_engine.suggested import command

ATTACKS = [
    "x; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "a'b",
    "a\nb",
    "a  b",
    " a",
    "\x1b[2J",
    "-rf",
    "--help",
    "*",
    "",
]


def words_of(text: str, folder: object) -> list[str]:
    """The arguments that a shell makes of the command."""
    script = f"txn-engine() {{ printf '%s\\0' \"$@\"; }}; {text}"
    done = subprocess.run(["bash", "-c", script], cwd=str(folder), capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_pasted_command_has_the_id_as_one_word_and_does_nothing_else(name: str, tmp_path: object) -> None:
    """A pasted command has the id as one word, as an argument and as an option's value, and does nothing
    else. This also holds for a command inside an error's text, where runs of spaces become one."""
    text = str(InvalidRequestError("seen", action=f"`{command('transactions describe', name)}` tells"))
    pasted = text.partition("`")[2].rpartition("` tells")[0]
    behind_options = ["--"] if name.startswith("-") else []
    assert words_of(pasted, tmp_path) == ["transactions", "describe", *behind_options, name]
    assert words_of(command("consume", topic=name, start_offset=7), tmp_path) == [
        "consume", "--topic", name, "--start-offset", "7",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []  # type: ignore[attr-defined]


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=3
    )
)
@settings(max_examples=60, deadline=None)
def test_a_shell_reads_back_every_id(names: list[str]) -> None:
    expected = (["--"] if any(name.startswith("-") for name in names) else []) + names
    assert words_of(command("x", *names), "/")[1:] == expected
    assert "\n" not in command("x", *names)
