"""What columns a file has: for each the narrowest type that holds all its values exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.files.conversion import Conversion, JsonNumber, checked_date_format
from txn_engine.files.delimited import Dialect
from txn_engine.files.json_lines import decoded_object
from txn_engine.files.layout import READ_COLUMNS, Layout
from txn_engine.files.numbers import matches
from txn_engine.files.parquet import opened_parquet
from txn_engine.files.records import format_or_refused, read_records
from txn_engine.files.source import compression_of
from txn_engine.files.text import BATCH_ROWS, Text, checked_encoding
from txn_engine.reasons import Reason

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


def infer_schema(path: Path, **reading: Any) -> pa.Schema:
    """The columns of a file, which is read to its end; `reading` as `read_records` takes it. A guess: look at it.

    A column is a whole number, a decimal of at least 18 digits, a float (only where digits come with an exponent),
    a day, a time with its zone, true or false, else text. Digits that begin with a 0, as account numbers do, are text.
    It may be null where the file has none of a value. Of Parquet it is the file's own schema.

    Raises as `read_records` does, and `InvalidRecordError` for a JSON value that holds others.
    """
    known = reading.get("format") or format_or_refused(path)
    if known == "parquet":
        with opened_parquet(_layout(path, {})) as file:
            found = file.schema.remove_metadata()
        return pa.schema([each for each in found if each.name not in READ_COLUMNS])
    conversion = Conversion(reading.get("date_format"), "text", reading.get("decimal") or ".")
    texts = _csv(path, reading) if known == "csv" else _json(path, reading)
    columns: dict[str, _Column] = {}
    rows = 0
    for count, batch in texts:
        for name in [*columns, *(new for new in batch if new not in columns)]:
            if name in READ_COLUMNS:
                continue
            column = columns.setdefault(name, _Column(conversion, has_nulls=rows > 0))
            if name in batch:
                column.take(*batch[name])
            else:
                column.has_nulls = True
        rows += count
    schema = pa.schema([column.field(name) for name, column in columns.items()])
    checked_date_format(reading.get("date_format"), schema)
    return schema


Texts = Mapping[str, tuple["pa.Array[Any]", tuple[str, ...]]]
"""Of a batch by column: the values as text, and what they may be."""


@dataclass
class _Column:
    """What is known of a column so far."""

    conversion: Conversion
    has_nulls: bool
    kinds: tuple[str, ...] = _KINDS
    has_values: bool = False
    digits: list[int] = field(default_factory=lambda: [0, 0])

    def take(self, texts: Any, may_be: tuple[str, ...]) -> None:
        """Some values more."""
        self.has_nulls = self.has_nulls or texts.null_count > 0
        texts = texts.drop_null()
        if len(texts):
            self.has_values = True
            self.kinds = tuple(kind for kind in self.kinds if kind in may_be and self._holds(kind, texts))

    def field(self, name: str) -> pa.Field[Any]:
        """The column, of the first type that holds everything."""
        kind = self.kinds[0] if self.has_values and self.kinds else "string"
        whole, scale = self.digits
        wide = min(max(_PRECISION_LEAST, whole + scale), _PRECISION_MAX)
        chosen = pa.decimal128(wide, scale) if kind == "decimal" else _TYPES[kind]
        return pa.field(name, chosen, nullable=self.has_nulls or not self.has_values)

    def _holds(self, kind: str, texts: Any) -> bool:
        mark = "," if self.conversion.decimal == "," else r"\."
        if kind in ("int64", "decimal", "float64") and not matches(
            texts, rf"^[+-]?(0|[1-9][0-9]*)({mark}|[eE]|$)"
        ):
            return False
        if kind == "decimal":
            return self._measured(texts, mark)
        if kind == "bool" and not matches(
            texts, r"(?i)^(true|false)$"
        ):  # 0 and 1 are numbers until somebody says more
            return False
        try:
            self.conversion.array(texts, _TYPES[kind])
        except ValueError:
            return False
        return kind != "float64" or not matches(texts, r"^[^eE]*$")

    def _measured(self, texts: Any, mark: str) -> bool:
        """Whether so many digits fit a decimal, with those that were seen before."""
        if not matches(texts, rf"^[+-]?[0-9]+({mark}[0-9]+)?$"):
            return False
        parts = pc.extract_regex(texts, rf"^[+-]?(?P<whole>[0-9]+)(?P<mark>{mark})?(?P<rest>[0-9]*)$")
        for place, name in enumerate(("whole", "rest")):
            longest = pc.max(pc.binary_length(pc.struct_field(parts, [name]))).as_py() or 0
            self.digits[place] = max(self.digits[place], longest)
        return sum(self.digits) <= _PRECISION_MAX


def _csv(path: Path, reading: Mapping[str, Any]) -> Iterator[tuple[int, Texts]]:
    names = _header(path, reading)
    schema = pa.schema([(name, pa.string()) for name in names])
    passed = {
        name: value for name, value in reading.items() if name not in ("decimal", "date_format", "columns")
    }
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
    return row if given else [f"column{number}" for number in range(1, len(row) + 1)]


def _json(path: Path, reading: Mapping[str, Any]) -> Iterator[tuple[int, Texts]]:
    layout = _layout(path, reading)
    with Text(layout) as text:
        held: list[Mapping[str, Any]] = []
        for number, line in enumerate(text.lines(), start=1):
            if text.is_undecodable:
                raise text.undecodable(number)
            if not line.isspace():
                held.append(decoded_object(layout, line, number))
                _check_plain(layout, held[-1], number)
            text.next_row()
            if len(held) >= BATCH_ROWS or text.chars >= text.full_at:
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
    """The values of each name as texts, with the kinds that they may have."""
    found: dict[str, tuple[pa.Array[Any], tuple[str, ...]]] = {}
    for name in dict.fromkeys(name for record in records for name in record):
        values = [record.get(name) for record in records]
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
