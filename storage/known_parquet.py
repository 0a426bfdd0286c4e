"""Small Parquet objects that are written alike, read without Arrow once Arrow has read two of them.

A footer is known by all of its bytes but the digits of the checksum and of the write id, and by where it stands. What
was found of one holds for the other then: they are the same bytes where anything is decided by them. The pages are
looked at each time (`plain_columns`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from storage.envelope import CHECKSUM_CHARS, OpenedParquet, checksum_place, verify_checksum
from storage.plain_columns import PlainColumns, plain_columns

_KEPT: Final = 64
_TAIL_BYTES_MAX: Final = 8 << 10
_TAIL_BYTES: Final = 8  # the footer's length, and "PAR1"
_WRITE_ID_MARK: Final = b"txn_engine.write_id"
_CHECKSUM_MARK: Final = b"txn_engine.checksum"
_WRITE_ID: Final = re.compile(re.escape(_WRITE_ID_MARK) + rb"\x18\x20([0-9a-f]{32})")


class PlainParquet(NamedTuple):
    """An object's columns, each as a tuple of values, and its write id."""

    columns: list[tuple[Any, ...]]
    write_id: str


@dataclass(slots=True)
class _Known:
    """A footer that was judged; `plain` where Arrow gave the same values as the columns that were cut out."""

    plain: PlainColumns | None = None
    is_learned: bool = False


class _Name(NamedTuple):
    """What a footer is known by, and the write id that was left out of that."""

    known_by: tuple[int, int, int, bytes]
    write_id: str


class KnownParquet:
    """The last footers of objects of one kind, all of whose columns are read, or these (None: all), in the order in
    which they stand in the object. Threads may share it.
    """

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self._columns = columns
        self._known: dict[tuple[int, int, int, bytes], _Known] = {}

    def read(self, data: bytes, key: str) -> PlainParquet | None:
        """What Arrow would read; None where it has to be asked.

        Raises DamagedObjectError as `open_parquet`, where the checksum is not the object's.
        """
        verify_checksum(data, key)
        name = _name(data)
        known = None if name is None else self._known.get(name.known_by)
        if name is None or known is None or known.plain is None:
            return None
        cut = known.plain.cut(data)
        columns = None if cut is None else known.plain.values(cut)
        return None if columns is None else PlainParquet(columns, name.write_id)

    def learn(self, data: bytes, opened: OpenedParquet, table: pa.Table) -> None:
        """Know the next object of this footer. `table`: What Arrow has read of these columns of an object that was
        opened without complaint.
        """
        name = _name(data)
        if name is None or name.write_id != opened.metadata.get("write_id"):
            return
        known = self._known.get(name.known_by)
        if known is None:
            if len(self._known) >= _KEPT:
                self._known = {}
            self._known[name.known_by] = _Known()
        elif not known.is_learned:
            known.is_learned = True
            known.plain = _plain(data, opened, table, alone=self._columns is None)


def _name(data: bytes) -> _Name | None:
    """None for a footer that is too large to be kept, or whose digits need not be the values of their names."""
    digits_at = checksum_place(data)
    footer_at = len(data) - _TAIL_BYTES - int.from_bytes(data[-8:-4], "little")
    if not 0 < footer_at < digits_at or len(data) - footer_at > _TAIL_BYTES_MAX:
        return None
    found = _WRITE_ID.search(data, footer_at)
    if found is None or found.end() > digits_at:
        return None
    begin, end = found.span(1)
    known_by = data[footer_at:begin] + data[end:digits_at] + data[digits_at + CHECKSUM_CHARS :]
    if known_by.count(_CHECKSUM_MARK) != 1 or known_by.count(_WRITE_ID_MARK) != 1:
        return None
    return _Name((footer_at, begin, digits_at, known_by), found[1].decode())


def _plain(data: bytes, opened: OpenedParquet, table: pa.Table, *, alone: bool) -> PlainColumns | None:
    """How the columns are cut out; None unless that gives what Arrow has read."""
    plain = plain_columns(
        opened.footer, opened.file.metadata, table.schema, data, table.column_names, alone=alone
    )
    cut = None if plain is None else plain.cut(data)
    if plain is None or cut is None:
        return None
    return plain if plain.values(cut) == [_as_stored(column) for column in table.columns] else None


def _as_stored(column: pa.ChunkedArray[Any]) -> tuple[Any, ...]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return tuple(column.to_pylist())
