"""Every `txn-engine ...` of the documentation and of the DAGs' own docs is a call that the command line takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.servers import REPOSITORY
from txn_engine.cli.main import PROGRAM, cli

PAGES = sorted(
    [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "dags").glob("*.py")]
)
_BY_THE_SHELL = re.compile(r" [<>] [\w.]+ *$")
_GOES_ON = re.compile(r" \\\n +")
_QUOTED = re.compile(rf"(?<!`)`(?:\.venv/bin/)?{PROGRAM}\s+([^`]+)`(?!`)")
_ON_ITS_OWN = re.compile(rf"^ {{4,}}(?:\.venv/bin/)?{PROGRAM} ((?:\S+ )*\S+)", re.MULTILINE)
"""An indented line: what comes after two spaces or more says what it does."""
_STAND_INS = {"N": "0", "OFFSET": "0"}


def commands_in(text: str) -> Iterator[str]:
    """What follows the program's name, a line each: quoted in a sentence, or on a line of its own."""
    text = _GOES_ON.sub(" ", text)
    for found in _QUOTED.findall(text):
        yield " ".join(found.split())
    for found in _ON_ITS_OWN.findall(text):
        yield found.split("   ")[0]


def try_call(words: list[str]) -> None:
    """Parse a call to its last option and run nothing. Raises what click would say.

    A command that is only named, without anything that it takes, must exist.
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


CALLS = [(page, call) for page in PAGES for call in commands_in(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "call"), CALLS, ids=[f"{page.name}: {call}" for page, call in CALLS])
def test_call_is_taken(page: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXN_ENGINE_URL", raising=False)
    alone = _BY_THE_SHELL.sub("", call.partition("|")[0])
    words = [_STAND_INS.get(word, word) for word in shlex.split(alone)]
    try_call(words)
