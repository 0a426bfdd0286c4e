"""Columns of a small Parquet object cut out of its bytes, where all around their values is as in one that Arrow read.

Guarantee: what is cut out, and what its values are, is what Arrow would give; None where that is not certain, and Arrow
has to be asked. Nothing is skipped for it: the page headers and levels must be, byte for byte, those that
`check_claims` has passed, at the places that the same footer gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import partial
from struct import Struct
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from storage.parquet_footer import UNCOMPRESSED, Chunk, Footer, Leaf
from storage.thrift import I32, Shape, read_struct

ROWS_MAX: Final = 4_096  # Arrow is the faster one for more

Cut: TypeAlias = tuple[bytes, ...]
"""The values of each column as the object stores them."""

_Take: TypeAlias = Callable[[bytes], tuple[Any, ...]]

_STORED, _UNPACKED = 3, 2  # the sizes in a page's header
_PAGE: Final = Shape({_UNPACKED: I32, _STORED: I32}, frozenset((_UNPACKED, _STORED)))
_NUMBERS: Final = {
    pa.int64(): ("INT64", "q"),
    pa.timestamp("ms", tz="UTC"): ("INT64", "q"),
    pa.int32(): ("INT32", "i"),
    pa.int16(): ("INT32", "i"),
    pa.float64(): ("DOUBLE", "d"),
}
_MAGIC_BYTES: Final = 4  # "PAR1", before the first column
_SHORT_MAX: Final = 2**15 - 1
_DECIMAL_BYTES_MAX: Final = 16
_EXACT: Final = Context(prec=39, Emin=-200, Emax=200)  # whatever the caller's own context says


class PlainColumns:
    """Where the values of an object's columns stand, and what stands right before them.

    ends: of each column in the order of the object, where its page begins, its values do, and both end.
    """

    def __init__(self, ends: Sequence[tuple[int, int, int]], takes: Sequence[_Take], data: bytes) -> None:
        pattern, at = "<", 0
        for page, begin, end in ends:
            pattern += f"{page - at}x{begin - page}s{end - begin}s"
            at = end
        self._struct = Struct(pattern)
        self._before = self._struct.unpack_from(data)[::2]
        self._each = [Struct(f"{begin - page}s{end - begin}s") for page, begin, end in ends]
        self._takes = takes

    def cut(self, data: bytes) -> Cut | None:
        """The values as they are stored, of an object with this one's footer; None where its pages are others."""
        parts = self._struct.unpack_from(data)
        return parts[1::2] if parts[::2] == self._before else None

    def cut_at(self, data: bytes, places: Sequence[int], end: int) -> Cut | None:
        """As `cut`, of an object whose footer has the columns at these places, and is itself at `end`."""
        found = []
        for each, before, place in zip(self._each, self._before, places, strict=True):
            if not _MAGIC_BYTES <= place <= end - each.size:
                return None
            seen, held = each.unpack_from(data, place)
            if seen != before:
                return None
            found.append(held)
        return tuple(found)

    def values(self, cut: Cut) -> list[tuple[Any, ...]] | None:
        """Each column's values; None where they are not of its type."""
        try:
            return [take(raw) for take, raw in zip(self._takes, cut, strict=True)]
        except ValueError:
            return None


def plain_columns(
    footer: Footer,
    metadata: pq.FileMetaData,
    schema: pa.Schema,
    data: bytes,
    paths: Sequence[str],
    *,
    alone: bool,
) -> PlainColumns | None:
    """How these columns, in this order, can be cut out of an object that was checked; None where they cannot.

    alone: only if the object has no others.
    """
    if len(footer.row_groups) != 1 or not 0 < footer.rows <= ROWS_MAX:
        return None
    chunks = footer.row_groups[0].chunks
    numbers = [number for number, leaf in enumerate(footer.leaves) if alone or leaf.path in paths]
    if [footer.leaves[number].path for number in numbers] != list(paths):
        return None
    ends, takes, at = [], [], 0
    for number in numbers:
        leaf, chunk = footer.leaves[number], chunks[number]
        place = _place(chunk, metadata.schema.column(number), data)
        take = _take(leaf, schema, metadata.schema.column(number).physical_type, footer.rows)
        if place is None or take is None or place[0] < at:
            return None
        at = place[2]
        ends.append(place)
        takes.append(take)
    return PlainColumns(ends, takes, data)


def _place(chunk: Chunk, column: pq.ColumnSchema, data: bytes) -> tuple[int, int, int] | None:
    """Where a column's only page begins, its values do, and both end."""
    end = chunk.at + chunk.stored
    if chunk.codec != UNCOMPRESSED or column.max_repetition_level or column.max_definition_level > 1:
        return None
    sizes, begin = read_struct(data, chunk.at, _PAGE)
    if not sizes[_UNPACKED] == sizes[_STORED] == end - begin:
        return None
    if column.max_definition_level:
        begin += 4 + int.from_bytes(data[begin : begin + 4], "little")
    return (chunk.at, begin, end) if begin <= end else None


def _take(leaf: Leaf, schema: pa.Schema, physical: str, rows: int) -> _Take | None:
    """What makes values of a column's bytes: exactly so many, or ValueError."""
    index = schema.get_field_index(leaf.path)
    kind = schema.field(index).type if index >= 0 else None
    if kind in _NUMBERS and _NUMBERS[kind][0] == physical:
        numbers = Struct(f"<{rows}{_NUMBERS[kind][1]}")
        return partial(_shorts if kind == pa.int16() else _numbers, numbers)
    if kind == pa.bool_() and physical == "BOOLEAN":
        return partial(_bools, rows)
    if kind is not None and pa.types.is_decimal128(kind) and physical == "FIXED_LEN_BYTE_ARRAY":
        return partial(_decimals, rows, kind.precision, kind.scale)
    return partial(_texts, rows) if kind == pa.string() and physical == "BYTE_ARRAY" else None


def _numbers(numbers: Struct, raw: bytes) -> tuple[Any, ...]:
    if len(raw) != numbers.size:
        raise ValueError("another number of values")
    return numbers.unpack(raw)


def _shorts(numbers: Struct, raw: bytes) -> tuple[int, ...]:
    found = _numbers(numbers, raw)
    if not -_SHORT_MAX - 1 <= min(found) <= max(found) <= _SHORT_MAX:
        raise ValueError("a number of more than 16 bits")
    return found


def _bools(rows: int, raw: bytes) -> tuple[bool, ...]:
    if len(raw) != (rows + 7) // 8:
        raise ValueError("another number of values")
    bits = int.from_bytes(raw, "little")
    return tuple(bool(bits >> at & 1) for at in range(rows))


def _decimals(rows: int, precision: int, scale: int, raw: bytes) -> tuple[Decimal, ...]:
    width, rest = divmod(len(raw), rows)
    if rest or not 0 < width <= _DECIMAL_BYTES_MAX:
        raise ValueError("another number of values")
    found = [int.from_bytes(raw[at : at + width], "big", signed=True) for at in range(0, len(raw), width)]
    if max(map(abs, found)) >= 10**precision:
        raise ValueError("a number with too many digits")
    return tuple(_EXACT.scaleb(Decimal(number), -scale) for number in found)


def _texts(rows: int, raw: bytes) -> tuple[str, ...]:
    found, at = [], 0
    for _ in range(rows):
        begin = at + 4
        at = begin + int.from_bytes(raw[at:begin], "little")
        found.append(raw[begin:at].decode())
    if at != len(raw):
        raise ValueError("another number of values")
    return tuple(found)
