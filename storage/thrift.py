"""Thrift's compact protocol, as far as Parquet's footers and page headers use it: read, with nothing believed.

What a `Shape` knows must be there as it says: of its type, once, and if it is required at all. Arrow's reader passes
over a field of another type, takes the last of two, and does not look at the type of a list's elements; bytes that
mean one thing here and another there are refused. Every list is as long as it says, so that what a reader allocates
for it is in proportion to the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

Fields: TypeAlias = dict[int, Any]
Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Reads a field's value that begins here; the value, and where it ends."""

TRUE: Final = 1
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12

_FALSE: Final = 2
_DOUBLE: Final = 7
_SET: Final = 10
_BITS: Final = {I16: 16, I32: 32, I64: 64}
_NUMBERS: Final = (I32, I64, I16)
NESTING_MAX: Final = 12
_ALIKE_BYTES_MAX: Final = 16
_FIELD_ID_MAX: Final = (1 << 15) - 1


class ThriftError(ValueError):
    """Bytes that are no Thrift, or not of the shape asked for."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A struct: its known fields' types by id, which of them are required, and what its structs and lists hold.

    inside: by field id, the shape of a struct or of a list's structs; the type of a list's elements, which are passed
    over; or what reads the whole value. Each list has one of them.
    """

    types: dict[int, int]
    required: frozenset[int] = frozenset()
    inside: dict[int, Shape | int | Reader] = field(default_factory=dict)


ANY: Final = Shape({})
"""Passes over all fields."""


def read_struct(raw: bytes, at: int, shape: Shape, depth: int = 0) -> tuple[Fields, int]:
    """The known fields of the struct that begins here, and where it ends. ThriftError where it is not of this shape."""
    try:
        return _struct(raw, at, shape, depth)
    except IndexError:
        raise ThriftError("a struct that does not end") from None


def _struct(raw: bytes, at: int, shape: Shape, depth: int) -> tuple[Fields, int]:
    if depth > NESTING_MAX:
        raise ThriftError("structs nested too deeply")
    fields: Fields = {}
    types, number = shape.types, 0
    while head := raw[at]:
        at += 1
        kind = head & 0x0F
        if head > 0x0F:
            number += head >> 4
        else:
            number, at = _number(raw, at, I16)
        if not 0 <= number <= _FIELD_ID_MAX:
            raise ThriftError(f"a field of id {number}")
        expected = types.get(number)
        if expected is None:
            at = _skip(raw, at, kind, depth)
            continue
        if kind != expected and not (expected == TRUE and kind == _FALSE):
            raise ThriftError(f"field {number} of type {kind}, not {expected}")
        if number in fields:
            raise ThriftError(f"field {number} twice")
        if kind in _NUMBERS:
            fields[number], at = _number(raw, at, kind)
        else:
            fields[number], at = _value(raw, at, kind, shape.inside.get(number, ANY), depth)
    if not shape.required <= fields.keys():
        raise ThriftError(f"no field {min(shape.required - fields.keys())}")
    return fields, at + 1


def _value(raw: bytes, at: int, kind: int, inside: Shape | int | Reader, depth: int) -> tuple[Any, int]:
    if callable(inside):
        return inside(raw, at)
    if kind == BINARY:
        size, begin = _size(raw, at)
        return raw[begin : begin + size], _within(raw, begin + size)
    if kind == STRUCT:
        return _struct(raw, at, inside if isinstance(inside, Shape) else ANY, depth + 1)
    if kind == LIST:
        return _list(raw, at, inside, depth)
    return kind == TRUE, _skip(raw, at, kind, depth)


def _list(raw: bytes, at: int, inside: Shape | int, depth: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    if isinstance(inside, int):
        count, at = list_head(raw, at, inside)
        return values, _skip_elements(raw, at, inside, count, depth)
    count, at = list_head(raw, at, STRUCT)
    for _ in range(count):
        value, at = _struct(raw, at, inside, depth + 1)
        values.append(value)
    return values, at


def list_head(raw: bytes, at: int, expected: int) -> tuple[int, int]:
    """How many elements of this type a list has, and where they begin."""
    count, kind, at = _list_head(raw, at)
    if count and kind != expected:
        raise ThriftError(f"a list of type {kind}, not {expected}")
    return count, at


def _list_head(raw: bytes, at: int) -> tuple[int, int, int]:
    count, kind = raw[at] >> 4, raw[at] & 0x0F
    if count < 15:
        return count, kind, at + 1
    count, at = _size(raw, at + 1)
    if count > len(raw) - at:
        raise ThriftError(f"a list of {count} elements in {len(raw) - at} bytes")
    return count, kind, at


def _skip(raw: bytes, at: int, kind: int, depth: int) -> int:
    if depth > NESTING_MAX:
        raise ThriftError("values nested too deeply")
    if kind in _NUMBERS:
        while raw[at] & 0x80:
            at += 1
        return at + 1
    if kind == BINARY:
        size, at = _size(raw, at)
        return _within(raw, at + size)
    if kind == STRUCT:
        return _struct(raw, at, ANY, depth + 1)[1]
    if kind in (LIST, _SET):
        count, kind, at = _list_head(raw, at)
        return _skip_elements(raw, at, BYTE if kind in (TRUE, _FALSE) else kind, count, depth)
    if kind in (TRUE, _FALSE):
        return at
    if kind in (BYTE, _DOUBLE):
        return _within(raw, at + (1 if kind == BYTE else 8))
    raise ThriftError(f"a field of type {kind}")


def _skip_elements(raw: bytes, at: int, kind: int, count: int, depth: int) -> int:
    if not count:
        return at
    end = _skip(raw, at, kind, depth + 1)
    size = (end - at) * count
    is_short = end - at <= _ALIKE_BYTES_MAX and at + size <= len(raw)
    if is_short and raw[at : at + size] == raw[at:end] * count:  # all alike, as the orders of columns are
        return at + size
    for _ in range(count - 1):
        end = _skip(raw, end, kind, depth + 1)
    return end


def _within(raw: bytes, at: int) -> int:
    if at > len(raw):
        raise IndexError
    return at


@lru_cache(maxsize=4_096)
def small_number(raw: bytes) -> int:
    """The number whose zigzag varint this is."""
    return _unzigzagged(_size(raw, 0)[0])


def _number(raw: bytes, at: int, kind: int) -> tuple[int, int]:
    """A zigzag number, of as many bits as its type has: Arrow's reader cuts the others off."""
    value, at = _size(raw, at)
    if value >> _BITS[kind]:
        raise ThriftError(f"a number of more than {_BITS[kind]} bits")
    return _unzigzagged(value), at


def _unzigzagged(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _size(raw: bytes, at: int) -> tuple[int, int]:
    value = raw[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ThriftError("a number of more than 64 bits")
    return value, at
