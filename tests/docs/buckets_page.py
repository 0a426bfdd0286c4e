"""docs/BUCKETS.md, from the table that the tests go by."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from string import ascii_lowercase

from tests.buckets.commands import COMMANDS
from tests.buckets.expected import NOTES, note_of
from tests.buckets.settings import SETTINGS
from tests.support.servers import REPOSITORY

PAGE = REPOSITORY / "docs" / "BUCKETS.md"
_HEAD = """\
# Buckets

Made from the tests by `make docs`; do not edit. This page says what each command does on a bucket with the settings
that companies use: versioning, Object Lock, encryption, quotas, narrow keys, private certificates, proxies. Read it
before you put a store into such a bucket, or when a command was refused there. `txn-engine doctor` says what it
finds in your own bucket.

Every cell is run on a real MinIO (`tests/buckets`). The store, its backups and the restored store are in one bucket,
below three prefixes, and all commands of a row use one key. Before the commands run, the store has two loads and two
backups. Where a command ends with exit code 0, a second client with all rights looks whether its work is there: the
rows, whole backups, no erased record in any version of any object. At the end of each row the whole log and the newest
backup are verified.

**A cell** is `+` where the command works, `! a` where it works with a warning, and `✗ a` where it ends with exit code 1
and one sentence. The letter is that of the note below. `*` marks an answer that MinIO did not give: a relay of the
tests gave it in MinIO's place. **No row was run on AWS.**
"""


def page() -> str:
    """The page as the tests have it now."""
    return "\n".join([_HEAD, *_table(), *_notes(), *_settings()])


def _letter(note: str) -> str:
    return ascii_lowercase[list(NOTES).index(note)]


def _cell(setting: str, command: str) -> str:
    note = note_of(setting, command)
    if note is None:
        return "+"
    sign = "✗" if NOTES[note].seen.exit_code else "!"
    return f"{sign} {_letter(note)}{' *' if note in (SETTINGS[setting].injects or ()) else ''}"


def _table() -> Iterator[str]:
    yield "## Settings and commands\n"
    yield f"| bucket | {' | '.join(case.title for case in COMMANDS.values())} |"
    yield f"|---|{'---|' * len(COMMANDS)}"
    for name, setting in SETTINGS.items():
        yield f"| {setting.title} | {' | '.join(_cell(name, command) for command in COMMANDS)} |"
    yield ""


def _notes() -> Iterator[str]:
    yield "## Notes\n\n| | error code | reason | what it means, and what to do |\n|---|---|---|---|"
    for name, note in NOTES.items():
        code, reason = (f"`{each}`" if each else "" for each in (note.seen.code, note.seen.reason))
        yield f"| {_letter(name)} | {code} | {reason} | {note.text} |"
    yield ""


def _settings() -> Iterator[str]:
    yield "## How each bucket is made\n"
    for setting in SETTINGS.values():
        yield textwrap.fill(f"- **{setting.title}**: {setting.how}", 120, subsequent_indent="  ")
    yield ""
    yield (
        "`consume` reads without a group. `consume --group` commits offsets, so it writes. `backup prune` runs with "
        "`--keep 1\n--execute`, `erase` with `--execute`, and `maintain clean` with `--orphan-days 0` and one orphaned "
        "file to delete."
    )
    yield ""
