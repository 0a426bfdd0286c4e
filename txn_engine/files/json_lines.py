"""JSON lines: a record a line, its numbers taken as the text they are written as."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRecordError
from txn_engine.files.batches import Faults, batch_of, in_batches, until
from txn_engine.files.columns import converted, misfits_of, null_refused, nulls_of
from txn_engine.files.conversion import Conversion, JsonNumber, json_types, text_of
from txn_engine.files.kinds import is_nested
from txn_engine.files.layout import Layout, counted, listed, shown, unknown_among
from txn_engine.files.quick import Lines
from txn_engine.files.quick_json import JsonBlock, quick_schemas, read_block
from txn_engine.files.text import Text, is_blank, is_whole
from txn_engine.reasons import Reason
from txn_engine.row_limits import VALUES_MAX, too_many_values, values_at_most

Record = tuple[Mapping[str, Any], str]
"""A line's object, and the line."""


class _NotJsonError(ValueError):
    """A line that Python's decoder would take and JSON does not know."""


def each_name_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of a decoder's pairs. Raises ValueError for a name that it has twice: of which one the value is?"""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotJsonError("a name twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _NotJsonError(f"{name}, which JSON does not know")


_DECODE = json.JSONDecoder(
    object_pairs_hook=each_name_once,
    parse_int=JsonNumber,
    parse_float=JsonNumber,
    parse_constant=_no_constant,
).decode


def decoded_object(layout: Layout, line: str, number: int) -> Mapping[str, Any]:
    """The object on a line, its numbers as they are written. Raises `InvalidRecordError` where there is none, and where
    a name or a value of it is no text.
    """
    found = _object_of(layout, line, number)
    texts = [*found, *(value for value in found.values() if isinstance(value, str))] if "\\u" in line else ()
    if not all(map(is_whole, texts)):
        raise layout.refused(
            "half of a character",
            reason=Reason.BAD_ENCODING,
            expected="texts in UTF-8, in which JSON's escapes of two halves follow each other",
            line=number,
        )
    return found


def read_json_lines(layout: Layout, conversion: Conversion) -> Iterator[pa.RecordBatch]:
    """The file's records. Raises as `read_records` does."""
    known = {layout.name_in_file(column) for column in layout.schema.names}
    with Text(layout) as text:
        rows = _json_rows(layout, text, known)

        def careful(held: Sequence[Record], lines: Sequence[int]) -> pa.RecordBatch:
            return _json_batch(layout, conversion, held, lines)

        schemas = quick_schemas(layout, conversion)
        while schemas and (whole := text.block()):
            block = read_block(layout, schemas, whole, text.lines_read + 1)
            if block is None:
                yield from in_batches(text, until(rows, text, text.chars + len(whole)), careful)
            else:
                text.pass_over(len(whole), block.lines)
                for first in range(0, block.rows, text.full_rows):
                    yield _quick_batch(layout, conversion, block, range(first, first + text.full_rows))
                    text.next_batch()
        yield from in_batches(text, rows, careful)


def _quick_batch(layout: Layout, conversion: Conversion, block: JsonBlock, rows: range) -> pa.RecordBatch:
    lines = Lines(block, range(rows.start, min(rows.stop, block.rows)))

    def column(field: pa.Field[Any], faults: Faults) -> pa.Array[Any]:
        found = block.columns[field.name][rows.start : rows.stop]
        if found.type == field.type:
            return found
        return converted(layout, conversion, _nullable(field), found, lines, faults)

    def columns_of(places: Sequence[int]) -> Sequence[str]:
        return [block.text(rows.start + place) for place in places]

    return batch_of(layout, lines, column, columns_of, checks=layout.checks)


def _json_rows(layout: Layout, text: Text, known: set[str]) -> Iterator[tuple[int, Record]]:
    """Each line's object with its number; blank lines are none."""
    for line in text.lines():
        number = text.lines_read
        if not is_blank(line):
            text.values += values_at_most(line)
            record, fault = _object_on(layout, text, line, number, known)
            if fault is None:
                yield number, (record, line)
            else:
                layout.reject(number, fault, raw=text.raw())
        text.next_row()


def _object_on(
    layout: Layout,
    text: Text,
    line: str,
    number: int,
    known: set[str],
) -> tuple[Mapping[str, Any], InvalidRecordError | None]:
    if text.is_undecodable:
        return {}, text.undecodable(number)
    try:
        record = _object_of(layout, line, number)
    except InvalidRecordError as error:
        return {}, error
    unknown = unknown_among(record, known)
    if unknown and layout.unknown == "refuse":
        return {}, layout.refused(
            counted(unknown, "unknown column"),
            reason=Reason.UNKNOWN_COLUMN,
            value=listed(unknown),
            expected=f"the columns {', '.join(sorted(known))}",
            line=number,
        )
    return record, None


def _object_of(layout: Layout, line: str, number: int) -> dict[str, Any]:
    if values_at_most(line) > VALUES_MAX:
        raise layout.refused(**too_many_values(), line=number)
    record, fault, char = _decoded(line)
    if fault:
        raise layout.refused(
            f"no JSON: {fault}",
            reason=Reason.BAD_JSON,
            expected="a JSON object on each line, whole",
            line=number,
            char=char,
        )
    if not isinstance(record, dict):
        raise layout.refused(
            "another JSON value",
            reason=Reason.NOT_A_JSON_OBJECT,
            value=shown(record),
            expected="a JSON object on each line",
            line=number,
        )
    return record


def _decoded(line: str) -> tuple[object, str, int | None]:
    """What the line holds; or what is wrong, and at which character.

    That quotes nothing of the line; the decoder's own error holds all of it.
    """
    try:
        return _DECODE(line), "", None
    except json.JSONDecodeError as error:
        return None, error.msg, error.colno
    except RecursionError:
        return None, "nested too deeply", None
    except _NotJsonError as error:
        return None, str(error), None


def _json_batch(
    layout: Layout, conversion: Conversion, records: Sequence[Record], lines: Sequence[int]
) -> pa.RecordBatch:
    def column(field: pa.Field[Any], faults: Faults) -> pa.Array[Any]:
        name = layout.name_in_file(field.name)
        values = [record.get(name) for record, _ in records]
        may_lack, is_in_folders = field.name in layout.fill, layout.is_in_folders(field.name)
        if (not field.nullable or is_in_folders) and None in values:
            for index in [index for index, value in enumerate(values) if value is None]:
                if field.nullable if name in records[index][0] else (may_lack and not is_in_folders):
                    continue
                faults.add(index, _nothing(layout, field, lines[index], is_there=name in records[index][0]))
                if not faults.every:
                    return nulls_of(field, len(values))
        if is_nested(field.type):
            return _nested(layout, conversion, field, values, lines, faults)
        texts = _json_texts(layout, conversion, field, values, lines, faults)
        found = converted(layout, conversion, _nullable(field), texts, lines, faults)
        if not may_lack or layout.fill[field.name] is None:
            return found
        lacks = pa.array([name not in record for record, _ in records])
        whole: pa.Array[Any] = pc.if_else(lacks, layout.fill[field.name], found)
        return whole

    def columns_of(places: Sequence[int]) -> Sequence[str]:
        return [records[place][1].strip() for place in places]

    return batch_of(layout, lines, column, columns_of, checks=layout.checks)


def _nullable(field: pa.Field[Any]) -> pa.Field[Any]:
    """The column, whose nulls were looked at."""
    return field.with_nullable(True)


def _nothing(layout: Layout, field: pa.Field[Any], line: int, *, is_there: bool) -> InvalidRecordError:
    if is_there:
        return null_refused(layout, field, line)
    name = layout.name_in_file(field.name)
    return layout.refused(
        f"no column {name!r}",
        reason=Reason.MISSING_COLUMN,
        expected=f"a value of type {field.type}",
        line=line,
    )


def _json_texts(
    layout: Layout,
    conversion: Conversion,
    field: pa.Field[Any],
    values: Sequence[Any],
    lines: Sequence[int],
    faults: Faults,
) -> pa.Array[Any]:
    """The values as text, from which all types are read; a value of another kind than the column's is bad."""
    accepts, misfit = json_types(field.type), misfits_of(layout, conversion, field)
    texts: list[str | None] = []
    for index, value in enumerate(values):
        fits = value is None or type(value) in accepts
        text = value if value is None or type(value) is str else text_of(value, conversion.decimal)
        if text is not None and not (fits and (text.isascii() or is_whole(text))):
            faults.add(index, misfit(value, lines[index]))
            text = None
        texts.append(text)
    found: pa.Array[Any] = pa.array(texts, pa.string())
    return found


def _nested(
    layout: Layout,
    conversion: Conversion,
    field: pa.Field[Any],
    values: Sequence[object],
    lines: Sequence[int],
    faults: Faults,
) -> pa.Array[Any]:
    try:
        conversion.nested([], field.type)
    except (TypeError, pa.ArrowNotImplementedError):
        raise layout.refused(
            f"column {field.name!r} of type {field.type}",
            reason=Reason.UNSUPPORTED_TYPE,
            expected="parquet for values of this type",
        ) from None
    found = _fitting(conversion, values, field)
    if found is not None:
        return found
    kept, misfit = list(values), misfits_of(layout, conversion, field)
    for index, value in enumerate(values):
        if _fitting(conversion, [value], field) is None:
            faults.add(index, misfit(value, lines[index]))
            kept[index] = None
    whole: pa.Array[Any] = conversion.nested(kept, field.type)
    return whole


def _fitting(conversion: Conversion, values: Sequence[object], field: pa.Field[Any]) -> pa.Array[Any] | None:
    """The values in the column's type; None where any does not fit."""
    try:
        found: pa.Array[Any] = conversion.nested(values, field.type)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return None
    return found
