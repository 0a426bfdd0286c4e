"""Delimited text (csv, tsv): a line of column names, if there is one, then a record a line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRecordError
from txn_engine.files.batches import Faults, batch_of, in_batches, until
from txn_engine.files.columns import converted
from txn_engine.files.conversion import Conversion
from txn_engine.files.dialect import Dialect, QuotedWord
from txn_engine.files.kinds import is_binary, is_nested, is_string
from txn_engine.files.layout import MEND_AND_LOAD_AGAIN, Layout
from txn_engine.files.quick import Block, Cutter, Fields, Lines, rows_among
from txn_engine.files.text import Text
from txn_engine.reasons import Reason

_DELIMITERS = (",", ";", "\t", "|")

Row = tuple[int, list[str]]
"""The line that a row begins on, and its fields."""


def read_delimited(layout: Layout, conversion: Conversion, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """The file's records. Raises as `read_records` does."""
    with Text(layout, skip_footer=dialect.skip_footer) as text:
        reader = dialect.reader_of(layout, text.lines())
        rows = csv_rows(layout, reader, text, dialect)
        names, line = _names(layout, dialect, rows)
        places = _places(layout, names, line)
        columns = _Columns(layout, conversion, dialect, names, places)
        counted = _counted_rows(columns, text, rows)
        cutter = Cutter(dialect.mark(layout), dialect.quote, len(names), dialect.null_values)
        while cutter.is_of_use and (whole := text.block()):
            is_plain = not text.may_begin_again(whole)
            block = cutter.cut(whole, text.lines_read + 1) if is_plain else None
            again = None if block is None else columns.headers_again(block)
            if block is None or again is None:
                yield from in_batches(text, until(counted, text, text.chars + len(whole)), columns.batch)
            else:
                text.pass_over(block.chars, block.lines)
                yield from _block_batches(columns, text, block, again)
        yield from in_batches(text, counted, columns.batch)


def _block_batches(
    columns: _Columns, text: Text, block: Block, again: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The rows of a block in batches, each behind what cannot be used of the rows up to its last. again: those that are
    the header.
    """
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
                columns.of_fields([column[before] for column in cut], Lines(block, numbers[before]))
            columns.reject_misfit(misfits[row], block.line(row), block.text(row).encode(text.encoding))
        yield columns.of_fields([column[some] for column in cut], Lines(block, numbers[some]))
        text.next_batch()


def check_given_header(layout: Layout, dialect: Dialect) -> None:
    """Raise as `read_delimited` does where the names of the columns are given, and are not the schema's."""
    if not isinstance(dialect.header, bool):
        _places(layout, dialect.header, None)


def _places(layout: Layout, names: Sequence[str], line: int | None) -> dict[str, int]:
    """Where each column of the schema stands among the file's; raises where a column is missing, unknown, twice there,
    or nested.
    """
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
    return places


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
    """The rows that have as many fields as there are columns, and are not the header again, or joined to the file."""
    fields = len(columns.names)
    for line, row in rows:
        if len(row) != fields or columns.is_header(row, line):
            columns.reject_misfit(len(row), line, text.raw())
        elif text.begins_again:
            columns.reject_joined(line, text.raw())
        else:
            yield line, row
        columns.has_begun = True


def csv_rows(layout: Layout, reader: Any, text: Text, dialect: Dialect) -> Iterator[Row]:
    """Each row with the number of the line it begins on; the text holds its lines until the next.

    A blank line is a row only where there is one column, whose field is empty there.
    """
    awaits_header, held = dialect.header is True, text.held
    columns, marked = dialect.columns_of(layout), dialect.word_marker(layout)
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
            text.is_undecodable = False  # if it was, that was of this row
        elif text.is_undecodable:
            if awaits_header:
                raise text.undecodable(line)
            layout.reject(line, text.undecodable(line), raw=text.raw())
            text.is_undecodable = False
        elif awaits_header and row:
            yield line, row
            awaits_header, columns = False, len(row)
        elif row:
            yield line, marked(row, held)
        elif columns == 1:
            yield line, [""]
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
        self.names = list(names)
        self.has_header = dialect.header is True
        self.has_begun = False
        self._known = frozenset(names)
        self._conversion = conversion
        self._places = places
        self._fields = {place: layout.schema.field(name) for name, place in places.items()}
        self._nulls = pa.array(dialect.null_values, pa.string())

    def batch(self, rows: Sequence[Sequence[str]], lines: Sequence[int]) -> pa.RecordBatch:
        """A batch of the rows that can be used."""
        return self.of_fields([_fields(texts) for texts in zip(*rows, strict=True)], lines)

    def of_fields(self, columns: Sequence[Fields], lines: Sequence[int]) -> pa.RecordBatch:
        """A batch of the rows that can be used, of the fields in each column of the file."""

        def column(field: pa.Field[Any], faults: Faults) -> pa.Array[Any]:
            if field.name not in self._places:
                return self.layout.absent(field, len(lines))
            texts = self._values(columns[self._places[field.name]], field)
            return converted(self.layout, self._conversion, field, texts, lines, faults)

        def columns_of(rows: Sequence[int]) -> Sequence[str]:
            places, fields = pa.array(rows, pa.int64()), self._fields
            texts = [self._values(each.take(places), fields.get(at)) for at, each in enumerate(columns)]
            return _as_json(self.names, [each.to_pylist() for each in texts])

        return batch_of(self.layout, lines, column, columns_of, checks=self.layout.checks)

    def _values(self, fields: Fields, field: pa.Field[Any] | None) -> pa.Array[Any]:
        """The texts, null where one means that in a column of the topic, or in one that the topic does not have.

        In quotes it is a text, where the column holds texts: of "" a number or a day can only be nothing.
        """
        texts = fields.texts
        is_null = pc.is_in(texts, value_set=self._nulls)
        if field is None or is_string(field.type) or is_binary(field.type):
            if fields.quoted is not None:
                is_null = pc.and_not(is_null, fields.quoted)
            if field is not None and not field.nullable:
                is_null = pc.and_(is_null, pc.not_equal(texts, pa.scalar("", pa.string())))
        if pc.any(is_null).as_py():
            texts = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
        return texts

    def headers_again(self, block: Block) -> Sequence[int] | None:
        """Which of the rows of a block that are cut are the header, by their indexes. None where a row has the names in
        another order.
        """
        rows: Sequence[int] = ()
        if self.has_header:
            rows = rows_among(block.columns, self.names)
        elif not self.has_begun and block.rows and block.numbers[0] == 0:
            rows = rows_among([column[:1] for column in block.columns], self.names)
        found = [[column.texts[int(row)].as_py() for column in block.columns] for row in rows]
        if any(texts != self.names and sorted(texts) == sorted(self.names) for texts in found):
            return None
        self.has_begun = True
        return [row for row, texts in zip(rows, found, strict=True) if texts == self.names]

    def is_header(self, row: Sequence[str], line: int) -> bool:
        """Whether a row is the header: again, or at all where a load names the columns and this is the first row.
        Raises `InvalidRecordError` for the names in another order, because nobody knows the order of the rows behind.
        """
        if (not self.has_header and self.has_begun) or row[0] not in self._known:
            return False
        if row == self.names or sorted(row) != sorted(self.names):
            return row == self.names
        raise self.layout.refused(
            "the names of the columns in another order"
            if self.has_header
            else "the header, in another order",
            reason=Reason.REPEATED_HEADER,
            expected="a record",
            line=line,
            action="load joined files one by one"
            if self.has_header
            else "leave out --no-header and --header: the file has a header",
        )

    def reject_misfit(self, fields: int, line: int, raw: bytes) -> None:
        """A row that has more or fewer fields than columns, or is the header again."""
        count = len(self.names)
        if fields == count:
            is_again = self.has_header
            error = self.layout.refused(
                "the header a second time"
                if is_again
                else "the header, of a file that was said to have none",
                reason=Reason.REPEATED_HEADER,
                expected="a record",
                line=line,
                action=MEND_AND_LOAD_AGAIN if is_again else "leave out --no-header and --header",
            )
        else:
            seen = f"{fields} field{'' if fields == 1 else 's'}"
            expected = f"{count}, as the header has" if self.has_header else f"{count}"
            reason = Reason.TOO_FEW_FIELDS if fields < count else Reason.TOO_MANY_FIELDS
            error = self.layout.refused(seen, reason=reason, expected=expected, line=line)
        self.layout.reject(line, error, raw=raw)

    def reject_joined(self, line: int, raw: bytes) -> None:
        """A row that begins with a byte order mark."""
        error = self.layout.refused(
            "a byte order mark inside of the file, where another file was joined to it",
            reason=Reason.BYTE_ORDER_MARK,
            expected="a record",
            line=line,
            action="load joined files one by one",
        )
        self.layout.reject(line, error, raw=raw)


def _fields(texts: Sequence[str]) -> Fields:
    """A column of rows that Python's csv has cut."""
    quoted = [type(text) is QuotedWord for text in texts]
    return Fields(pa.array(texts, pa.string()), pa.array(quoted) if any(quoted) else None)


def _as_json(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[str]:
    """Rows of texts, and of nulls, as JSON objects: each text by itself, for so the encoder is four times as fast."""
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
            return _try_delimiter(mark, names[0])
    return None


def likely_delimiter(header: str) -> str | None:
    """What to try where a header is of one piece; None where no other delimiter is in it."""
    mark = max(_DELIMITERS, key=header.count)
    return _try_delimiter(mark, header) if mark in header else None


def _try_delimiter(mark: str, header: str) -> str:
    count = header.count(mark)
    shown = "a tab" if mark == "\t" else repr(mark)
    typed = "$'\\t'" if mark == "\t" else f"'{mark}'"
    return f"the header has {shown} {'once' if count == 1 else f'{count} times'}: try `--delimiter {typed}`"
