"""What commands say of places that cannot be read: all else is printed first, then these, and the command fails."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.failures import CommandFailed
from txn_engine.cli.output import Output
from txn_engine.names import printable

if TYPE_CHECKING:
    from txn_engine.unreadable import Unreadable

DAMAGED = "damaged"


def as_fields(unreadable: Sequence[Unreadable]) -> dict[str, Any]:
    """What a JSON document says of them: `unreadable`, where there are any."""
    return {"unreadable": [each.to_dict() for each in unreadable]} if unreadable else {}


def fail_for(unreadable: Sequence[Unreadable], out: Output) -> None:
    """Name each place on stderr, in red on a terminal, and fail; nothing where all could be read."""
    if not unreadable:
        return
    mark = click.style(DAMAGED, fg="red", bold=True) if sys.stderr.isatty() else DAMAGED
    for each in unreadable:
        out.note(f"{mark}  {each.place}  {printable(str(each.error))}")
    places = ", ".join(dict.fromkeys(each.place for each in unreadable))
    raise CommandFailed(
        unreadable[0].error.code,
        f"{places} cannot be read; all else was done; `txn-engine verify` says what is damaged"
        f" [{unreadable[0].error.code}]",
        as_json=out.as_json,
    )


def name_each(out: Output, failures: Iterable[str]) -> str:
    """Name each of several failures on stderr; what the line of the first one, which the command ends with, adds."""
    named = list(failures)
    if len(named) < 2:
        return ""
    for each in named:
        out.note(f"failed  {printable(each)}")
    return f" (and {len(named) - 1} more)"
