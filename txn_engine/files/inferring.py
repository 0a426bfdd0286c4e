"""What columns a file has: for each the narrowest type that holds all its values exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRecordError
from txn_engine.files.conversion import Conversion, JsonNumber
from txn_engine.files.date_formats import checked_date_format
from txn_engine.files.delimited import csv_rows, likely_delimiter
from txn_engine.files.dialect import Dialect
from txn_engine.files.json_lines import decoded_object
from txn_engine.files.kinds import has_days
from txn_engine.files.layout import READ_COLUMNS, Layout
from txn_engine.files.looks import FORMS, FORMS_OF_JSON, hint_of
from txn_engine.files.numbers import matches, without_marks
from txn_engine.files.parquet import opened_parquet
from txn_engine.files.records import format_or_refused, read_records
from txn_engine.files.source import compression_of
from txn_engine.files.text import BATCH_ROWS, Text, checked_encoding, is_blank
from txn_engine.reasons import Reason
from txn_engine.row_limits import COLUMNS_MAX, too_many_columns, values_at_most

_PRECISION_MAX = 38
_PRECISION_LEAST = 18
_KINDS = ("bool", "int64", "decimal", "float64", "date32", "timestamp")
_TYPES: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "date32": pa.date32(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "string": pa.string(),
}
_OF_JSON = {bool: ("bool",), JsonNumber: ("int64", "decimal", "float64"), str: ("date32", "timestamp")}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a column is text: the first value after which no other type was left, and the line of its row."""

    line: int
    value: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Inferred:
    """A file's columns. causes: by the name of each column of csv that is text because of a value. hint: what to try
    where the file looks as if it was not read as it is meant.
    """

    schema: pa.Schema
    causes: Mapping[str, Cause] = field(default_factory=dict)
    hint: str | None = None


def infer_schema(path: Path, **reading: Any) -> pa.Schema:
    """The columns of a file, which is read to its end; `reading` as `read_records` takes it. A guess: look at it.

    A column is a whole number, a decimal of at least 18 digits, a float (only where digits come with an exponent),
    a day, a time with its zone, true or false, else text. Digits of csv that may be a code are text: those that begin
    with a 0 or a plus, -0, and those with an exponent where no number of the column has a decimal mark.
    It may be null where the file has none of a value. Of Parquet it is the file's own schema.

    Raises as `read_records` does, and `InvalidRecordError` for a JSON value that holds others.
    """
    return infer(path, **reading).schema


def infer(path: Path, **reading: Any) -> Inferred:
    """The same, and why columns are text. Raises as `infer_schema` does."""
    known = reading.get("format") or format_or_refused(path)
    if known == "parquet":
        found = schema_of_parquet(path)
        return Inferred(pa.schema([each for each in found if each.name not in READ_COLUMNS]))
    if known == "csv":
        return _of_csv(path, reading)
    return Inferred(_schema(_columns(_json(path, reading), reading, ()), reading))


def schema_of_parquet(path: Path) -> pa.Schema:
    """The columns of a Parquet file, read within a limit of memory. Raises as `read_records` does."""
    layout = _layout(path, {})
    with opened_parquet(layout) as file:
        found: pa.Schema = file.schema.remove_metadata()
    _check_count(layout, found.names)
    return found


def _check_count(layout: Layout, names: Collection[str], line: int | None = None) -> None:
    if len(names) > COLUMNS_MAX:
        raise layout.refused(**too_many_columns(), line=line)


def _of_csv(path: Path, reading: Mapping[str, Any]) -> Inferred:
    names = _header(path, reading)
    hint = likely_delimiter(names[0]) if len(names) == 1 and reading.get("header", True) is True else None
    try:
        columns = _columns(_csv(path, reading, names), reading, reading.get("null_values", ("",)))
    except InvalidRecordError as error:
        if hint is not None and error.reason in _OF_WRONG_DELIMITERS:
            error.action = hint
        raise
    schema = _schema(columns, reading)
    decisive = {name: row for name, column in columns.items() if (row := column.cause_row) is not None}
    return Inferred(schema, _causes(path, reading, names, decisive), hint)


def _columns(
    batches: Iterable[tuple[int, Texts]], reading: Mapping[str, Any], words: Sequence[str]
) -> dict[str, _Column]:
    """What is known of each column after all batches. words: texts that only a column of text takes for texts."""
    conversion = Conversion(
        reading.get("date_format"), "text", reading.get("decimal") or ".", reading.get("thousands")
    )
    columns: dict[str, _Column] = {}
    rows = 0
    for count, batch in batches:
        for name in [*columns, *(new for new in batch if new not in columns)]:
            if name in READ_COLUMNS:
                continue
            column = columns.setdefault(name, _Column(conversion, words, has_nulls=rows > 0))
            if name in batch:
                column.take(*batch[name], rows)
            else:
                column.has_nulls = True
        rows += count
    return columns


def _schema(columns: Mapping[str, _Column], reading: Mapping[str, Any]) -> pa.Schema:
    schema = pa.schema([column.field(name) for name, column in columns.items()])
    checked_date_format(reading.get("date_format"), names_days=has_days(schema))
    return schema


Texts = Mapping[str, tuple["pa.Array[Any]", tuple[str, ...]]]
"""Of a batch by column: the values as text, and what they may be."""


@dataclass
class _Column:
    """What is known of a column so far. decisive_row: the one whose value left only text, among all records.
    exponent_row: the first that has an exponent. has_marks: whether a number has a decimal mark.
    """

    conversion: Conversion
    words: Sequence[str]
    has_nulls: bool
    kinds: tuple[str, ...] = _KINDS
    has_values: bool = False
    has_words: bool = False
    has_marks: bool = False
    exponent_row: int | None = None
    digits: tuple[int, int] = (0, 0)
    decisive_row: int | None = None

    def take(self, texts: Any, may_be: tuple[str, ...], first_row: int) -> None:
        """Some values more."""
        self.has_nulls = self.has_nulls or texts.null_count > 0
        is_word = pc.is_in(texts, value_set=pa.array(self.words, pa.string()), skip_nulls=True)
        self.has_words = self.has_words or bool(pc.any(pc.and_(is_word, pc.is_valid(texts))).as_py())
        is_value = pc.and_not(pc.is_valid(texts), is_word)
        texts = texts.filter(is_value)
        if not len(texts):
            return
        self.has_values = True
        places = np.flatnonzero(is_value.to_numpy(zero_copy_only=False))
        before = tuple(kind for kind in self.kinds if kind in may_be)
        forms = FORMS if may_be == _KINDS else FORMS_OF_JSON
        self.kinds, self.digits = self._left(before, texts, forms)
        if before and not self.kinds:
            self.decisive_row = first_row + int(places[self._decisive(before, texts, forms)])
        if "float64" in self.kinds:
            self._look_for_marks(texts, first_row, places, are_numbers=forms is FORMS_OF_JSON)

    def field(self, name: str) -> pa.Field[Any]:
        """The column, of the first type that holds everything."""
        left = [kind for kind in self.kinds if kind != "float64" or (self.is_float and self.has_marks)]
        kind = left[0] if self.has_values and left else "string"
        whole, scale = self.digits
        wide = min(max(_PRECISION_LEAST, whole + scale), _PRECISION_MAX)
        chosen = pa.decimal128(wide, scale) if kind == "decimal" else _TYPES[kind]
        is_empty = not (self.has_values or self.has_words)
        takes_null = self.has_nulls or is_empty or (self.has_words and kind != "string")
        return pa.field(name, chosen, nullable=takes_null)

    @property
    def is_float(self) -> bool:
        """Whether a number has an exponent, if the column is of numbers."""
        return self.exponent_row is not None

    @property
    def cause_row(self) -> int | None:
        """The row whose value makes the column text."""
        is_code = self.kinds == ("float64",) and not self.has_marks
        return self.exponent_row if is_code else self.decisive_row

    def _look_for_marks(self, texts: Any, first_row: int, places: Any, *, are_numbers: bool) -> None:
        self.has_marks = (
            self.has_marks or are_numbers or _first_of(texts, re.escape(self.conversion.decimal)) >= 0
        )
        if self.exponent_row is None and (found := _first_of(texts, "[eE]")) >= 0:
            self.exponent_row = first_row + int(places[found])

    def _decisive(self, kinds: tuple[str, ...], texts: Any, forms: Mapping[str, str]) -> int:
        """The index of the first text with which none of the types is left, by halving."""
        good, bad = 0, len(texts)
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._left(kinds, texts[:middle], forms)[0]:
                good = middle
            else:
                bad = middle
        return good

    def _left(
        self, kinds: tuple[str, ...], texts: Any, forms: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[int, int]]:
        """Which of the types hold these texts too, and how many digits a decimal needs for all."""
        mark, digits = re.escape(self.conversion.decimal), self.digits
        numbers = texts
        if self.conversion.thousands is not None:
            with suppress(ValueError):
                numbers = without_marks(texts, self.conversion.thousands, self.conversion.decimal)
        if "decimal" in kinds and matches(numbers, rf"^[+-]?[0-9]+({mark}[0-9]+)?$"):
            digits = _digits(numbers, mark, digits)
        left = tuple(kind for kind in kinds if self._holds(kind, texts, numbers, mark, forms))
        return tuple(kind for kind in left if kind != "decimal" or sum(digits) <= _PRECISION_MAX), digits

    def _holds(self, kind: str, texts: Any, numbers: Any, mark: str, forms: Mapping[str, str]) -> bool:
        form = forms.get(kind)
        if form is not None and not matches(numbers, form.replace("MARK", mark)):
            return False
        if kind == "decimal":
            return True
        try:
            self.conversion.array(texts, _TYPES[kind])
        except ValueError:
            return False
        return True


_OF_WRONG_DELIMITERS = (Reason.TOO_MANY_FIELDS, Reason.BAD_QUOTING, Reason.UNCLOSED_QUOTE)


def _first_of(texts: Any, pattern: str) -> int:
    """The index of the first text that has the pattern in it; -1 where none has."""
    return int(pc.index(pc.match_substring_regex(texts, pattern), True).as_py())


def _digits(numbers: Any, mark: str, known: tuple[int, int]) -> tuple[int, int]:
    """The most digits before and after the decimal mark, of these numbers and those that are known."""
    parts = pc.extract_regex(numbers, rf"^[+-]?(?P<whole>[0-9]+)(?P<mark>{mark})?(?P<rest>[0-9]*)$")
    whole, rest = (
        max(before, pc.max(pc.binary_length(pc.struct_field(parts, [name]))).as_py() or 0)
        for before, name in zip(known, ("whole", "rest"), strict=True)
    )
    return whole, rest


def _causes(
    path: Path, reading: Mapping[str, Any], names: Sequence[str], decisive: Mapping[str, int]
) -> dict[str, Cause]:
    """The lines and values of the decisive rows, by columns: the file is read again, up to the last of them."""
    if not decisive:
        return {}
    layout = _layout(path, reading)
    has_header = reading.get("header", True) is True
    dialect = Dialect(
        reading.get("delimiter"),
        reading.get("quote", '"'),
        True if has_header else names,
        reading.get("null_values", ("",)),
    )
    found: dict[str, Cause] = {}
    by_row: dict[int, list[str]] = {}
    for name, number in decisive.items():
        by_row.setdefault(number, []).append(name)
    places = {name: place for place, name in enumerate(names)}
    with Text(layout) as text:
        rows = csv_rows(layout, dialect.reader_of(layout, text.lines()), text, dialect)
        for number, (line, row) in enumerate(rows, start=-1 if has_header else 0):
            for name in by_row.get(number, ()):
                value = row[places[name]]
                found[name] = Cause(line, value, hint_of(value, reading))
            if len(found) == len(decisive):
                break
    return {name: found[name] for name in decisive}


def _csv(path: Path, reading: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[int, Texts]]:
    schema = pa.schema([(name, pa.string()) for name in names])
    of_values = ("decimal", "thousands", "date_format", "columns")
    passed = {name: value for name, value in reading.items() if name not in of_values}
    if reading.get("header") is False:
        passed["header"] = names
    for batch in read_records(path, schema, **passed):
        yield batch.num_rows, {name: (batch.column(name), _KINDS) for name in names}


def _header(path: Path, reading: Mapping[str, Any]) -> list[str]:
    """The names of a csv's columns: its own, those that are told, else column1, column2."""
    given = reading.get("header", True)
    if not isinstance(given, bool):
        return list(given)
    layout = _layout(path, reading)
    dialect = Dialect(reading.get("delimiter"), reading.get("quote", '"'), given)
    with Text(layout) as text:
        row = next((row for row in dialect.reader_of(layout, text.lines()) if row), None)
        if row is not None and text.is_undecodable:
            raise text.undecodable(1)
    if row is None:
        raise layout.refused(
            "the file is empty",
            reason=Reason.NO_RECORDS,
            expected="a line of column names, then records",
        )
    _check_count(layout, row, 1)
    return row if given else [f"column{number}" for number in range(1, len(row) + 1)]


def _json(path: Path, reading: Mapping[str, Any]) -> Iterator[tuple[int, Texts]]:
    layout = _layout(path, reading)
    with Text(layout) as text:
        held: list[Mapping[str, Any]] = []
        names: set[str] = set()
        for number, line in enumerate(text.lines(), start=1):
            if text.is_undecodable:
                raise text.undecodable(number)
            if not is_blank(line):
                text.values += values_at_most(line)
                held.append(decoded_object(layout, line, number))
                _check_plain(layout, held[-1], number)
                names.update(held[-1])
                _check_count(layout, names, number)
            text.next_row()
            if len(held) >= BATCH_ROWS or text.is_batch_full:
                yield len(held), json_texts(held)
                held = []
                text.next_batch()
    if held:
        yield len(held), json_texts(held)


def _check_plain(layout: Layout, record: Mapping[str, Any], line: int) -> None:
    nested = next((name for name, value in record.items() if isinstance(value, dict | list)), None)
    if nested is not None:
        raise layout.refused(
            "a value that holds others",
            reason=Reason.UNSUPPORTED_TYPE,
            value=repr(nested),
            expected="plain values: name the columns of others by a schema",
            line=line,
        )


def json_texts(records: list[Mapping[str, Any]]) -> Texts:
    """The values of each name as texts, with the kinds that they may have; one null for all records without one."""
    found: dict[str, tuple[pa.Array[Any], tuple[str, ...]]] = {}
    by_name: dict[str, list[Any]] = {}
    for record in records:
        for name, value in record.items():
            by_name.setdefault(name, []).append(value)
    for name, values in by_name.items():
        if len(values) < len(records):
            values.append(None)
        kinds = {type(value) for value in values if value is not None}
        may_be = tuple(kind for kind in _KINDS if all(kind in _OF_JSON[each] for each in kinds))
        texts = [json.dumps(value) if isinstance(value, bool) else value for value in values]
        found[name] = pa.array(texts, pa.string()), may_be
    return found


def _layout(path: Path, reading: Mapping[str, Any]) -> Layout:
    compression = reading.get("compression") or compression_of(path.name)
    return Layout(
        path,
        pa.schema([]),
        {},
        lambda _: None,
        compression,
        checked_encoding(reading.get("encoding") or "utf-8"),
    )
