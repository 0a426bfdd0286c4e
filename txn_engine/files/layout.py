"""A file, the schema that its records are to have, and the errors that name a place in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError

Progress = Callable[[int], None]

READ_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp")
"""Columns that reads of a topic add: passed over in a file, so that what was read from a topic can be loaded again."""

ACTOR = "load"
MEND_AND_LOAD_AGAIN = "mend the file and load it again"


@dataclass(frozen=True, slots=True)
class Layout:
    """A file, and the schema that its records are to have."""

    path: Path
    schema: pa.Schema
    renamed: Mapping[str, str]
    progress: Progress

    def refused(
        self,
        seen: str,
        *,
        expected: str,
        value: str | None = None,
        line: int | None = None,
        unit: str = "line",
        action: str = MEND_AND_LOAD_AGAIN,
    ) -> InvalidRecordError:
        """The error for a fault of the file, on a line or as a whole. Only `value` may hold anything of the file."""
        place = str(self.path) if line is None else f"{self.path} {unit} {line}"
        return InvalidRecordError(
            seen, actor=ACTOR, place=place, expected=expected, action=action, value=value
        )

    def unreadable(self, error: OSError) -> InvalidRequestError:
        """The error for a file that cannot be opened or read."""
        return InvalidRequestError(
            f"the file cannot be read: {error.strerror or type(error).__name__}",
            actor=ACTOR,
            place=str(self.path),
            expected="a readable file",
            action="check the path and its permissions",
        )

    def name_in_file(self, column: str) -> str:
        """What the file calls a column of the schema."""
        return self.renamed.get(column, column)

    def match(
        self,
        names: Sequence[str],
        *,
        line: int | None,
        may_miss: Iterable[str] = (),
        hint: str = MEND_AND_LOAD_AGAIN,
    ) -> dict[str, int]:
        """Where each column of the schema stands among the file's; raises unless they are the same columns."""
        doubled = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if doubled:
            raise self.refused(
                f"{counted(doubled, 'column')} named twice",
                value=listed(doubled),
                expected="each column once",
                line=line,
            )
        places = {
            column: names.index(self.name_in_file(column))
            for column in self.schema.names
            if self.name_in_file(column) in names
        }
        optional = set(may_miss)
        missing = [self.name_in_file(c) for c in self.schema.names if c not in places and c not in optional]
        wanted = [self.name_in_file(column) for column in self.schema.names]
        unknown = [name for name in names if name not in wanted and name not in READ_COLUMNS]
        if missing or unknown:
            parts = [f"no column {listed(missing)}"] if missing else []
            parts += [counted(unknown, "unknown column")] if unknown else []
            raise self.refused(
                " and ".join(parts),
                value=listed(unknown) if unknown else None,
                expected=f"the columns {', '.join(wanted)}",
                line=line,
                action=hint,
            )
        return places


def counted(names: Sequence[str], noun: str) -> str:
    """How many there are: "2 unknown columns"."""
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """The first few names."""
    found = ", ".join(repr(name[:60]) for name in names[:5])
    return found if len(names) <= 5 else f"{found} and {len(names) - 5} more"


def shown(value: object) -> str:
    """A value on one line of a terminal, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
