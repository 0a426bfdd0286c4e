"""`read_records`: a file of any of the formats, as batches in a schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args

import pyarrow as pa

from txn_engine.arguments import check_callables
from txn_engine.errors import InvalidRequestError
from txn_engine.files.conversion import Conversion, DecimalMark, ThousandsMark
from txn_engine.files.date_formats import checked_date_format
from txn_engine.files.delimited import check_given_header, read_delimited
from txn_engine.files.dialect import Dialect
from txn_engine.files.json_lines import read_json_lines
from txn_engine.files.kinds import has_days
from txn_engine.files.layout import ACTOR, BadRows, Layout, Missing, Progress, Rejected, Sizes, Unknown
from txn_engine.files.parquet import read_parquet
from txn_engine.files.source import COMPRESSIONS, FORMATS, Compression, FileFormat, compression_of, format_of
from txn_engine.files.text import checked_encoding
from txn_engine.held import held_schema
from txn_engine.reasons import Reason
from txn_engine.row_checks import RowCheck, checks_on
from txn_engine.value_text import BinaryText


def read_records(
    source: str | Path | BinaryIO,
    schema: pa.Schema,
    *,
    format: FileFormat | None = None,  # noqa: A002 -- what everybody calls it
    compression: Compression | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    quote: str = '"',
    header: bool | Sequence[str] = True,
    null_values: Sequence[str] = ("",),
    skip_footer: int = 0,
    columns: Mapping[str, str] | None = None,
    missing_columns: Missing = "refuse",
    unknown_columns: Unknown = "refuse",
    date_format: str | None = None,
    decimal: DecimalMark = ".",
    thousands: ThousandsMark | None = None,
    binary: BinaryText = "text",
    fill: Mapping[str, Any] | None = None,
    row_checks: Sequence[RowCheck] = (),
    sizes: Sizes | None = None,
    rejected: Rejected | None = None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a file, exactly, in `schema`: its columns, in its order, of the types that their values are held
    under (`txn_engine.held`).

    Each batch holds up to 32,768 rows or about 16 million characters of the file; memory does not grow with the file.
    A fault raises `InvalidRecordError`, naming file, line (parquet: row) and column, and what was expected. What stands
    there is in the error's `value` alone, so that logs and alerts show nothing of a file. It comes when the fault is
    met: the batches before it were yielded. `InvalidRequestError`: the file cannot be read; or an argument is wrong or
    the format unknown, which is raised by the call itself, before the file is opened.

    Some faults are of one row: a value that does not fit its column, fields more or fewer than columns, a quote that
    ends in the middle of a field, no JSON, an unknown name in JSON, bytes that are no text, the header a second time, a
    record that `sizes` says is too large. With `rejected` such rows are left out of the batches and handed to it, a
    list at a time, before the batch that they stood in. All others are of the file, and raised in any case: a missing,
    doubled or unknown column, a quote that nothing closes, a row of more than 16,777,216 characters, a file that is
    cut, damaged or empty.

    source: a path, or a stream of bytes, as of stdin; a stream needs its `format`.
    format: by the file's name when not given: `FORMATS`, before `.gz` or `.zst`.
    compression: gzip or zstd; by the file's name when not given.
    encoding: of csv and jsonl; a byte order mark is no part of the text.
    delimiter, quote: of csv; "," unless told, a tab for `.tsv`, and "" for no quotes at all.
    header: of csv: whether its first line names the columns. False: they are the schema's, in its order. Or the names.
    null_values: fields of csv that mean null where they stand without quotes. In quotes they are texts; but columns
        that hold no text take them for null there too. An empty field in a string or binary column that takes no null
        is the empty string. A blank line is a row with an empty field where there is one column, else no row.
    skip_footer: of csv: how many lines at the end are no rows; blank lines are not counted.
    columns: the file's name of a column by the schema's name, where they differ.
    missing_columns: "null" takes a file without columns that may be null. unknown_columns: "ignore" passes over others.
    fill: columns that the file may lack, whatever `missing_columns` says: what stands for each, a scalar, or None for
        nulls.
    date_format: of dates and timestamps in csv and jsonl, as `datetime.strptime` takes it; ISO 8601 unless told.
    decimal: the decimal mark of numbers in text. JSON's own numbers always have a point.
    thousands: the mark between groups of three digits in text; a number without any is taken too.
    binary: what text in a binary column stands for: its UTF-8 bytes, or base64.
    row_checks: what each row has to pass by itself; one that fails is a fault of that row.
    sizes: what says which records are too large to be written; such a row is a fault of its own too.
    progress: called with the number of bytes read so far.
    """
    schema = held_schema(schema)
    check_callables(ACTOR, progress=progress, rejected=rejected)
    path = Path(source) if isinstance(source, str) else source
    name = str(path) if isinstance(path, Path) else ""
    _check_texts(encoding=encoding, quote=quote)
    may_be_none = {"delimiter": delimiter, "date_format": date_format}
    _check_texts(**{name: given for name, given in may_be_none.items() if given is not None})
    formats = dict.fromkeys((None, *FORMATS.values()))
    chosen = _one_of("format", format, list(formats)) or format_or_refused(path)
    bad_rows = None if rejected is None else BadRows(rejected)
    layout = Layout(
        path,
        schema,
        _renamed({} if columns is None else columns, schema),
        progress or _silent,
        _one_of(
            "compression",
            compression_of(name) if compression is None else compression,
            list(dict.fromkeys((None, *COMPRESSIONS.values()))),
        ),
        checked_encoding(encoding),
        _one_of("missing_columns", missing_columns, ("refuse", "null")),
        _one_of("unknown_columns", unknown_columns, ("refuse", "ignore")),
        bad_rows,
        dict(fill or {}),
        checks_on(row_checks, schema),
        sizes,
    )
    conversion = Conversion(
        checked_date_format(date_format, names_days=has_days(schema)),
        _one_of("binary", binary, ("text", "base64")),
        _one_of("decimal", decimal, (".", ",")),
        _one_of(
            "thousands", thousands, (None, *(each for each in get_args(ThousandsMark) if each != decimal))
        ),
    )
    dialect = Dialect(
        delimiter,
        quote,
        header if isinstance(header, bool) else _several("header", header),
        _several("null_values", null_values),
        _count("skip_footer", skip_footer),
    )
    if chosen == "parquet":
        batches: Iterator[pa.RecordBatch] = read_parquet(layout)
    elif chosen == "csv":
        dialect.check(layout)
        check_given_header(layout, dialect)
        batches = read_delimited(layout, conversion, dialect)
    else:
        batches = read_json_lines(layout, conversion)
    return _yielded(batches, layout)


def _yielded(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[pa.RecordBatch]:
    bad_rows = layout.bad_rows
    found = False
    for batch in batches:
        if bad_rows is not None:
            bad_rows.hand_on()
        if batch.num_rows:
            found = True
            yield batch
    has_bad = bad_rows is not None and bad_rows.hand_on()
    if not found and not has_bad:
        raise layout.refused("no records", reason=Reason.NO_RECORDS, expected="at least one")


Value = TypeVar("Value")


def _silent(_bytes_read: int) -> None:
    """Tell nobody."""


def _one_of(name: str, given: Value, known: Sequence[object]) -> Value:
    if given not in known:
        expected = ", ".join(repr(each) for each in known)
        raise InvalidRequestError(
            f"{name} {given!r}", actor=ACTOR, expected=f"one of {expected}", reason=Reason.BAD_ARGUMENT
        )
    return given


def _count(name: str, given: int) -> int:
    if type(given) is not int or given < 0:
        raise InvalidRequestError(
            f"{name} {given!r:.80}",
            actor=ACTOR,
            expected="a whole number, 0 or more",
            reason=Reason.BAD_ARGUMENT,
        )
    return given


def _check_texts(**given: object) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidRequestError(
                f"{name} {value!r:.80}", actor=ACTOR, expected="a text", reason=Reason.BAD_ARGUMENT
            )


def _several(name: str, given: Value) -> Value:
    """What is given; refused where it is one text, which would be taken for its letters, holds what is none, or can be
    gone through but once: there may be more files.
    """
    if isinstance(given, str):
        raise InvalidRequestError(
            f"{name} {given!r}",
            actor=ACTOR,
            expected=f"a list, as {[given]!r}",
            reason=Reason.BAD_ARGUMENT,
        )
    if not isinstance(given, Collection) or not all(isinstance(each, str) for each in given):
        raise InvalidRequestError(
            f"{name} {given!r:.80}",
            actor=ACTOR,
            expected="a list of texts, as they stand in the file",
            reason=Reason.BAD_ARGUMENT,
        )
    return given


def _renamed(columns: Mapping[str, str], schema: pa.Schema) -> dict[str, str]:
    if not isinstance(columns, Mapping):
        raise InvalidRequestError(
            f"columns {columns!r:.80}",
            actor=ACTOR,
            expected="a dict of names of the topic's columns, each with its name in the file",
            reason=Reason.BAD_ARGUMENT,
        )
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        raise InvalidRequestError(
            f"columns names {unknown[0]!r}",
            actor=ACTOR,
            expected=f"the file's name of some of {', '.join(schema.names)}",
            reason=Reason.UNKNOWN_COLUMN,
        )
    if not all(isinstance(each, str) for each in columns.values()):
        raise InvalidRequestError(
            f"columns {dict(columns)!r:.80}",
            actor=ACTOR,
            expected="the file's name of each, a text",
            reason=Reason.BAD_ARGUMENT,
        )
    in_file = [columns.get(name, name) for name in schema.names]
    if len(set(in_file)) < len(in_file):
        twice = Counter(in_file).most_common(1)[0][0]
        raise InvalidRequestError(
            f"columns takes the file's {twice!r} for two columns of the topic",
            actor=ACTOR,
            expected="a column of the file for each",
            reason=Reason.DUPLICATE_COLUMN,
        )
    return dict(columns)


def format_or_refused(source: Path | BinaryIO) -> FileFormat:
    """The format that a file's name stands for. `InvalidRequestError` where it stands for none."""
    found = format_of(source.name) if isinstance(source, Path) else None
    if found is None:
        suffix = source.suffix if isinstance(source, Path) else ""
        seen = f"the extension {suffix!r}" if suffix else "a name without an extension"
        raise InvalidRequestError(
            seen if isinstance(source, Path) else "a stream of no known format",
            actor=ACTOR,
            place=str(source) if isinstance(source, Path) else None,
            expected=", ".join(sorted(FORMATS)),
            action="name the format: csv, jsonl or parquet",
            reason=Reason.UNKNOWN_FORMAT,
        )
    return found
