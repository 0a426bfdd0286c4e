"""Files of records (csv, jsonl, parquet) to Arrow batches in a schema, exactly; an error names file, line and column.

Numbers never pass through a float unless the column is one: text goes to its column's type in one step. What does
not fit is refused, never rounded, trimmed or guessed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRecordError, InvalidRequestError

FileFormat = Literal["csv", "jsonl", "parquet"]
BinaryText = Literal["text", "base64"]
Progress = Callable[[int], None]
Record = TypeVar("Record")

FORMATS: Mapping[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""The format that a file's name stands for."""

READ_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp")
"""Columns that reads of a topic add: passed over in a file, so that what was read from a topic can be loaded again."""

BATCH_ROWS = 32_768
BATCH_BYTES = 16 * 1024 * 1024
FIELD_CHARS_MAX = 64 * 1024 * 1024
_ACTOR = "load"
_AGAIN = "mend the file and load it again"
_DELIMITERS = (",", ";", "\t", "|")


def read_records(
    path: str | Path,
    schema: pa.Schema,
    *,
    format: FileFormat | None = None,  # noqa: A002 -- what everybody calls it
    delimiter: str | None = None,
    null_values: Sequence[str] = ("",),
    columns: Mapping[str, str] | None = None,
    date_format: str | None = None,
    binary: BinaryText = "text",
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a file, exactly, in `schema`: its columns, in its order, of its types.

    Each batch holds up to 32,768 rows or about 16 MB of the file; memory does not grow with the file. A fault raises
    `InvalidRecordError`, naming file, line (parquet: row) and column, with what was seen and expected: a value that
    does not fit its column, a missing, doubled or unknown column, a line with more or fewer fields than the header, an
    open quote, text that is not UTF-8, a file without records. It comes when the fault is met: the batches before it
    were yielded. `InvalidRequestError`: the file cannot be read, or is of an unknown format.

    format: by the file's extension (`FORMATS`) when not given.
    delimiter: of csv, whose first line names the columns; "," unless told, a tab for `.tsv`.
    null_values: fields of csv that mean null. An empty one in a column that takes no null is the empty string in a
        string or binary column, and an error elsewhere. Blank lines are no rows.
    columns: the file's name of a column by the schema's name, where they differ.
    date_format: of dates and timestamps in csv and jsonl, as `datetime.strptime` takes it; ISO 8601 unless told.
    binary: what text in a binary column stands for: its UTF-8 bytes, or base64.
    progress: called with the number of bytes read so far.
    """
    source = Path(path)
    chosen = format or _format_of(source)
    layout = _Layout(source, schema, dict(columns or {}), progress or _silent)
    conversion = _Conversion(_checked_date_format(date_format, schema), binary)
    if chosen == "parquet":
        batches: Iterator[pa.RecordBatch] = _read_parquet(layout)
    elif chosen == "csv":
        batches = _read_csv(layout, conversion, delimiter, null_values)
    else:
        batches = _read_jsonl(layout, conversion)
    found = False
    for batch in batches:
        found = found or batch.num_rows > 0
        yield batch
    if not found:
        raise layout.refused("no records", expected="at least one")


def _silent(_bytes_read: int) -> None:
    """Tell nobody."""


def _format_of(path: Path) -> FileFormat:
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InvalidRequestError(
            f"the extension {path.suffix!r}" if path.suffix else "a name without an extension",
            actor=_ACTOR,
            place=str(path),
            expected=", ".join(sorted(FORMATS)),
            action="name the format: csv, jsonl or parquet",
        )
    return found


# --- the file and its columns -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layout:
    """A file, and the schema that its records are to have."""

    path: Path
    schema: pa.Schema
    renamed: Mapping[str, str]
    progress: Progress

    def refused(
        self,
        seen: str,
        *,
        expected: str,
        line: int | None = None,
        unit: str = "line",
        action: str = _AGAIN,
    ) -> InvalidRecordError:
        """The error for a fault of the file, on a line or as a whole."""
        place = str(self.path) if line is None else f"{self.path} {unit} {line}"
        return InvalidRecordError(seen, actor=_ACTOR, place=place, expected=expected, action=action)

    def unreadable(self, error: OSError) -> InvalidRequestError:
        """The error for a file that cannot be opened or read."""
        return InvalidRequestError(
            f"the file cannot be read: {error.strerror or error}",
            actor=_ACTOR,
            place=str(self.path),
            expected="a readable file",
            action="check the path and its permissions",
        )

    def name_in_file(self, column: str) -> str:
        """What the file calls a column of the schema."""
        return self.renamed.get(column, column)

    def match(
        self,
        names: Sequence[str],
        *,
        line: int | None,
        may_miss: Iterable[str] = (),
        hint: str = _AGAIN,
    ) -> dict[str, int]:
        """Where each column of the schema stands among the file's; raises unless they are the same columns."""
        doubled = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if doubled:
            raise self.refused(f"column {doubled[0]!r} twice", expected="each column once", line=line)
        places = {
            column: names.index(self.name_in_file(column))
            for column in self.schema.names
            if self.name_in_file(column) in names
        }
        optional = set(may_miss)
        missing = [self.name_in_file(c) for c in self.schema.names if c not in places and c not in optional]
        wanted = [self.name_in_file(column) for column in self.schema.names]
        unknown = [name for name in names if name not in wanted and name not in READ_COLUMNS]
        if missing or unknown:
            seen = " and ".join(
                part
                for part in (
                    f"no column {_listed(missing)}" if missing else "",
                    f"unknown column {_listed(unknown)}" if unknown else "",
                )
                if part
            )
            raise self.refused(seen, expected=f"the columns {', '.join(wanted)}", line=line, action=hint)
        return places


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:60]) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _CountedFile(io.FileIO):
    """A file that knows how much of it was read, also where it cannot seek."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "r")
        self.bytes_read = 0

    def readinto(self, buffer: Any) -> int | None:  # type: ignore[override,unused-ignore]
        """Read, and count."""
        count = super().readinto(buffer)
        self.bytes_read += count or 0
        return count


class _Text:
    """A UTF-8 file as lines of text, with or without a byte order mark."""

    def __init__(self, layout: _Layout, *, newline: str | None) -> None:
        self._layout = layout
        try:
            self._file = _CountedFile(layout.path)
        except OSError as error:
            raise layout.unreadable(error) from error
        buffered = io.BufferedReader(self._file, 1 << 17)
        self.stream = io.TextIOWrapper(buffered, encoding="utf-8-sig", newline=newline)
        self._batch_from = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.stream.close()
        if isinstance(error, UnicodeDecodeError):
            raise self._layout.refused(
                f"byte {error.object[error.start]:#04x} is no UTF-8 ({error.reason})",
                expected="text in UTF-8",
                line=_first_undecodable_line(self._layout.path),
            ) from error
        if isinstance(error, OSError):
            raise self._layout.unreadable(error) from error

    def batch_is_full(self, rows: int) -> bool:
        """Whether what was read since the last full batch is enough for one; tells the progress then."""
        if rows < BATCH_ROWS and (rows & 63 or self._file.bytes_read - self._batch_from < BATCH_BYTES):
            return False
        self._batch_from = self._file.bytes_read
        self.tell_progress()
        return True

    def tell_progress(self) -> None:
        """Say how far the reading is."""
        self._layout.progress(self._file.bytes_read)


def _first_undecodable_line(path: Path) -> int | None:
    if not path.is_file():
        return None
    with path.open("rb") as raw:
        for number, line in enumerate(raw, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return None


# --- batches ----------------------------------------------------------------------------------------------


class _FaultError(Exception):
    """A value on a line that does not fit its column. Another column may have one on a line before it."""

    def __init__(self, line: int, error: InvalidRecordError) -> None:
        super().__init__(line)
        self.line = line
        self.error = error


def _in_batches(
    text: _Text,
    rows: Iterator[tuple[int, Record]],
    make: Callable[[Sequence[Record], Sequence[int]], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows in batches; where a row cannot be read, a fault in one before it is told first."""
    held: list[Record] = []
    lines: list[int] = []
    try:
        for line, row in rows:
            lines.append(line)
            held.append(row)
            if text.batch_is_full(len(held)):
                yield make(held, lines)
                held, lines = [], []
    except InvalidRecordError:
        if held:
            make(held, lines)
        raise
    if held:
        yield make(held, lines)
    text.tell_progress()


def _batch(layout: _Layout, column: Callable[[pa.Field[Any]], pa.Array[Any]]) -> pa.RecordBatch:
    """A batch, column by column; of several faults the one on the first line is raised."""
    arrays: list[pa.Array[Any]] = []
    faults: list[_FaultError] = []
    for field in layout.schema:
        try:
            arrays.append(column(field))
        except _FaultError as fault:
            faults.append(fault)
    if faults:
        first = min(faults, key=lambda fault: fault.line)
        raise first.error from first.__cause__
    return pa.RecordBatch.from_arrays(arrays, schema=layout.schema)


# --- csv --------------------------------------------------------------------------------------------------


def _read_csv(
    layout: _Layout, conversion: _Conversion, delimiter: str | None, null_values: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    mark = delimiter or ("\t" if layout.path.suffix.lower() == ".tsv" else ",")
    if len(mark) != 1 or mark in '\r\n"':
        raise InvalidRequestError(
            f"delimiter {delimiter!r}", actor=_ACTOR, expected="one character, no quote and no line end"
        )
    csv.field_size_limit(max(csv.field_size_limit(), FIELD_CHARS_MAX))
    nulls = pa.array(null_values, pa.string())
    with _Text(layout, newline="") as text:
        reader = csv.reader(text.stream, delimiter=mark, strict=True)
        rows = _csv_rows(layout, reader)
        header = next(rows, None)
        if header is None:
            raise layout.refused("the file is empty", expected="a line of column names, then records")
        names = header[1]
        nested = [field.name for field in layout.schema if _is_nested(field.type)]
        places = layout.match(
            names,
            line=header[0],
            may_miss=[name for name in nested if layout.schema.field(name).nullable],
            hint=_delimiter_hint(names, layout) or _AGAIN,
        )
        for name in nested:
            if name in places or not layout.schema.field(name).nullable:
                kind = layout.schema.field(name).type
                raise layout.refused(
                    f"column {name!r} of type {kind}", expected="jsonl or parquet for nested values"
                )
        counted = _counted_rows(layout, rows, len(names))
        yield from _in_batches(
            text, counted, lambda held, lines: _csv_batch(layout, conversion, places, held, lines, nulls)
        )


def _counted_rows(
    layout: _Layout, rows: Iterator[tuple[int, list[str]]], fields: int
) -> Iterator[tuple[int, list[str]]]:
    for line, row in rows:
        if len(row) != fields:
            seen = f"{len(row)} field{'' if len(row) == 1 else 's'}"
            raise layout.refused(seen, expected=f"{fields}, as the header has", line=line)
        yield line, row


def _csv_rows(layout: _Layout, reader: Any) -> Iterator[tuple[int, list[str]]]:
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
        hint = (_delimiter_hint([_first_line(layout.path)], layout) if line == 1 else None) or _AGAIN
        raise layout.refused(
            said, expected="delimited text whose quotes match", line=line, action=hint
        ) from error


def _csv_batch(
    layout: _Layout,
    conversion: _Conversion,
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
        if not field.nullable and (_is_string(field.type) or _is_binary(field.type)):
            is_null = pc.and_(is_null, pc.not_equal(texts, pa.scalar("", pa.string())))
        texts = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
        return _converted(layout, conversion, field, texts, lines)

    return _batch(layout, column)


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8-sig") as stream:
        return stream.readline(FIELD_CHARS_MAX).rstrip("\n")


def _delimiter_hint(names: Sequence[str], layout: _Layout) -> str | None:
    """Where the header is of one piece that another delimiter cuts into the schema's columns: that delimiter."""
    if len(names) != 1:
        return None
    wanted = {layout.name_in_file(column) for column in layout.schema.names}
    for mark in _DELIMITERS:
        pieces = {piece.strip('"') for piece in names[0].split(mark)}
        if len(pieces) > 1 and pieces & wanted:
            return f"the delimiter seems to be {mark!r}: say so"
    return None


# --- jsonl ------------------------------------------------------------------------------------------------


class _NotJsonError(ValueError):
    """A line that Python's decoder would take and JSON does not know."""


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotJsonError("a name twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _NotJsonError(f"{name}, which JSON does not know")


def _read_jsonl(layout: _Layout, conversion: _Conversion) -> Iterator[pa.RecordBatch]:
    decode = json.JSONDecoder(
        object_pairs_hook=_pairs, parse_float=Decimal, parse_constant=_no_constant
    ).decode
    known = {layout.name_in_file(column) for column in layout.schema.names} | set(READ_COLUMNS)
    with _Text(layout, newline=None) as text:
        rows = _json_rows(layout, text.stream, decode, known)
        yield from _in_batches(text, rows, lambda held, lines: _json_batch(layout, conversion, held, lines))


def _json_rows(
    layout: _Layout, stream: Iterable[str], decode: Callable[[str], object], known: set[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's object with its number; blank lines are none."""
    for number, line in enumerate(stream, start=1):
        if line.isspace():
            continue
        try:
            record = decode(line)
        except (ValueError, RecursionError) as error:
            raise layout.refused(
                f"no JSON: {_json_fault(error)}", expected="a JSON object on each line, whole", line=number
            ) from error
        if not isinstance(record, dict):
            raise layout.refused(_shown(record), expected="a JSON object on each line", line=number)
        unknown = [name for name in record if name not in known]
        if unknown:
            raise layout.refused(
                f"unknown column {_listed(unknown)}",
                expected=f"the columns {', '.join(sorted(known - set(READ_COLUMNS)))}",
                line=number,
            )
        yield number, record


def _json_fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.colno}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)


def _json_batch(
    layout: _Layout, conversion: _Conversion, records: Sequence[Mapping[str, Any]], lines: Sequence[int]
) -> pa.RecordBatch:
    def column(field: pa.Field[Any]) -> pa.Array[Any]:
        name = layout.name_in_file(field.name)
        values = [record.get(name) for record in records]
        if not field.nullable and any(value is None for value in values):
            index = values.index(None)
            if name in records[index]:
                raise _null_refused(layout, field, lines[index])
            expected = f"a value of type {field.type}"
            raise _FaultError(
                lines[index], layout.refused(f"no column {name!r}", expected=expected, line=lines[index])
            )
        if _is_nested(field.type):
            return _nested(layout, conversion, field, values, lines)
        texts = _json_texts(layout, conversion, field, values, lines)
        return _converted(layout, conversion, field, texts, lines)

    return _batch(layout, column)


def _json_texts(
    layout: _Layout,
    conversion: _Conversion,
    field: pa.Field[Any],
    values: Sequence[Any],
    lines: Sequence[int],
) -> pa.Array[Any]:
    """The values as text, from which all types are read; a value of another kind than the column's is refused."""
    accepts = _json_types(field.type)
    texts: list[str | None] = []
    for value, line in zip(values, lines, strict=True):
        if value is not None and type(value) not in accepts:
            raise _bad_value(layout, conversion, field, value, line)
        texts.append(value if value is None or type(value) is str else _text_of(value))
    try:
        return pa.array(texts, pa.string())
    except (UnicodeEncodeError, pa.ArrowInvalid):
        index = next(i for i, value in enumerate(texts) if value is not None and not _encodes(value))
        raise _bad_value(layout, conversion, field, texts[index], lines[index]) from None


def _json_types(kind: pa.DataType) -> tuple[type, ...]:
    """What a column takes from JSON. Numbers may also come as strings: that is how exact ones travel."""
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_integer(kind):
        return (int, str)
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return (int, Decimal, str)
    return (str,)


def _text_of(value: bool | int | Decimal) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _nested(
    layout: _Layout,
    conversion: _Conversion,
    field: pa.Field[Any],
    values: Sequence[object],
    lines: Sequence[int],
) -> pa.Array[Any]:
    kept = []
    for value, line in zip(values, lines, strict=True):
        try:
            plain = conversion.nested(value, field.type)
            pa.array([plain], field.type)
        except (TypeError, ValueError, KeyError, pa.ArrowException) as error:
            raise _bad_value(layout, conversion, field, value, line) from error
        kept.append(plain)
    found: pa.Array[Any] = pa.array(kept, field.type)
    return found


# --- text to a column's type ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Conversion:
    """How text becomes a value of a column's type."""

    date_format: str | None
    binary: BinaryText

    def array(self, texts: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
        """The texts in a type. ValueError (ArrowInvalid is one) when any does not fit; it does not say which."""
        if _is_string(kind):
            return texts.cast(kind)
        if _is_binary(kind):
            return self._bytes(texts).cast(kind)
        if pa.types.is_integer(kind):
            _require(texts, r"^[+-]?[0-9]+$")
            return pc.replace_substring_regex(texts, r"^\+", "").cast(kind)
        if pa.types.is_decimal(kind):
            _require(texts, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$")
            return texts.cast(kind)
        if pa.types.is_floating(kind):
            return _finite_unless_said(texts, texts.cast(kind))
        if pa.types.is_boolean(kind):
            return texts.cast(kind)
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            if self.date_format is None:
                _require(texts, r"^(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-")
                return texts.cast(kind)
            return _by_distinct(texts, partial(_moment, date_format=self.date_format, kind=kind), kind)
        raise TypeError(f"no text stands for {kind}")

    def _bytes(self, texts: pa.Array[Any]) -> pa.Array[Any]:
        if self.binary == "text":
            return texts.cast(pa.binary())
        import base64

        decoded = [
            None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()
        ]
        return pa.array(decoded, pa.binary())

    def expected(self, kind: pa.DataType) -> str:
        """What a text must look like."""
        if pa.types.is_integer(kind):
            return f"{kind}, a whole number of at most {kind.bit_width} bits"
        if pa.types.is_decimal(kind):
            whole = kind.precision - kind.scale
            digits = f"at most {whole} digits before the point and {kind.scale} after it"
            return f"decimal({kind.precision},{kind.scale}), {digits}"
        if pa.types.is_floating(kind):
            return f"{kind}, a number"
        if pa.types.is_boolean(kind):
            return "true or false"
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return self._expected_moment(kind)
        if _is_binary(kind) and self.binary == "base64":
            return "base64"
        return "text" if _is_string(kind) or _is_binary(kind) else str(kind)

    def _expected_moment(self, kind: pa.DataType) -> str:
        if pa.types.is_date(kind):
            if self.date_format is not None:
                return f"a date in the format {self.date_format!r}"
            return "a date as 2026-01-31, or in a date format that you name"
        unit, zone = _unit_and_zone(kind)
        zoned = "with its zone" if zone else "without a zone"
        shown = f"in the format {self.date_format!r}"
        if self.date_format is None:
            shown = f"as 2026-01-31T09:30:00{'Z' if zone else ''}"
        return f"a time {shown}, {zoned}, no finer than {unit}"

    def nested(self, value: Any, kind: pa.DataType) -> Any:
        """A JSON value as pyarrow takes it for a type that may hold others."""
        if value is None:
            return None
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            if not isinstance(value, list):
                raise TypeError("no list")
            return [self.nested(item, kind.value_type) for item in value]
        if pa.types.is_struct(kind):
            fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
            if not isinstance(value, dict) or not set(value) <= set(fields):
                raise TypeError("no object of these fields")
            return {name: self.nested(value.get(name), inner) for name, inner in fields.items()}
        if type(value) not in _json_types(kind):
            raise TypeError(f"no {kind}")
        return self.array(pa.array([_text_of(value)], pa.string()), kind)[0].as_py()


def _require(texts: pa.Array[Any], pattern: str) -> None:
    if pc.any(pc.invert(pc.match_substring_regex(texts, pattern))).as_py():
        raise ValueError("a text of another form")


def _finite_unless_said(texts: pa.Array[Any], numbers: pa.Array[Any]) -> pa.Array[Any]:
    """The numbers, none of them made infinite by the reading."""
    if pc.any(pc.is_inf(numbers)).as_py():
        _require(texts.filter(pc.is_inf(numbers)), r"^(?i)[+-]?inf(inity)?$")
    return numbers


def _by_distinct(texts: pa.Array[Any], parse: Callable[[str], object], kind: pa.DataType) -> pa.Array[Any]:
    """Parse each distinct text once: files repeat their dates."""
    encoded: Any = texts.dictionary_encode()
    values: pa.Array[Any] = pa.array([parse(text) for text in encoded.dictionary.to_pylist()], kind)
    return values.take(encoded.indices)


def _checked_date_format(date_format: str | None, schema: pa.Schema) -> str | None:
    """The format; refused where it cannot be one, or does not say which day a date column means."""
    if date_format is None:
        return None
    try:
        example = datetime(2001, 12, 31).strftime(date_format)  # noqa: DTZ001 -- an example of no zone
        says = datetime.strptime(example, date_format).date() == datetime(2001, 12, 31).date()  # noqa: DTZ001, DTZ007
    except (ValueError, re.error) as error:
        raise InvalidRequestError(
            f"date format {date_format!r}: {error}",
            actor="load",
            expected="one that strptime takes, as %Y-%m-%d",
        ) from error
    if not says and any(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in schema.types):
        raise InvalidRequestError(
            f"date format {date_format!r}",
            actor="load",
            expected="one with year, month and day, as %Y-%m-%d or %y%m%d",
        )
    return date_format


def _moment(text: str, *, date_format: str, kind: pa.DataType) -> object:
    found = datetime.strptime(text, date_format)  # noqa: DTZ007 -- what the file says; its zone is judged below
    if "%" in date_format and _JOINED.search(date_format) and found.strftime(date_format) != text:
        raise ValueError("digits missing")  # "93011" as %y%m%d would else pass for 1993-01-01
    if pa.types.is_date(kind):
        return found.date()
    unit, zone = _unit_and_zone(kind)
    if bool(zone) != (found.tzinfo is not None):
        raise ValueError("a zone where there is none, or none where one is needed")
    step = {"s": 1_000_000, "ms": 1_000}.get(unit, 1)
    if found.microsecond % step:
        raise ValueError("finer than the column")
    return found


def _unit_and_zone(kind: Any) -> tuple[str, str | None]:
    """Of a timestamp type."""
    return kind.unit, kind.tz


_JOINED = re.compile(r"%[A-Za-z]%[A-Za-z]")


def _converted(
    layout: _Layout, conversion: _Conversion, field: pa.Field[Any], texts: pa.Array[Any], lines: Sequence[int]
) -> pa.Array[Any]:
    """A column of texts in its type, or the error that names the first bad one."""
    if not field.nullable and texts.null_count:
        index = pc.index(pc.is_null(texts), value=True).as_py()
        raise _null_refused(layout, field, lines[index])
    try:
        return conversion.array(texts, field.type)
    except (TypeError, NotImplementedError) as error:
        raise layout.refused(
            f"column {field.name!r} of type {field.type}", expected="parquet for values of this type"
        ) from error
    except ValueError as error:
        index = _first_bad(texts, lambda part: conversion.array(part, field.type))
        raise _bad_value(layout, conversion, field, texts[index].as_py(), lines[index]) from error


def _first_bad(values: pa.Array[Any], convert: Callable[[pa.Array[Any]], object]) -> int:
    """The index of the first value that `convert` refuses, by halving."""
    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            convert(values.slice(good, middle - good))
        except ValueError:
            bad = middle
        else:
            good = middle
    return good


def _bad_value(
    layout: _Layout, conversion: _Conversion, field: pa.Field[Any], value: object, line: int
) -> _FaultError:
    shown = str(value) if isinstance(value, Decimal) else _shown(value)
    name = layout.name_in_file(field.name)
    refusal = layout.refused(f"{name} is {shown}", expected=conversion.expected(field.type), line=line)
    return _FaultError(line, refusal)


def _null_refused(layout: _Layout, field: pa.Field[Any], line: int, *, unit: str = "line") -> _FaultError:
    refusal = layout.refused(
        f"{layout.name_in_file(field.name)} is empty",
        expected=f"{field.type}: the column takes no null",
        line=line,
        unit=unit,
    )
    return _FaultError(line, refusal)


# --- parquet ----------------------------------------------------------------------------------------------


def _read_parquet(layout: _Layout) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(layout.path)
    except pa.ArrowInvalid as error:
        raise layout.refused(
            "no Parquet file, or a truncated one", expected="a whole Parquet file"
        ) from error
    except OSError as error:
        raise layout.unreadable(error) from error
    with file:
        places = layout.match(file.schema_arrow.names, line=None)
        types = [file.schema_arrow.field(places[name]).type for name in layout.schema.names]
        for field, kind in zip(layout.schema, types, strict=True):
            if not _is_convertible(kind, field.type):
                raise layout.refused(
                    f"column {layout.name_in_file(field.name)!r} of type {kind}", expected=str(field.type)
                )
        names = [layout.name_in_file(name) for name in layout.schema.names]
        first_row, done = 1, 0
        size = layout.path.stat().st_size
        try:
            for batch in file.iter_batches(BATCH_ROWS, columns=names):
                yield _parquet_batch(layout, batch.select(names), first_row)
                first_row += batch.num_rows
                done = size * first_row // max(file.metadata.num_rows, 1)
                layout.progress(min(done, size))
        except (pa.ArrowException, OSError) as error:
            raise layout.refused(
                f"a damaged Parquet file behind row {first_row - 1}", expected="a whole Parquet file"
            ) from error


def _parquet_batch(layout: _Layout, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    found = {field.name: column for field, column in zip(layout.schema, batch.columns, strict=True)}

    def fitting(field: pa.Field[Any]) -> pa.Array[Any]:
        column = found[field.name]
        if not field.nullable and column.null_count:
            row = first_row + pc.index(pc.is_null(column), value=True).as_py()
            raise _null_refused(layout, field, row, unit="row")
        if column.type == field.type:
            return column
        try:
            return column.cast(field.type)
        except ValueError as error:
            index = _first_bad(column, partial(_cast, kind=field.type))
            value, row = column[index].as_py(), first_row + index
            seen = f"{layout.name_in_file(field.name)} is {value if isinstance(value, Decimal) else _shown(value)}"
            refusal = layout.refused(seen, expected=str(field.type), line=row, unit="row")
            raise _FaultError(row, refusal) from error

    return _batch(layout, fitting)


def _cast(column: pa.Array[Any], *, kind: pa.DataType) -> pa.Array[Any]:
    return column.cast(kind)


def _is_convertible(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a Parquet column's values may stand in a column of another type, where each of them fits."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if kind == wanted:
        return True
    if pa.types.is_integer(kind):
        return bool(pa.types.is_integer(wanted) or pa.types.is_decimal(wanted))
    if pa.types.is_decimal(kind):
        return bool(pa.types.is_decimal(wanted))
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted):
        return bool(_unit_and_zone(kind)[1]) == bool(_unit_and_zone(wanted)[1])
    return (
        (_is_string(kind) and _is_string(wanted))
        or (_is_binary(kind) and _is_binary(wanted))
        or (pa.types.is_date(kind) and pa.types.is_date(wanted))
        or (kind == pa.float32() and wanted == pa.float64())
    )


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))
