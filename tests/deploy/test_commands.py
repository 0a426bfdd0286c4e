"""The command line takes every `txn-engine ...` that README, docs and the documentation of DAGs show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.servers import REPOSITORY
from txn_engine.cli.main import PROGRAM, cli

_SHOWING = [
    REPOSITORY / "README.md",
    *(REPOSITORY / "docs").rglob("*.md"),
    *(REPOSITORY / "dags").glob("*.py"),
]
_BY_THE_SHELL = re.compile(r" [<>] [\w.]+ *$")
_GOES_ON = re.compile(r" \\\n +")
_QUOTED = re.compile(rf"(?<!`)`(?:\.venv/bin/)?{PROGRAM}\s+([^`]+)`(?!`)")
_ON_ITS_OWN = re.compile(rf"^ {{4,}}(?:\.venv/bin/)?{PROGRAM} ((?:\S+ )*\S+)", re.MULTILINE)
"""An indented line: what comes after two spaces or more says what it does."""
_STAND_INS = {"N": "0", "OFFSET": "0"}


def commands_in(text: str) -> Iterator[str]:
    """The words after the program's name, of each call that is quoted in a sentence or has its own indented line."""
    text = _GOES_ON.sub(" ", text)
    for found in _QUOTED.findall(text):
        yield " ".join(found.split())
    for found in _ON_ITS_OWN.findall(text):
        yield found.split("   ")[0]


def try_call(words: list[str]) -> None:
    """Parse a call to its last option without running it. Raises click's error.

    If only the name of a command is given, the command must exist.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name=PROGRAM)
    while isinstance(command, click.Group):
        if command.invoke_without_command and words[0].startswith("-"):
            break
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command {name!r}", context)
        command = found
        if not words:
            return
        context = click.Context(command, info_name=name, parent=context)
    command.make_context(command.name, words)


PAGES = sorted(page for page in _SHOWING if any(commands_in(page.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_calls_are_taken(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line takes every call that a page or a DAG's documentation shows."""
    monkeypatch.delenv("TXN_ENGINE_URL", raising=False)
    refused = {}
    for call in commands_in(page.read_text(encoding="utf-8")):
        alone = _BY_THE_SHELL.sub("", call.partition("|")[0])
        words = [_STAND_INS.get(word, word) for word in shlex.split(alone)]
        try:
            try_call(words)
        except click.ClickException as error:
            refused[call] = error.format_message()
    assert refused == {}


def test_a_call_that_does_not_exist_is_refused() -> None:
    """Unknown commands and options are found, and so are calls in sentences and on lines of their own."""
    assert list(
        commands_in("run `txn-engine topics\nlist`\n\n    txn-engine groups list   all groups\n")
    ) == [
        "topics list",
        "groups list",
    ]
    for call in ("topics lst", "topics list --no-such-option"):
        with pytest.raises(click.UsageError):
            try_call(call.split())
