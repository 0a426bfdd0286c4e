"""Columns that have types already, of Parquet or of a DataFrame, in a schema: where each value of a row fits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from txn_engine.errors import InvalidRecordError
from txn_engine.exact import InexactError, cast_exactly, every_bad, require_whole
from txn_engine.files.batches import Faults, batch_of
from txn_engine.files.columns import null_refused, nulls_of, without
from txn_engine.files.kinds import is_nested, is_string, misfit_reason, unit_and_zone
from txn_engine.files.layout import BadRows, Layout, Rejected, Sizes, shown
from txn_engine.held import held_schema, held_type, is_layout_of
from txn_engine.row_checks import RowCheck, checks_on
from txn_engine.value_text import json_records


def fit_records(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    *,
    rejected: Rejected,
    row_checks: Sequence[RowCheck] = (),
    sizes: Sizes | None = None,
    fill: Mapping[str, Any] | None = None,
    name: str = "rows",
    first_row: int = 0,
) -> pa.RecordBatch:
    """The rows of a batch that fit the schema and pass the checks; the others are handed to `rejected`, each with its
    number as its line, counted from `first_row`.

    The batch has the schema's columns, by name, of types that may stand there (`is_convertible`); without those that
    `fill` has a value, or None, for. `name`: what errors call the rows.
    """
    bad_rows, schema = BadRows(rejected), held_schema(schema)
    layout = Layout(
        Path(name),
        schema,
        {},
        _silent,
        bad_rows=bad_rows,
        fill=dict(fill or {}),
        checks=checks_on(row_checks, schema),
        sizes=sizes,
    )
    found = fitting(
        layout, batch.select([each for each in schema.names if each in batch.schema.names]), first_row
    )
    bad_rows.hand_on()
    return found


def _silent(_bytes_read: int) -> None:
    """Tell nobody."""


def fitting(layout: Layout, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    """The columns, in their own types and the schema's order, as a batch of the schema without the rows that do not
    fit.
    """
    rows = range(first_row, first_row + batch.num_rows)

    def column_of(field: pa.Field[Any], faults: Faults) -> pa.Array[Any]:
        name = layout.name_in_file(field.name)
        if name not in batch.schema.names:
            return layout.absent(field, batch.num_rows)
        column: Any = batch.column(name)
        if not field.nullable and column.null_count:
            for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                faults.add(index, null_refused(layout, field, rows[index], unit="row"))
                if not faults.every:
                    return nulls_of(field, batch.num_rows)
        try:
            return _exactly(column, field.type)
        except InexactError as error:
            bad = [error.index]
        if not faults.every:
            faults.add(bad[0], _bad_row(layout, field, column, bad[0], rows[bad[0]]))
            return nulls_of(field, batch.num_rows)
        bad = every_bad(column, lambda part: _exactly(_alone(part), field.type))
        for index in bad:
            faults.add(index, _bad_row(layout, field, column, index, rows[index]))
        return _exactly(without(column, bad), field.type)

    return batch_of(
        layout,
        rows,
        column_of,
        lambda places: [_as_json(batch.slice(place, 1)) for place in places],
        checks=layout.checks,
        unit="row",
    )


def _as_json(row: pa.RecordBatch) -> str:
    """A row as JSON. What is no text though its type says so is an object, which no column of text takes for one."""
    try:
        return json_records(pa.Table.from_batches([row]), "base64")[0]
    except UnicodeDecodeError:
        pass  # one of its columns
    parts = []
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            part = json_records(pa.Table.from_arrays([column], [name]), "base64")[0]
        except UnicodeDecodeError:
            bytes_of = column.cast(_with_bytes(column.type))
            part = json_records(pa.Table.from_arrays([bytes_of], ["not_utf8"]), "base64")[0]
            part = f"{{{json.dumps(name, ensure_ascii=False)}: {part}}}"
        parts.append(part[1:-1])
    return "{" + ", ".join(parts) + "}"


def _with_bytes(kind: Any) -> Any:
    """The type, with bytes in place of text."""
    if is_string(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return _with_bytes(kind.value_type)
    if pa.types.is_map(kind):
        return pa.map_(_with_bytes(kind.key_type), _with_bytes(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_with_bytes(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_with_bytes(kind.value_type))
    if pa.types.is_struct(kind):
        inner = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([(field.name, _with_bytes(field.type)) for field in inner])
    return kind


def _alone(part: Any) -> Any:
    """The values without others of their column: a list's slice still has all that is in the lists around it."""
    return part.take(pa.array(range(len(part)))) if is_nested(part.type) else part


def _exactly(column: Any, kind: pa.DataType) -> pa.Array[Any]:
    require_whole(column)
    kept: pa.Array[Any] = cast_exactly(column, kind)
    return kept


def _bad_row(layout: Layout, field: pa.Field[Any], column: Any, index: int, row: int) -> InvalidRecordError:
    return layout.refused(
        f"{layout.name_in_file(field.name)} does not fit",
        reason=misfit_reason(field.type),
        value=_shown(column, index),
        expected=str(field.type),
        line=row,
        unit="row",
    )


def _shown(column: Any, index: int) -> str:
    try:
        return shown(str(column[index]))
    except (ValueError, OverflowError):  # bytes that are no text, a moment that Python has none for
        return f"a {column.type} that cannot be shown"


def is_convertible(kind: Any, wanted: pa.DataType) -> bool:
    """Whether a column's values may stand in a column of another type, where each of them fits."""
    kind, wanted = held_type(kind), held_type(wanted)
    if is_layout_of(kind, wanted):
        return True
    if pa.types.is_nested(kind):
        return _are_inside_convertible(kind, wanted)
    if pa.types.is_integer(kind):
        return bool(pa.types.is_integer(wanted) or pa.types.is_decimal(wanted))
    if pa.types.is_decimal(kind):
        return bool(pa.types.is_decimal(wanted))
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted):
        return bool(unit_and_zone(kind)[1]) == bool(unit_and_zone(wanted)[1])
    if pa.types.is_floating(kind) and pa.types.is_floating(wanted):
        return bool(kind.bit_width <= wanted.bit_width)
    kinds = (pa.types.is_date, pa.types.is_time, pa.types.is_duration)
    return any(is_such(kind) and is_such(wanted) for is_such in kinds)


def _are_inside_convertible(kind: Any, wanted: Any) -> bool:
    """Whether the types hold others of the same names and in the same way, whose values may stand in one another."""
    ways = (pa.types.is_struct, pa.types.is_map, _is_list)
    if not any(is_such(kind) and is_such(wanted) for is_such in ways):
        return False
    if pa.types.is_map(kind):
        pairs = [(kind.key_type, wanted.key_type), (kind.item_type, wanted.item_type)]
    elif pa.types.is_struct(kind):
        inside = {each.name: each.type for each in kind}
        if len(inside) < kind.num_fields or sorted(inside) != sorted(each.name for each in wanted):
            return False
        pairs = [(inside[each.name], each.type) for each in wanted]
    else:
        pairs = [(kind.value_type, wanted.value_type)]
    return all(is_convertible(one, other) for one, other in pairs)


def _is_list(kind: Any) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_such(kind) for is_such in tests)
