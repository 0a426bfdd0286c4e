"""A file, the schema that its records are to have, and the errors that name a place in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol
from urllib.parse import unquote

import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files.source import Compression
from txn_engine.found_files import unreadable
from txn_engine.reasons import Reason
from txn_engine.row_checks import Passes, RowCheck
from txn_engine.row_limits import COLUMNS_MAX, too_many_columns
from txn_engine.schemas.defaults import filled

Progress = Callable[[int], None]
Missing = Literal["refuse", "null"]
Unknown = Literal["refuse", "ignore"]

READ_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp")
"""Columns that reads of a topic add."""
_EACH_READ_HAS = {"_partition", "_offset", "_timestamp"}

ACTOR = "load"
MEND_AND_LOAD_AGAIN = "mend the file and load it again"
_IGNORE = "leave it out of the file, or try `--unknown-columns ignore`"
STREAM_NAME = "<stdin>"
_IN_FOLDERS = "a value in a folder's name is not read: write the files with the column in them"
_HELD_ROWS_MAX, _HELD_BYTES_MAX = 4_096, 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: the line that it begins on (of Parquet its number, from 1), and why.

    raw: its bytes as they stand, where it could not be cut into columns. columns: else its columns as a JSON object, by
        the file's names.
    """

    line: int
    error: InvalidRecordError
    raw: bytes | None = None
    columns: str | None = None


Rejected = Callable[[Sequence[BadRow]], None]


class BadRows:
    """Takes a file's bad rows, and hands them on in the order of their lines, as they stand in one batch."""

    def __init__(self, rejected: Rejected) -> None:
        self._rejected = rejected
        self._held: list[BadRow] = []
        self._bytes = 0
        self._any = False

    def add(self, row: BadRow) -> None:
        """Take one."""
        self._held.append(row)
        self._bytes += len(row.raw or row.columns or "")
        if len(self._held) >= _HELD_ROWS_MAX or self._bytes >= _HELD_BYTES_MAX:
            self.hand_on()

    def hand_on(self) -> bool:
        """Hand on those that were taken; whether there were any since the beginning."""
        held, self._held, self._bytes = self._held, [], 0
        if held:
            self._any = True
            self._rejected(sorted(held, key=lambda row: row.line))
        return self._any


class Sizes(Protocol):
    """Which records are too large to be written."""

    @property
    def expected(self) -> str:
        """What they have to be."""

    def too_large(self, records: pa.RecordBatch) -> Sequence[int]:
        """Those, by their indexes."""


class Judged(Protocol):
    """Where rows come from, as far as judging their values goes: a file, or whatever else has rows of texts."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that records are to have."""

    @property
    def bad_rows(self) -> BadRows | None:
        """What takes rows that cannot be used; without it such a row is an error."""

    @property
    def sizes(self) -> Sizes | None:
        """What says which rows are too large; without it nobody asks."""

    def name_in_file(self, column: str) -> str:
        """What the source calls a column of the schema."""

    def refused(
        self,
        seen: str,
        *,
        reason: Reason,
        expected: str,
        value: str | None = None,
        line: int | None = None,
        unit: str | None = None,
    ) -> InvalidRecordError:
        """The error for a fault of a row, or of all. Only `value` may hold anything of the source."""

    def reject(self, line: int, error: InvalidRecordError, *, columns: str | None = None) -> None:
        """A row that cannot be used: taken, or raised where nobody takes it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A file, the schema that its records are to have, and what each row has to pass. Without `bad_rows` a row that
    cannot be used is an error.
    """

    source: Path | BinaryIO
    schema: pa.Schema
    renamed: Mapping[str, str]
    progress: Progress
    compression: Compression | None = None
    encoding: str = "utf-8"
    missing: Missing = "refuse"
    unknown: Unknown = "refuse"
    bad_rows: BadRows | None = field(default=None, compare=False)
    fill: Mapping[str, Any] = field(default_factory=dict)
    checks: Sequence[tuple[RowCheck, Passes]] = ()
    sizes: Sizes | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """What an error calls the file."""
        return str(self.source) if isinstance(self.source, Path) else STREAM_NAME

    def refused(
        self,
        seen: str,
        *,
        reason: Reason,
        expected: str,
        value: str | None = None,
        line: int | None = None,
        unit: str | None = None,
        char: int | None = None,
        action: str = MEND_AND_LOAD_AGAIN,
    ) -> InvalidRecordError:
        """The error for a fault of the file, on a line or as a whole. Only `value` may hold anything of the file.

        Where it is stands in its place alone, so that the same fault of many rows is told in the same words.
        """
        place = self.name if line is None else f"{self.name} {unit or 'line'} {line}"
        place += "" if char is None else f" character {char}"
        return InvalidRecordError(
            seen, actor=ACTOR, place=place, expected=expected, action=action, reason=reason, value=value
        )

    def reject(
        self, line: int, error: InvalidRecordError, *, raw: bytes | None = None, columns: str | None = None
    ) -> None:
        """A row that cannot be used: taken, or raised where nobody takes it."""
        if self.bad_rows is None:
            raise error
        self.bad_rows.add(BadRow(line, error, raw, columns))

    def unreadable(self, error: OSError) -> InvalidRequestError:
        """The error for a file that cannot be opened or read."""
        return unreadable(self.name, error)

    def name_in_file(self, column: str) -> str:
        """What the file calls a column of the schema."""
        return self.renamed.get(column, column)

    def is_in_folders(self, column: str) -> bool:
        """Whether the name of a folder that the file is in has the column's value, as `day=2026-01-31`: Spark and
        PyArrow leave such a column out of the files.
        """
        if not isinstance(self.source, Path):
            return False
        folders = os.path.abspath(self.source).split(os.sep)[:-1]
        names = {unquote(folder.partition("=")[0]).casefold() for folder in folders if "=" in folder}
        return self.name_in_file(column).casefold() in names

    def may_miss(self, column: str) -> bool:
        """Whether a file without that column is taken."""
        if self.is_in_folders(column):
            return False
        return column in self.fill or (self.missing == "null" and self.schema.field(column).nullable)

    def absent(self, column: pa.Field[Any], rows: int) -> pa.Array[Any]:
        """A column that the file has not."""
        return filled(column.type, self.fill.get(column.name), rows)

    def match(
        self,
        names: Sequence[str],
        *,
        line: int | None,
        may_miss: Iterable[str] = (),
        hint: str = MEND_AND_LOAD_AGAIN,
    ) -> dict[str, int]:
        """Where each column of the schema stands among the file's; raises unless they are the same columns.

        `missing` and `unknown` say what else is taken: a column that the file has not, and one that the schema has not.
        Errors name the file's columns if its line has all of the schema's; another line may be a row.
        """
        if len(names) > COLUMNS_MAX:
            raise self.refused(**too_many_columns(), line=line)
        at: dict[str, int] = {}
        doubled = [name for number, name in enumerate(names) if at.setdefault(name, number) != number]
        places = {
            column: at[self.name_in_file(column)]
            for column in self.schema.names
            if self.name_in_file(column) in at
        }
        are_names = line is None or len(places) == len(self.schema)
        if doubled:
            raise self.refused(
                f"{counted(doubled, 'column', are_names=are_names)} named twice",
                reason=Reason.DUPLICATE_COLUMN,
                value=None if are_names else listed(doubled),
                expected="each column once",
                line=line,
            )
        optional = {*may_miss, *filter(self.may_miss, self.schema.names)}
        missing = [self.name_in_file(c) for c in self.schema.names if c not in places and c not in optional]
        wanted = [self.name_in_file(column) for column in self.schema.names]
        unknown = unknown_among(names, {*wanted})
        if self.unknown == "ignore" and places:  # a file that has none of the columns is another file
            unknown = []
        if any(self.is_in_folders(c) for c in self.schema.names if self.name_in_file(c) in missing):
            hint = _IN_FOLDERS
        if missing or unknown:
            parts = [f"no column {listed(missing)}"] if missing else []
            parts += [counted(unknown, "unknown column", are_names=are_names)] if unknown else []
            raise self.refused(
                " and ".join(parts),
                reason=Reason.MISSING_COLUMN if missing else Reason.UNKNOWN_COLUMN,
                value=listed(unknown) if unknown and not are_names else None,
                expected=f"the columns {', '.join(wanted)}",
                line=line,
                action=_IGNORE if unknown and not missing and hint == MEND_AND_LOAD_AGAIN else hint,
            )
        return places


def unknown_among(names: Collection[str], known: Collection[str]) -> list[str]:
    """The names that are not known. Those that a read of a topic adds are passed over where a read has added them all,
    so that what was read from a topic can be loaded again; a column of somebody else's has such a name alone.
    """
    passed_over = READ_COLUMNS if _EACH_READ_HAS.issubset(names) else ()
    return [name for name in names if name not in known and name not in passed_over]


def counted(names: Sequence[str], noun: str, *, are_names: bool = False) -> str:
    """How many there are: "2 unknown columns"; or, where they may be told, which: "the unknown columns 'a', 'b'"."""
    many = "" if len(names) == 1 else "s"
    return f"the {noun}{many} {listed(names)}" if are_names else f"{len(names)} {noun}{many}"


def listed(names: Sequence[str]) -> str:
    """The first few names."""
    found = ", ".join(repr(name[:60]) for name in names[:5])
    return found if len(names) <= 5 else f"{found} and {len(names) - 5} more"


def shown(value: object) -> str:
    """A value on one line of a terminal, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
