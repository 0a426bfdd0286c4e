"""Avro files of an Iceberg table, decoded by the schema that each says: uncompressed, and of the types that it uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from txn_engine.verify.descriptors import MalformedError

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_DEPTH_MAX: Final = 16
Read = Callable[["_Bytes"], Any]


class _Bytes:
    """Bytes, and how far they were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.at:
            raise MalformedError(f"{count} bytes at byte {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        """A number of up to 64 bits, as Avro writes it."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise MalformedError(f"a number of more than 64 bits at byte {self.at}")
        return (value >> 1) ^ -(value & 1)

    def text(self) -> str:
        return self.take(self.number()).decode()


def avro_records(data: bytes) -> Iterator[dict[str, Any]]:
    """The file's records, fields by name. MalformedError, or one of `UNREADABLE`, for what is no such file."""
    source = _Bytes(data)
    if source.take(len(_MAGIC)) != _MAGIC:
        raise MalformedError("no Avro file")
    said = _map(_Bytes.text, lambda each: each.take(each.number()))(source)
    if said.get("avro.codec", b"null") != b"null":
        raise MalformedError(f"codec {said['avro.codec']!r}"[:80])
    read = _reader(json.loads(said["avro.schema"]), 0)
    sync = source.take(_SYNC_BYTES)
    while source.at < len(data):
        count, size = source.number(), source.number()
        end = source.at + size
        if not 0 <= count <= size:  # no record takes less than a byte
            raise MalformedError(f"a block of {count} records, {size} bytes")
        for _ in range(count):
            yield read(source)
        if source.at != end or source.take(_SYNC_BYTES) != sync:
            raise MalformedError(f"a block that does not end at byte {end}")


def _reader(schema: Any, depth: int) -> Read:
    if depth > _DEPTH_MAX:
        raise MalformedError(f"a schema deeper than {_DEPTH_MAX}")
    if isinstance(schema, list):
        return _union([_reader(each, depth + 1) for each in schema])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "record":
        return _record([(field["name"], _reader(field["type"], depth + 1)) for field in schema["fields"]])
    if kind == "array":
        if schema["items"] == "null":
            raise MalformedError("an array of nothing")
        return _array(_reader(schema["items"], depth + 1))
    if kind == "map":
        return _map(_Bytes.text, _reader(schema["values"], depth + 1))
    if isinstance(kind, (dict, list)):
        return _reader(kind, depth + 1)
    raise MalformedError(f"a type {kind!r}"[:80])


def _record(fields: list[tuple[str, Read]]) -> Read:
    if not fields:
        raise MalformedError("a record without fields")
    return lambda source: {name: read(source) for name, read in fields}


def _union(branches: list[Read]) -> Read:
    def read(source: _Bytes) -> Any:
        number = source.number()
        if not 0 <= number < len(branches):
            raise MalformedError(f"branch {number} of {len(branches)}")
        return branches[number](source)

    return read


def _array(element: Read) -> Read:
    def read(source: _Bytes) -> list[Any]:
        found: list[Any] = []
        for count in _blocks(source):
            found += [element(source) for _ in range(count)]
        return found

    return read


def _map(key: Read, value: Read) -> Callable[[_Bytes], dict[Any, Any]]:
    def read(source: _Bytes) -> dict[Any, Any]:
        found = {}
        for count in _blocks(source):
            for _ in range(count):
                name = key(source)
                found[name] = value(source)
        return found

    return read


def _blocks(source: _Bytes) -> Iterator[int]:
    """How many elements follow, until there are none; none takes less than a byte."""
    while count := source.number():
        if count < 0:
            source.number()
            count = -count
        if count > len(source.data) - source.at:
            raise MalformedError(f"{count} elements at byte {source.at}")
        yield count


def _boolean(source: _Bytes) -> bool:
    return source.take(1) == b"\x01"


_PLAIN: Final[dict[str, Read]] = {
    "null": lambda _: None,
    "boolean": _boolean,
    "int": _Bytes.number,
    "long": _Bytes.number,
    "string": _Bytes.text,
    "bytes": lambda source: source.take(source.number()),
}
