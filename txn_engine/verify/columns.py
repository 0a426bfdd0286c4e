"""Arrow columns to plain Python rows, and whether they have the types that the format says.

Column by column: `to_pylist` on nested structs builds a dict a row, which costs several times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

Types = Mapping[str, pa.DataType]


def wrong_column(schema: pa.Schema, wanted: Types) -> str | None:
    """Name the first column that is absent or of another type than wanted; None where all are as they should be."""
    for name, kind in wanted.items():
        index = schema.get_field_index(name)
        if index < 0:
            return f"no column {name!r}"
        found = schema.field(index).type
        if not is_kind(found, kind):
            return f"column {name!r} of type {found}, not {kind}"
    return None


def is_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column's type is the wanted one; structs may hold further fields, strings may be large ones."""
    if isinstance(wanted, pa.StructType):
        fields = [wanted.field(i) for i in range(wanted.num_fields)]
        return isinstance(found, pa.StructType) and all(_has_field(found, field) for field in fields)
    if isinstance(wanted, pa.ListType):
        return isinstance(found, (pa.ListType, pa.LargeListType)) and is_kind(
            found.value_type, wanted.value_type
        )
    if pa.types.is_string(wanted):
        return pa.types.is_string(found) or pa.types.is_large_string(found)
    return bool(found == wanted)


def _has_field(found: pa.StructType, wanted: pa.Field[Any]) -> bool:
    index = found.get_field_index(wanted.name)
    return index >= 0 and is_kind(found.field(index).type, wanted.type)


def values(column: pa.ChunkedArray[Any] | pa.Array[Any], kind: pa.DataType) -> list[Any]:
    """The column's values: tuples, in the order of `kind`'s fields, for structs; None for null."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return values(column.chunk(0), kind)
        return [value for chunk in column.chunks for value in values(chunk, kind)]
    if pa.types.is_struct(kind):
        return _struct_values(column, kind)
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return _list_values(column, kind.value_type)
    if pa.types.is_list(kind):
        return [None if value is None else tuple(value) for value in column.to_pylist()]
    return column.to_pylist()


def _struct_values(column: Any, kind: pa.DataType) -> list[Any]:
    children = column.flatten()
    fields = [kind.field(i) for i in range(kind.num_fields)]
    lists = [values(children[column.type.get_field_index(field.name)], field.type) for field in fields]
    rows: list[Any] = list(zip(*lists, strict=True))
    if column.null_count:
        return [
            row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]
    return rows


def _list_values(column: Any, kind: pa.DataType) -> list[Any]:
    lengths: Sequence[int | None] = column.value_lengths().to_pylist()
    flat = iter(values(column.flatten(), kind))
    return [None if length is None else tuple(islice(flat, length)) for length in lengths]
