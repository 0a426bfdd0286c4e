"""An Arrow schema message (IPC, flatbuffers), counted before Arrow makes anything of it.

A message may say of a million columns that they are one and the same few bytes: Arrow makes a million of them, each
with its names, and a megabyte becomes gigabytes. What a message refers to is therefore counted as often as it is
referred to, and refused beyond what its own bytes could hold.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa

from storage.parquet_footer import SCHEMA_ELEMENTS_MAX

_DEPTH_MAX: Final = 64  # Parquet's own reader takes fewer
_MARK: Final = b"\xff\xff\xff\xff"
_SCHEMA: Final = 1
_TIMESTAMP, _UNION = 10, 14
_HEADER_TYPE, _HEADER = 1, 2
_FIELDS, _SCHEMA_METADATA = 1, 2
_NAME, _TYPE_NUMBER, _TYPE, _CHILDREN, _METADATA = 0, 2, 3, 5, 6
_KEY, _VALUE = 0, 1
_LONG_PART = {_TIMESTAMP: (1, 1), _UNION: (1, 4)}
"""Of a type, which slot has a vector, and how many bytes each of its elements has: a time zone, a union's numbers."""


class SchemaError(ValueError):
    """A message that Arrow is not asked to read."""


def read_schema(message: bytes) -> pa.Schema:
    """The schema. Raises `SchemaError` for one that is not read, and what Arrow raises for one that it cannot read.

    At most `SCHEMA_ELEMENTS_MAX` fields, inside one another to a depth of 64; names, metadata and the like take
    together no more than the message itself.
    """
    try:
        _Walk(message).message()
    except struct.error:
        raise SchemaError("a schema message that refers to what lies outside of it") from None
    return pa.ipc.read_schema(pa.py_buffer(message))


class _Walk:
    """One walk over all fields of a message, with what is left of its limits."""

    def __init__(self, message: bytes) -> None:
        begin = 8 if message[:4] == _MARK else 4
        self._bytes = memoryview(message)[begin:]
        self._fields_left = SCHEMA_ELEMENTS_MAX
        self._bytes_left = len(message)

    def message(self) -> None:
        root = self._reference(0)
        number, header = self._slot(root, _HEADER_TYPE), self._slot(root, _HEADER)
        if number is None or header is None or self._bytes[number] != _SCHEMA:
            raise SchemaError("a message that is no schema")
        schema = self._reference(header)
        self._metadata(schema, _SCHEMA_METADATA)
        for field in self._tables(schema, _FIELDS):
            self._field(field, 1)

    def _field(self, field: int, depth: int) -> None:
        self._fields_left -= 1
        if self._fields_left < 0 or depth > _DEPTH_MAX:
            raise SchemaError(
                f"more than {SCHEMA_ELEMENTS_MAX:,} fields, or deeper inside one another than {_DEPTH_MAX}"
            )
        self._spend(self._vector(field, _NAME)[1])
        self._metadata(field, _METADATA)
        number, kind = self._slot(field, _TYPE_NUMBER), self._slot(field, _TYPE)
        if number is not None and kind is not None and (part := _LONG_PART.get(self._bytes[number])):
            self._spend(self._vector(self._reference(kind), part[0])[1] * part[1])
        for child in self._tables(field, _CHILDREN):
            self._field(child, depth + 1)

    def _metadata(self, table: int, slot: int) -> None:
        for pair in self._tables(table, slot):
            self._spend(8 + self._vector(pair, _KEY)[1] + self._vector(pair, _VALUE)[1])

    def _spend(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise SchemaError("names and metadata that take more than the message itself")

    def _tables(self, table: int, slot: int) -> Any:
        """The places of a vector's tables, one after the other."""
        place, count = self._vector(table, slot)
        return (self._reference(place + 4 * index) for index in range(count))

    def _vector(self, table: int, slot: int) -> tuple[int, int]:
        """Where a vector's (or a string's) elements begin, and how many they are."""
        place = self._slot(table, slot)
        if place is None:
            return 0, 0
        vector = self._reference(place)
        return vector + 4, self._number("<I", vector)

    def _slot(self, table: int, slot: int) -> int | None:
        """Where a table keeps a value; None where it has none."""
        layout = table - self._number("<i", table)
        if 4 + 2 * slot >= self._number("<H", layout):
            return None
        offset = self._number("<H", layout + 4 + 2 * slot)
        return table + offset if offset and self._at(table + offset) else None

    def _reference(self, place: int) -> int:
        return place + self._number("<I", place)

    def _number(self, form: str, place: int) -> int:
        if place < 0:
            raise struct.error
        found: int = struct.unpack_from(form, self._bytes, place)[0]
        return found

    def _at(self, place: int) -> bool:
        if not 0 <= place < len(self._bytes):
            raise struct.error
        return True
