"""Tables cut into row groups that every reader takes: by what they hold uncompressed, before they are written.

A row group of these sizes is far inside what `parquet_limits` allows, however well it compresses, and a reader that
has one in memory at a time needs little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

ROW_GROUP_BYTES: Final = 64 << 20
"""Of a row group uncompressed, if it has more than one row."""
ROW_GROUP_NULLS: Final = 4 << 20
"""Of a row group's list columns: elements, and lists, that are null or empty. They take no room in a page, but do in
memory.
"""
ROW_BYTES_MAX: Final = 256 << 20
"""Of one row uncompressed: it has a row group to itself where it is larger than others are together."""
ROW_NULLS_MAX: Final = 8 << 20

_VALUE_BYTES_MIN: Final = 4  # of a column's value in a page; only bool takes less
_SMALL_BYTES: Final = 1 << 20
_WRITTEN_OUT: Final = frozenset(
    kind.id for kind in (pa.dictionary(pa.int8(), pa.string()), pa.string_view(), pa.binary_view())
)


_OFFSETS: Final = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


@dataclass(frozen=True, slots=True)
class Load:
    """What rows take in a Parquet page, at most: bytes, and nulls of the list column that has the most."""

    bytes: int
    nulls: int

    def fits(self, most_bytes: int, most_nulls: int) -> bool:
        """Whether both are within these."""
        return self.bytes <= most_bytes and self.nulls <= most_nulls


def row_groups(table: pa.Table, rows_max: int) -> Iterator[pa.Table]:
    """The table's rows in order, in parts within the limits above and of at most `rows_max` rows; a row that is larger
    by itself is a part of its own. An empty table is one part.
    """
    rows = table.num_rows
    # One row is never cut, so nobody needs to know its load.
    if rows <= 1 or (rows <= rows_max and _fits(table)):
        yield table
        return
    for start in range(0, table.num_rows, rows_max):
        yield from _cut(table.slice(start, rows_max), ROW_GROUP_BYTES, ROW_GROUP_NULLS)


def _fits(table: pa.Table) -> bool:
    quick = load_at_most(table)
    if quick is not None and quick.fits(ROW_GROUP_BYTES, ROW_GROUP_NULLS):
        return True
    return load_of(table).fits(ROW_GROUP_BYTES, ROW_GROUP_NULLS)


def row_too_large(table: pa.Table) -> tuple[int, Load] | None:
    """The first row that no row group may hold, and what it takes; None where all fit."""
    row = 0
    for part in _cut(table, ROW_BYTES_MAX, ROW_NULLS_MAX):
        if part.num_rows == 1 and not (load := load_of(part)).fits(ROW_BYTES_MAX, ROW_NULLS_MAX):
            return row, load
        row += part.num_rows
    return None


def _cut(table: pa.Table, most_bytes: int, most_nulls: int) -> Iterator[pa.Table]:
    if table.num_rows <= 1 or load_of(table).fits(most_bytes, most_nulls):
        yield table
        return
    half = table.num_rows // 2
    yield from _cut(table.slice(0, half), most_bytes, most_nulls)
    yield from _cut(table.slice(half), most_bytes, most_nulls)


def load_at_most(table: pa.Table) -> Load | None:
    """What the rows certainly do not exceed, by Arrow's buffers alone, which is known at once whatever the schema; None
    for a schema of which these say nothing.
    """
    levels = _levels(table.schema)
    if levels is None:
        return None
    chunks = max((column.num_chunks for column in table.columns), default=1)
    held = table.get_total_buffer_size() * chunks  # chunks may be of the same buffers, which are counted once
    slots = table.num_rows + held  # every element of a list has a byte at the least in some buffer
    return Load(held + slots * levels.bytes, slots * levels.depth)


class _Levels(NamedTuple):
    """bytes: what pages may have for a slot of every leaf, beside Arrow's own. depth: of the deepest list, plus 1."""

    bytes: int
    depth: int


@lru_cache(maxsize=256)
def _levels(schema: pa.Schema) -> _Levels | None:
    """None for a schema with a leaf whose elements may have no byte of their own: in a list a bool, a null, or bytes of
    no width; a dictionary and a view, which Parquet writes out, anywhere.
    """
    leaves: list[int] = []
    if not all(_add_leaves(kind, 0, leaves) for kind in schema.types):
        return None
    return _Levels(
        sum((depth + 1) * (1 + depth // 4 + _VALUE_BYTES_MIN) for depth in leaves), max(leaves, default=0) + 1
    )


def _add_leaves(kind: pa.DataType, depth: int, leaves: list[int]) -> bool:
    """Add of each leaf how many lists are around it; False where one is not of the types of which `_levels` says."""
    if pa.types.is_struct(kind):
        return all(_add_leaves(field.type, depth, leaves) for field in kind)
    if pa.types.is_map(kind):
        inside = (kind.key_type, kind.item_type)
        return all(_add_leaves(each, depth + 1, leaves) for each in inside)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _add_leaves(kind.value_type, depth + 1, leaves)
    leaves.append(depth)
    if kind in _OFFSETS:
        return True
    has_width = not kind.num_fields and kind.id not in _WRITTEN_OUT and pa.types.is_primitive(kind)
    return has_width and (kind.bit_width >= 8 or not depth)


def load_of(table: pa.Table) -> Load:
    """What the rows take in Parquet's pages, at most."""
    if _is_flat(table.schema):
        least = _VALUE_BYTES_MIN * table.num_rows * table.num_columns
        held = table.get_total_buffer_size()  # a slice's are its whole table's, and they are known at once
        return Load(max(held if held <= _SMALL_BYTES else table.nbytes, least), 0)
    size = nulls = 0
    for column in table.columns:
        loads = [_load(chunk, len(chunk), 0) for chunk in column.chunks]
        size += sum(load.bytes for load in loads)
        nulls = max(nulls, sum(load.nulls for load in loads))
    return Load(size, nulls)


def _is_flat(schema: pa.Schema) -> bool:
    """Whether Arrow's bytes say what Parquet's are."""
    return not any(kind.num_fields or kind.id in _WRITTEN_OUT for kind in schema.types)


def _load(array: Any, slots: int, depth: int) -> Load:
    """`slots`: places in the column's levels, one at least for each row; `depth`: of lists around it."""
    kind = array.type
    if not slots:
        return Load(0, 0)
    if pa.types.is_struct(kind):
        # Not flatten(), which would merge what is null above into each field.
        loads = [_load(array.field(at), slots, depth) for at in range(kind.num_fields)]
        return Load(sum(load.bytes for load in loads), max((load.nulls for load in loads), default=0))
    if _is_list(kind):
        if pa.types.is_fixed_size_list(kind):
            start, size = array.offset * kind.list_size, len(array) * kind.list_size
            held = array.values.slice(start, size)
        elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
            held = array.flatten()
        else:
            offsets = array.offsets
            start = offsets[0].as_py()
            held = array.values.slice(start, offsets[-1].as_py() - start)
        if pa.types.is_map(kind):
            held = pa.StructArray.from_arrays([held.field(0), held.field(1)], ["key", "value"])
        return _load(held, slots + len(held), depth + 1)
    size = _leaf_bytes(array) + slots * (1 + depth // 4)
    return Load(size, slots - (len(array) - array.null_count) if depth else 0)


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_map(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _leaf_bytes(array: Any) -> int:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _dictionary_bytes(array)
    if pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    held: int = array.nbytes
    return held if pa.types.is_boolean(kind) else max(held, _VALUE_BYTES_MIN * len(array))


def _dictionary_bytes(array: Any) -> int:
    """Of the values that the indices stand for: Parquet writes each out."""
    values, count = array.dictionary, len(array)
    if values.type in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        lengths: Any = pc.binary_length(values)
        total: int | None = pc.sum(lengths.take(array.indices)).as_py()
        return (total or 0) + _VALUE_BYTES_MIN * count
    width: int = values.nbytes // max(len(values), 1)
    return max(8, width) * count
