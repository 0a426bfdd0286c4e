"""Delimited text (csv, tsv): a line of column names, if there is one, then a record a line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files.batches import Faults, batch_of, in_batches, until
from txn_engine.files.columns import converted
from txn_engine.files.conversion import Conversion
from txn_engine.files.kinds import is_binary, is_nested, is_string
from txn_engine.files.layout import ACTOR, MEND_AND_LOAD_AGAIN, Layout
from txn_engine.files.quick import Block, Cutter, Lines, equal_rows
from txn_engine.files.source import plain_suffix
from txn_engine.files.text import ROW_CHARS_MAX, Text
from txn_engine.reasons import Reason

_DELIMITERS = (",", ";", "\t", "|")

Row = tuple[int, list[str]]
"""The line that a row begins on, and its fields."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is cut into fields, and which of them mean null.

    delimiter: None for the one of the file's ending. quote: "" where fields are never quoted. header: whether the first
    line names the columns; else their names, or none for the schema's own in their order.
    """

    delimiter: str | None = None
    quote: str = '"'
    header: bool | Sequence[str] = True
    null_values: Sequence[str] = ("",)

    def mark(self, layout: Layout) -> str:
        """What stands between two fields."""
        name = str(layout.source) if isinstance(layout.source, PurePath) else ""
        return self.delimiter or ("\t" if plain_suffix(name) == ".tsv" else ",")

    def reader_of(self, layout: Layout, lines: Iterator[str]) -> Any:
        """The lines as rows of fields. `InvalidRequestError` for marks that cannot be told apart."""
        mark = self.mark(layout)
        if len(mark) != 1 or mark in "\r\n" or mark == self.quote or (mark == '"' and self.quote):
            raise InvalidRequestError(
                f"delimiter {self.delimiter!r}",
                actor=ACTOR,
                expected="one character, no quote and no line end",
                reason=Reason.BAD_ARGUMENT,
            )
        if len(self.quote) > 1 or self.quote in ("\r", "\n"):
            raise InvalidRequestError(
                f"quote {self.quote!r}",
                actor=ACTOR,
                expected="one character, or none: no field is quoted",
                reason=Reason.BAD_ARGUMENT,
            )
        csv.field_size_limit(max(csv.field_size_limit(), ROW_CHARS_MAX + 1))
        if not self.quote:
            return csv.reader(lines, delimiter=mark, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(lines, delimiter=mark, quotechar=self.quote, strict=True)


def read_delimited(layout: Layout, conversion: Conversion, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """The file's records. Raises as `read_records` does."""
    with Text(layout) as text:
        reader = dialect.reader_of(layout, text.lines())
        rows = _csv_rows(layout, reader, text, dialect)
        names, line = _names(layout, dialect, rows)
        places = layout.match(
            names,
            line=line,
            may_miss=[field.name for field in layout.schema if is_nested(field.type) and field.nullable],
            hint=_delimiter_hint(names, layout) or MEND_AND_LOAD_AGAIN,
        )
        for field in layout.schema:
            if is_nested(field.type) and (field.name in places or not field.nullable):
                raise layout.refused(
                    f"column {field.name!r} of type {field.type}",
                    reason=Reason.UNSUPPORTED_TYPE,
                    expected="jsonl or parquet for nested values",
                )
        columns = _Columns(layout, conversion, dialect, names, places)
        counted = _counted_rows(columns, text, rows)
        cutter = Cutter(dialect.mark(layout), dialect.quote, len(names))
        while cutter.is_of_use and (whole := text.block()):
            block = cutter.cut(whole, text.lines_read + 1)
            if block is None:
                yield from in_batches(text, until(counted, text, text.chars + len(whole)), columns.batch)
            else:
                text.pass_over(block.chars, block.lines)
                yield from _block_batches(columns, text, block)
        yield from in_batches(text, counted, columns.batch)


def _block_batches(columns: _Columns, text: Text, block: Block) -> Iterator[pa.RecordBatch]:
    """The rows of a block in batches, each behind what cannot be used of the rows up to its last."""
    again = columns.headers_again(block)
    kept: Any = np.delete(np.arange(block.rows), again)
    cut = block.columns if not len(again) else [column.take(pa.array(kept)) for column in block.columns]
    numbers = block.numbers[kept]
    misfits = {each.row: each.fields for each in block.uncut}
    misfits |= dict.fromkeys(block.numbers[again].tolist(), len(columns.names))
    order = sorted(misfits, reverse=True)
    for first in range(0, max(len(numbers), 1), text.full_rows):
        some = slice(first, first + text.full_rows)
        last = numbers[some][-1] if some.stop < len(numbers) else block.rows + len(block.uncut)
        while order and order[-1] < last:
            row = order.pop()
            if columns.layout.bad_rows is None:  # a fault in a row before it is told first
                before = slice(first, int(np.searchsorted(numbers, row)))
                columns.of_texts([column[before] for column in cut], Lines(block, numbers[before]))
            columns.reject_misfit(misfits[row], block.line(row), block.text(row).encode(text.encoding))
        yield columns.of_texts([column[some] for column in cut], Lines(block, numbers[some]))
        text.next_batch()


def _names(layout: Layout, dialect: Dialect, rows: Iterator[Row]) -> tuple[list[str], int | None]:
    """The names of the file's columns, and the line that has them."""
    if dialect.header is True:
        header = next(rows, None)
        if header is None:
            raise layout.refused(
                "the file is empty",
                reason=Reason.NO_RECORDS,
                expected="a line of column names, then records",
            )
        return header[1], header[0]
    if dialect.header is False:
        return [layout.name_in_file(name) for name in layout.schema.names], None
    return list(dialect.header), None


def _counted_rows(columns: _Columns, text: Text, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows that have as many fields as there are columns, and are not the header again."""
    names, has_header = columns.names, columns.has_header
    fields = len(names)
    for line, row in rows:
        if len(row) != fields or (has_header and row == names):
            columns.reject_misfit(len(row), line, text.raw())
        else:
            yield line, row


def _csv_rows(layout: Layout, reader: Any, text: Text, dialect: Dialect) -> Iterator[Row]:
    """Each row that is not blank, with the number of the line it begins on; the text holds its lines until the next."""
    awaits_header, held = dialect.header is True, text.held
    while True:
        line = text.lines_read + 1
        fault = ""
        try:
            row = next(reader, None)
        except csv.Error as error:
            fault, row = str(error), []
        if row is None:
            return
        if fault:
            refused = _unquoted(layout, fault, line, text)
            if awaits_header or fault == _NEVER_CLOSED:  # not known: the columns, or how many rows
                raise refused
            layout.reject(line, refused, raw=text.raw())
        elif text.is_undecodable:
            if awaits_header:
                raise text.undecodable(line)
            layout.reject(line, text.undecodable(line), raw=text.raw())
            text.is_undecodable = False
        elif row:
            yield line, row
            awaits_header = False
        held.clear()


_NEVER_CLOSED = "unexpected end of data"


def _unquoted(layout: Layout, said: str, line: int, text: Text) -> InvalidRecordError:
    hint = _delimiter_hint([text.held[0].rstrip("\r\n")], layout) if line == 1 and text.held else None
    return layout.refused(
        "a quoted field that is never closed" if said == _NEVER_CLOSED else said,
        reason=Reason.UNCLOSED_QUOTE if said == _NEVER_CLOSED else Reason.BAD_QUOTING,
        expected="delimited text whose quotes match",
        line=line,
        action=hint or MEND_AND_LOAD_AGAIN,
    )


class _Columns:
    """Rows of texts to batches of the schema."""

    def __init__(
        self,
        layout: Layout,
        conversion: Conversion,
        dialect: Dialect,
        names: Sequence[str],
        places: Mapping[str, int],
    ) -> None:
        self.layout = layout
        self.names = names
        self.has_header = dialect.header is True
        self._conversion = conversion
        self._places = places
        self._nulls = pa.array(dialect.null_values, pa.string())

    def batch(self, rows: Sequence[Sequence[str]], lines: Sequence[int]) -> pa.RecordBatch:
        """A batch of the rows that can be used."""
        fields = list(zip(*rows, strict=True))
        return self.of_texts([pa.array(texts, pa.string()) for texts in fields], lines)

    def of_texts(self, texts: Sequence[pa.Array[Any]], lines: Sequence[int]) -> pa.RecordBatch:
        """A batch of the rows that can be used, of the texts in each column of the file."""

        def column(field: pa.Field[Any], faults: Faults) -> pa.Array[Any]:
            if field.name not in self._places:
                return self.layout.absent(field, len(lines))
            found = texts[self._places[field.name]]
            is_null = pc.is_in(found, value_set=self._nulls)
            if not field.nullable and (is_string(field.type) or is_binary(field.type)):
                is_null = pc.and_(is_null, pc.not_equal(found, pa.scalar("", pa.string())))
            if pc.any(is_null).as_py():
                found = pc.if_else(is_null, pa.scalar(None, pa.string()), found)
            return converted(self.layout, self._conversion, field, found, lines, faults)

        def columns_of(rows: Sequence[int]) -> Sequence[str]:
            places = pa.array(rows, pa.int64())
            return _as_json(self.names, [column.take(places).to_pylist() for column in texts])

        return batch_of(self.layout, lines, column, columns_of, checks=self.layout.checks)

    def headers_again(self, block: Block) -> Any:
        """Which of the rows of a block that are cut are the header, by their indexes."""
        return equal_rows(block.columns, self.names) if self.has_header else np.empty(0, np.int64)

    def reject_misfit(self, fields: int, line: int, raw: bytes) -> None:
        """A row that has more or fewer fields than columns, or is the header again."""
        count = len(self.names)
        if fields == count:
            error = self.layout.refused(
                "the header a second time", reason=Reason.REPEATED_HEADER, expected="a record", line=line
            )
        else:
            seen = f"{fields} field{'' if fields == 1 else 's'}"
            expected = f"{count}, as the header has" if self.has_header else f"{count}"
            reason = Reason.TOO_FEW_FIELDS if fields < count else Reason.TOO_MANY_FIELDS
            error = self.layout.refused(seen, reason=reason, expected=expected, line=line)
        self.layout.reject(line, error, raw=raw)


def _as_json(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[str]:
    """Rows of texts as JSON objects: each text by itself, for so the encoder is four times as fast."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    parts = []
    for name, texts in zip(names, columns, strict=True):
        head = encode(name)
        parts.append([f"{head}: {encode(text)}" for text in texts])
    return [f"{{{', '.join(row)}}}" for row in zip(*parts, strict=True)]


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
