"""What csv says comes back as it was: nothing and the empty text, blank lines, byte order marks, and files that we,
PyArrow and DuckDB have written."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.files.test_quick import blocks
from txn_engine.cli.record_text import Csv
from txn_engine.errors import InvalidRecordError
from txn_engine.files import BadRow, infer_schema, read_records
from txn_engine.reasons import Reason

Write = Callable[..., Path]
TEXT = pa.schema([("a", pa.string())])
NUMBER = pa.schema([pa.field("a", pa.int64(), nullable=False)])


def read(source: Path | bytes, schema: pa.Schema, **options: Any) -> tuple[pa.Table, list[BadRow]]:
    """The records and the bad rows."""
    bad: list[BadRow] = []
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    batches = list(read_records(stream, schema, rejected=bad.extend, **{"format": "csv", **options}))
    return pa.Table.from_batches(batches, schema), bad


def read_both_ways(source: bytes, schema: pa.Schema, **options: Any) -> tuple[pa.Table, list[BadRow]]:
    """The same, which both readers of csv agree on."""
    found, bad = read(source, schema, **options)
    with blocks(7, 3, careful=True):
        again, bad_again = read(source, schema, **options)
    assert again.equals(found)
    assert [(row.line, row.columns) for row in bad_again] == [(row.line, row.columns) for row in bad]
    return found, bad


# --- blank lines ------------------------------------------------------------------------------------------


def test_a_blank_line_of_one_column_is_a_row() -> None:
    """In a file of one column a blank line is a record with a null, or a dead letter. In other files it is
    no row."""
    found, bad = read_both_ways(b'a\nx\n\n""\n\n', TEXT)
    assert (found.column("a").to_pylist(), bad) == (["x", None, "", None], [])
    found, bad = read_both_ways(b"\r\n\r\n1\r\n\r\n2", NUMBER, header=False)
    assert found.column("a").to_pylist() == [1, 2]
    assert [(row.line, row.error.reason) for row in bad] == [
        (line, Reason.NULL_IN_NOT_NULL) for line in (1, 2, 4)
    ]
    two = pa.schema([("a", pa.string()), ("b", pa.string())])
    assert read_both_ways(b"\na,b\n\nx,y\n\n", two)[0].to_pylist() == [{"a": "x", "b": "y"}]


@given(
    st.lists(st.sampled_from(["x", '"x"', "", '""', "NULL", '"NULL"', '"a\n\n"', "a,b", 'b"', " "])),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_each_line_of_one_column_is_a_row(lines: list[str], end: str) -> None:
    """In a file of one column all rows are records or bad rows, whatever they are."""
    source = "".join(line + end for line in ["a", *lines]).encode()
    if not lines:
        return
    found, bad = read_both_ways(source, TEXT, null_values=["", "NULL"])
    assert found.num_rows + len(bad) == len(lines)
    words = {"": None, "NULL": None, '""': "", '"NULL"': "NULL", '"x"': "x", '"a\n\n"': "a\n\n"}
    good = [line for line in lines if line not in ("a,b", 'b"')]
    with_quotes = found.column("a").to_pylist()
    assert [text for text in with_quotes if text != 'b"'] == [words.get(line, line) for line in good]


# --- files that others have written ------------------------------------------------------------------------

RECORDS = pa.table(
    {
        "s": pa.array(["a", "", None, 'q"', "\n", " x "]),
        "i": pa.array([1, None, 3, 4, 5, 6], pa.int64()),
        "f": pa.array([1.5, 1e20, None, float("inf"), 1e-7, 0.1]),
        "d": pa.array([dt.date(2026, 1, 31), None] * 3),
        "z": pa.array([1, None, 3, 4, 5, 123_456], pa.timestamp("us", "UTC")),
        "t": pa.array([1, None, 3, 4, 5, 123_456], pa.timestamp("us")),
        "b": pa.array([True, None, False] * 2),
        "x": pa.array([b"a", b"", None] * 2),
        "m": pa.array([Decimal("1.50"), None] * 3, pa.decimal128(18, 2)),
    }
)
ONE_COLUMN = [
    pa.table({"s": ["a", "", None]}),
    pa.table({"s": ["", None]}),
    pa.table({"s": pa.array([1, None])}),
]


@pytest.mark.parametrize("records", [RECORDS, *ONE_COLUMN], ids=str.__name__.format)
def test_a_file_of_pyarrow_comes_back(tmp_path: Path, records: pa.Table) -> None:
    """PyArrow puts texts in quotes, and writes null as an empty field."""
    path = tmp_path / "p.csv"
    pa_csv.write_csv(records, path)
    found, bad = read_both_ways(path.read_bytes(), records.schema)
    assert (found.to_pydict(), bad) == (records.to_pydict(), [])


@pytest.mark.parametrize("records", [RECORDS, *ONE_COLUMN], ids=str.__name__.format)
def test_a_file_of_duckdb_comes_back(tmp_path: Path, records: pa.Table) -> None:
    """DuckDB puts only empty texts in quotes, and those that need them."""
    path = tmp_path / "d.csv"
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.register("records", records)
        connection.execute(f"COPY records TO '{path}'")
    found, bad = read_both_ways(path.read_bytes(), records.schema)
    assert (found.to_pydict(), bad) == (records.to_pydict(), [])


CELLS = (
    st.none()
    | st.sampled_from(["", "NULL", "\ufeff", '"', '""', "\r", "\r\n", " ", "\0"])
    | st.text(max_size=5)
)


class _Sink(io.StringIO):
    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        raise AssertionError


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6), st.integers(1, 2))
@example([(None, None)], 1)
@example([("\ufeff", "\r")], 2)
def test_what_consume_writes_comes_back(rows: list[tuple[str | None, str | None]], columns: int) -> None:
    """`consume --format csv` writes what `produce` reads, for any texts but one: a row of the columns' names, which
    only a file without the columns that `consume` adds can have, is taken for the header again."""
    schema = pa.schema([(name, pa.string()) for name in "ab"[:columns]])
    rows = [row for row in rows if row[:columns] != ("a", "b")[:columns]] or [(None, None)]
    records = pa.table([list(column) for column in zip(*rows, strict=True)][:columns], schema=schema)
    stream = _Sink(newline="")
    Csv(stream, "text").write(records)
    found, bad = read_both_ways(stream.getvalue().encode(), schema)
    assert (found.to_pydict(), bad) == (records.to_pydict(), [])


# --- byte order marks ---------------------------------------------------------------------------------------

ENCODINGS = [
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "utf-32-le",
    "gb18030",
    "utf-7",
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("header", [True, False])
def test_a_byte_order_mark_is_no_text(encoding: str, header: bool) -> None:
    """A byte order mark is no part of the first name or value, whatever the encoding."""
    has_own = encoding in ("utf-8-sig", "utf-16", "utf-32")
    source = ("" if has_own else "\ufeff") + ("a\nx\n" if header else "x\n")
    found, bad = read_both_ways(source.encode(encoding), TEXT, encoding=encoding, header=header)
    assert (found.column("a").to_pylist(), bad) == (["x"], [])


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("utf-8-sig", "cp1252"),
        ("utf-8-sig", "latin-1"),
        ("utf-16", "cp1252"),
        ("utf-16", "utf-8"),
        ("utf-16", "utf-16-be"),
        ("utf-32", "utf-16"),
        ("utf-8-sig", "utf-16-le"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_the_byte_order_mark_of_another_encoding(write: Write, written: str, named: str, suffix: str) -> None:
    """A file with the byte order mark of another encoding is refused, and the right encoding is named."""
    path = write(f"f.{suffix}", ("a\nx\n" if suffix == "csv" else '{"a": "x"}\n').encode(written))
    with pytest.raises(InvalidRecordError) as caught:
        read(path, TEXT, encoding=named, header=False, format=suffix)
    assert caught.value.reason is Reason.BAD_ENCODING
    right = written.removesuffix("-sig")
    assert f"`--encoding {right}`" in (caught.value.action or "")
    assert read(path, TEXT, encoding=right, format=suffix)[0].num_rows == 1


# --- bank files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "decimal", "thousands", "value"),
    [
        ("-1.091,09", ",", ".", Decimal("-1091.09")),
        ("1.234.567", ",", ".", Decimal(1_234_567)),
        ("1234567,5", ",", ".", Decimal("1234567.5")),
        ("1'234.50", ".", "'", Decimal("1234.50")),
        ("1\u202f234,5", ",", "\u202f", Decimal("1234.5")),
        ("12,345", ".", ",", Decimal(12_345)),
        ("1.09", ",", ".", None),
        ("1.0912,5", ",", ".", None),
        ("1234.567", ",", ".", None),
        (".123", ",", ".", None),
        ("1..234", ",", ".", None),
        ("1.234.5", ",", ".", None),
        ("1,234.567", ",", ".", None),
        ("1,5", ".", ",", None),
    ],
)
@pytest.mark.parametrize("kind", [pa.decimal128(18, 2), pa.int64(), pa.float64()])
def test_marks_between_thousands(
    text: str, decimal: Any, thousands: Any, value: Decimal | None, kind: pa.DataType
) -> None:
    """A mark between thousands stands before groups of three digits, or nowhere. Each row is judged by itself."""
    whole = value is None or value == value.to_integral_value()
    fits = value is not None and (whole or not pa.types.is_integer(kind))
    schema = pa.schema([("a", kind)])
    options = {"delimiter": ";", "decimal": decimal, "thousands": thousands}
    found, bad = read_both_ways(f"a\n{text}\n7\n8e0\n".encode(), schema, **options)
    values: list[Any] = [*([value] if fits else []), 7, 8]
    assert found.column("a").to_pylist() == [float(each) if kind == pa.float64() else each for each in values]
    assert [row.line for row in bad] == ([] if fits else [2])


def test_a_footer_is_no_row() -> None:
    """The last lines are left out, blank ones not counted, whatever is in them and wherever blocks end."""
    body = "".join(f"{row}\n" for row in range(50))
    for footer, lines in (('Total;"1\n', 1), ("Total\n\nEnd\n\n", 2), ("49 rows", 1), ("", 0)):
        source = f"a\n{body}{footer}".encode()
        for chars in (1, 10, 1_000):
            with blocks(chars, 7):
                found, bad = read(source, NUMBER, skip_footer=lines)
            assert (found.column("a").to_pylist(), bad) == (list(range(50)), [])
    with pytest.raises(InvalidRecordError) as caught:
        read(b"a\n1\n", NUMBER, skip_footer=5)
    assert caught.value.reason is Reason.NO_RECORDS


def test_empty_texts_in_quotes_do_not_make_a_column_of_numbers_text(write: Write) -> None:
    """Writers that put all fields in quotes write nothing as "" there."""
    found = infer_schema(write("f.csv", 'n,s\n"1","x"\n"",""\n'))
    assert found.equals(pa.schema([("n", pa.int64()), pa.field("s", pa.string(), nullable=False)]))
