"""Arrow schema messages in which many columns refer to the same bytes."""

from __future__ import annotations

import struct

import pyarrow as pa

_PREFIX = 8
_HEADER, _FIELDS, _NAME, _CHILDREN, _METADATA = 2, 1, 0, 5, 6


def shared_children(structs: int, members: int) -> bytes:
    """A column with this many structs, all of them the same one, which has this many members, all of them the
    same one."""
    inner = pa.field("c", pa.struct([("x", pa.int64())] * members))
    outer = pa.struct([inner, *[pa.field("y", pa.int64())] * (structs - 1)])
    body = _body(pa.schema([("a", outer), ("b", pa.string())]))
    (column, _) = _columns(body)
    (within, *_) = _tables(body, column, _CHILDREN)
    _make_one(body, _places(body, within, _CHILDREN))
    _make_one(body, _places(body, column, _CHILDREN), within)
    return _message(body)


def shared_names(columns: int, chars: int) -> bytes:
    """A message with this many columns, which all have the same long name."""
    names = ["x" * chars, *(f"{number:08d}" for number in range(1, columns))]
    return _sharing(pa.schema([(name, pa.int8()) for name in names]), _NAME)


def shared_metadata(columns: int, chars: int) -> bytes:
    """A message with this many columns, which all have the same long word in their metadata."""
    words = ["v" * chars] + ["v"] * (columns - 1)
    fields = [pa.field(f"{number:08d}", pa.int8(), metadata={"k": word}) for number, word in enumerate(words)]
    return _sharing(pa.schema(fields), _METADATA)


def _sharing(schema: pa.Schema, slot: int) -> bytes:
    """Make every column's reference the first one's, which lies after all others."""
    body = _body(schema)
    places = [_slot(body, column, slot) for column in _columns(body)]
    _make_one(body, places, _target(body, places[0]))
    return _message(body)


def _make_one(body: bytearray, places: list[int], target: int | None = None) -> None:
    """Let all references lead to one target. A reference can only lead forward."""
    farthest = max(_target(body, place) for place in places) if target is None else target
    for place in places:
        if farthest > place:
            struct.pack_into("<I", body, place, farthest - place)


def _body(schema: pa.Schema) -> bytearray:
    return bytearray(schema.serialize().to_pybytes()[_PREFIX:])


def _message(body: bytearray) -> bytes:
    return b"\xff\xff\xff\xff" + struct.pack("<I", len(body)) + bytes(body)


def _slot(body: bytearray, table: int, number: int) -> int:
    layout = table - int(struct.unpack_from("<i", body, table)[0])
    return table + int(struct.unpack_from("<H", body, layout + 4 + 2 * number)[0])


def _target(body: bytearray, place: int) -> int:
    return place + int(struct.unpack_from("<I", body, place)[0])


def _places(body: bytearray, table: int, number: int) -> list[int]:
    """The places of a vector's references."""
    begin = _target(body, _slot(body, table, number))
    count = int(struct.unpack_from("<I", body, begin)[0])
    return [begin + 4 + 4 * index for index in range(count)]


def _tables(body: bytearray, table: int, number: int) -> list[int]:
    return [_target(body, place) for place in _places(body, table, number)]


def _columns(body: bytearray) -> list[int]:
    return _tables(body, _target(body, _slot(body, _target(body, 0), _HEADER)), _FIELDS)
