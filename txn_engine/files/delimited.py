"""Delimited text (csv, tsv): a line of column names, then a record a line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRequestError
from txn_engine.files.batches import batch_of, in_batches
from txn_engine.files.columns import converted
from txn_engine.files.conversion import Conversion
from txn_engine.files.kinds import is_binary, is_nested, is_string
from txn_engine.files.layout import ACTOR, MEND_AND_LOAD_AGAIN, Layout
from txn_engine.files.text import Text

FIELD_CHARS_MAX = 64 * 1024 * 1024
_DELIMITERS = (",", ";", "\t", "|")


def read_delimited(
    layout: Layout, conversion: Conversion, delimiter: str | None, null_values: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The file's records. Raises as `read_records` does."""
    mark = delimiter or ("\t" if layout.path.suffix.lower() == ".tsv" else ",")
    if len(mark) != 1 or mark in '\r\n"':
        raise InvalidRequestError(
            f"delimiter {delimiter!r}", actor=ACTOR, expected="one character, no quote and no line end"
        )
    csv.field_size_limit(max(csv.field_size_limit(), FIELD_CHARS_MAX))
    nulls = pa.array(null_values, pa.string())
    with Text(layout, newline="") as text:
        reader = csv.reader(text.stream, delimiter=mark, strict=True)
        rows = _csv_rows(layout, reader)
        header = next(rows, None)
        if header is None:
            raise layout.refused("the file is empty", expected="a line of column names, then records")
        names = header[1]
        nested = [field.name for field in layout.schema if is_nested(field.type)]
        places = layout.match(
            names,
            line=header[0],
            may_miss=[name for name in nested if layout.schema.field(name).nullable],
            hint=_delimiter_hint(names, layout) or MEND_AND_LOAD_AGAIN,
        )
        for name in nested:
            if name in places or not layout.schema.field(name).nullable:
                kind = layout.schema.field(name).type
                raise layout.refused(
                    f"column {name!r} of type {kind}", expected="jsonl or parquet for nested values"
                )
        counted = _counted_rows(layout, rows, len(names))
        yield from in_batches(
            text, counted, lambda held, lines: _csv_batch(layout, conversion, places, held, lines, nulls)
        )


def _counted_rows(
    layout: Layout, rows: Iterator[tuple[int, list[str]]], fields: int
) -> Iterator[tuple[int, list[str]]]:
    for line, row in rows:
        if len(row) != fields:
            seen = f"{len(row)} field{'' if len(row) == 1 else 's'}"
            raise layout.refused(seen, expected=f"{fields}, as the header has", line=line)
        yield line, row


def _csv_rows(layout: Layout, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the number of the line it begins on."""
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        said = str(error)
        if said == "unexpected end of data":
            said = "a quoted field that is never closed"
        hint = _delimiter_hint([_first_line(layout.path)], layout) if line == 1 else None
        raise layout.refused(
            said,
            expected="delimited text whose quotes match",
            line=line,
            action=hint or MEND_AND_LOAD_AGAIN,
        ) from error


def _csv_batch(
    layout: Layout,
    conversion: Conversion,
    places: Mapping[str, int],
    rows: Sequence[Sequence[str]],
    lines: Sequence[int],
    nulls: pa.Array[Any],
) -> pa.RecordBatch:
    fields = list(zip(*rows, strict=True))

    def column(field: pa.Field[Any]) -> pa.Array[Any]:
        if field.name not in places:
            absent: pa.Array[Any] = pa.nulls(len(rows), field.type)
            return absent
        texts: pa.Array[Any] = pa.array(fields[places[field.name]], pa.string())
        is_null = pc.is_in(texts, value_set=nulls)
        if not field.nullable and (is_string(field.type) or is_binary(field.type)):
            is_null = pc.and_(is_null, pc.not_equal(texts, pa.scalar("", pa.string())))
        texts = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
        return converted(layout, conversion, field, texts, lines)

    return batch_of(layout, column)


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8-sig") as stream:
        return stream.readline(FIELD_CHARS_MAX).rstrip("\n")


def _delimiter_hint(names: Sequence[str], layout: Layout) -> str | None:
    """Where the header is of one piece that another delimiter cuts into the schema's columns: that delimiter."""
    if len(names) != 1:
        return None
    wanted = {layout.name_in_file(column) for column in layout.schema.names}
    for mark in _DELIMITERS:
        pieces = {piece.strip('"') for piece in names[0].split(mark)}
        if len(pieces) > 1 and pieces & wanted:
            return f"the delimiter seems to be {mark!r}: say so"
    return None
