"""Files are read into Arrow exactly: every value is as written, and every fault is named by file, line and
column."""

from __future__ import annotations

import datetime as dt
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.loading.refusals import because
from tests.support.shared_data import shared_data  # noqa: F401 -- a fixture
from txn_engine.calendar import FIRST_DAY, LAST_DAY
from txn_engine.cli.record_text import Csv, JsonLines, LateFile
from txn_engine.demo.sample import write_sample
from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.files import BadRow, read_records
from txn_engine.files.kinds import calendar_of
from txn_engine.reasons import Reason

Write = Callable[..., Path]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(18, 2), nullable=False),
        pa.field("day", pa.date32()),
        pa.field("note", pa.string()),
    ]
)
HEADER = "id,amount,day,note\n"


def table(path: Path, schema: pa.Schema = SCHEMA, **options: object) -> pa.Table:
    return pa.Table.from_batches(list(read_records(path, schema, **options)), schema)


def refused(path: Path, schema: pa.Schema = SCHEMA, **options: object) -> TxnEngineError:
    """The error that refuses the file. Its text is one line."""
    with pytest.raises(TxnEngineError) as caught:
        table(path, schema, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def value_of(error: TxnEngineError) -> str:
    """The value that an error does not show in its text."""
    assert isinstance(error, InvalidRecordError)
    return error.value or ""


def assert_read_exactly(path: Path) -> None:
    """Every row of a file in the format of Berka's payments, its money to the cent, its empty fields null, and those in
    quotes empty texts."""
    schema = pa.schema(
        [
            ("trans_id", pa.int64()),
            ("account_id", pa.int64()),
            ("date", pa.date32()),
            ("type", pa.string()),
            ("operation", pa.string()),
            ("amount", pa.decimal128(18, 2)),
            ("balance", pa.decimal128(18, 2)),
            ("k_symbol", pa.string()),
            ("bank", pa.string()),
            ("account", pa.string()),
        ]
    )
    found = table(path, schema, delimiter=";", date_format="%y%m%d")
    lines = path.read_text().splitlines()[1:]
    assert found.num_rows == len(lines)
    cents = sum(int(line.split(";")[5].replace(".", "")) for line in lines)
    assert sum(found.column("amount").to_pylist()) == Decimal(cents).scaleb(-2)
    first, text = found.slice(0, 1).to_pylist()[0], lines[0].split(";")
    assert (f"{first['date']:%y%m%d}", text[7:9]) == (text[2], ['""', ""])
    assert (first["k_symbol"], first["bank"]) == ("", None)


def test_payments_of_the_sample_are_read_exactly(tmp_path: Path) -> None:
    """The sample has 50,000 rows."""
    write_sample(tmp_path / "trans.csv")
    assert_read_exactly(tmp_path / "trans.csv")


def test_berka_is_read_exactly(shared_data: Path) -> None:  # noqa: F811
    """All 49,102 rows of the real file."""
    assert_read_exactly(shared_data / "berka" / "trans.csv")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_marks_do_not_matter(write: Write, mark: bytes, end: str) -> None:
    """The same rows with Unix, Windows and old Mac line ends, with and without a byte order mark."""
    text = end.join(["id,amount,day,note", '1,2.50,2026-01-31,"a ""b"", c"', "2,3,,"])
    found = table(write("f.csv", mark + text.encode())).to_pylist()
    assert found == [
        {"id": 1, "amount": Decimal("2.50"), "day": dt.date(2026, 1, 31), "note": 'a "b", c'},
        {"id": 2, "amount": Decimal("3.00"), "day": None, "note": None},
    ]


def test_columns_may_come_in_any_order_and_under_other_names(write: Write) -> None:
    """Columns may have any order, and a file's own names if the caller gives them."""
    path = write("f.csv", "Note,day,sum,id\nx,,1.00,7\n")
    found = table(path, columns={"amount": "sum", "note": "Note"})
    assert found.to_pylist() == [{"id": 7, "amount": Decimal("1.00"), "day": None, "note": "x"}]


def test_what_was_read_from_a_topic_can_be_loaded(write: Write) -> None:
    """A file that was read from a topic can be loaded: the columns that reads add are ignored."""
    path = write(
        "f.csv", "id,amount,day,note,_partition,_offset,_timestamp\n1,1,,,0,5,2026-01-01T00:00:00Z\n"
    )
    assert table(path).num_rows == 1


@pytest.mark.parametrize(
    "names", [["_timestamp"], ["_topic", "_offset"], ["_topic", "_partition", "_offset"]]
)
def test_such_columns_of_somebody_elses_file_are_unknown(
    write: Write, tmp_path: Path, names: list[str]
) -> None:
    """A file that no read of a topic has made may have columns of these names: they are not dropped unsaid."""
    row = {"id": 1, "amount": "1", "day": None, "note": None} | dict.fromkeys(names, "x")
    pq.write_table(pa.Table.from_pylist([row | {"amount": Decimal(1)}]), tmp_path / "f.parquet")
    text = ",".join(row) + "\n1,1,,," + ",".join("x" for _ in names)
    for path in (write("f.csv", text), write("f.jsonl", json.dumps(row)), tmp_path / "f.parquet"):
        assert refused(path).reason is Reason.UNKNOWN_COLUMN
        assert table(path, unknown_columns="ignore").num_rows == 1


BAD_LINES: dict[str, tuple[str, Reason, str]] = {
    "3,abc,,": ("amount", Reason.BAD_DECIMAL, "'abc'"),
    "3,1.234,,": ("amount", Reason.BAD_DECIMAL, "'1.234'"),
    '3,"1,50",,': ("amount", Reason.BAD_DECIMAL, "'1,50'"),
    "3,12345678901234567,,": ("amount", Reason.BAD_DECIMAL, "'12345678901234567'"),
    "3,NaN,,": ("amount", Reason.BAD_DECIMAL, "'NaN'"),
    "3,,,": ("amount", Reason.NULL_IN_NOT_NULL, ""),
    ",1,,": ("id", Reason.NULL_IN_NOT_NULL, ""),
    "0x1F,1,,": ("id", Reason.BAD_INTEGER, "'0x1F'"),
    "1.5,1,,": ("id", Reason.BAD_INTEGER, "'1.5'"),
    "1e-1,1,,": ("id", Reason.BAD_INTEGER, "'1e-1'"),
    "1e19,1,,": ("id", Reason.BAD_INTEGER, "'1e19'"),
    " 1,1,,": ("id", Reason.BAD_INTEGER, "' 1'"),
    "9223372036854775808,1,,": ("id", Reason.BAD_INTEGER, "'9223372036854775808'"),
    "3,1,2026-02-30,": ("day", Reason.BAD_DATE, "'2026-02-30'"),
    "3,1,31.01.2026,": ("day", Reason.BAD_DATE, "'31.01.2026'"),
    "3,1,": ("", Reason.TOO_FEW_FIELDS, ""),
    "3,1,,,": ("", Reason.TOO_MANY_FIELDS, ""),
    '3,1,,"open': ("", Reason.UNCLOSED_QUOTE, ""),
    '3,1,,"a"b': ("", Reason.BAD_QUOTING, ""),
}
"""Bad lines, with the column, the reason and the value that the error has."""


@pytest.mark.parametrize("line", BAD_LINES)
@pytest.mark.parametrize("after", ["", "\n4,4.00,,\n"])
def test_a_bad_line_is_named(write: Write, line: str, after: str) -> None:
    """The error has the file, the line, the column and the value, wherever in the file the line stands."""
    column, reason, value = BAD_LINES[line]
    path = write("bad.csv", f'{HEADER}1,1.00,,"on two\nlines"\n\n{line}{after}')
    error = refused(path)
    assert (error.reason, value_of(error), error.place) == (reason, value, f"{path} line 5")
    assert error.seen.startswith(column)


def test_a_bad_value_far_down_is_found(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several bad values in a later batch the first one is named with its own line, and the batches before
    it are whole."""
    monkeypatch.setattr("txn_engine.files.text.BATCH_ROWS", 100)
    rows = [f"{i},1.00,," for i in range(1_000)]
    rows[777] = "777,bad,,"
    rows[778] = "x,1,,"
    records = read_records(write("bad.csv", HEADER + "\n".join(rows)), SCHEMA)
    assert sum(next(records).num_rows for _ in range(7)) == 700
    with pytest.raises(InvalidRecordError, check=because(Reason.BAD_DECIMAL, "line 779")):
        next(records)


@pytest.mark.parametrize(
    ("text", "reason", "value"),
    [
        ("", Reason.NO_RECORDS, ""),
        ("\n\n", Reason.NO_RECORDS, ""),
        (HEADER, Reason.NO_RECORDS, ""),
        ("id,amount,note\n1,1,\n", Reason.MISSING_COLUMN, ""),
        ("id,amount,day,note,extra\n1,1,,,\n", Reason.UNKNOWN_COLUMN, ""),
        ("id,amount,day,Note\n1,1,,\n", Reason.MISSING_COLUMN, "'Note'"),
        ("id,amount,day,note,id\n1,1,,,2\n", Reason.DUPLICATE_COLUMN, ""),
        ("1,2,x\n", Reason.MISSING_COLUMN, "'1', '2', 'x'"),
        ("x,x\n", Reason.DUPLICATE_COLUMN, "'x'"),
        (b"id,amount,day,note\n1,1.00,,caf\xe9\n", Reason.BAD_ENCODING, "0xe9"),
        (b"\xff\xfei\x00d\x00", Reason.BAD_ENCODING, "0xff"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    write: Write, text: str | bytes, reason: Reason, value: str
) -> None:
    """A file that is empty, has no rows, has other columns or is not UTF-8 is refused by its name."""
    path = write("bad.csv", text)
    error = refused(path)
    assert (error.reason, value_of(error)) == (reason, value)
    assert (error.place or "").startswith(str(path))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("id,amount,day,note,__index_level_0__\n1,1,,,\n", "'__index_level_0__'"),
        ("id,amount,day,note,id\n1,1,,,2\n", "'id'"),
    ],
)
def test_a_column_of_the_file_is_named(write: Write, text: str, name: str) -> None:
    """An unknown column, and one that is there twice, is named if all other columns show that the line is a
    header."""
    assert name in (refused(write("bad.csv", text)).seen or "")


def test_an_unknown_column_of_parquet_is_named(tmp_path: Path) -> None:
    """Pandas writes its index as a column, whose name is in the error."""
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"x": [1], "__index_level_0__": [0]}), path)
    error = refused(path, pa.schema([("x", pa.int64())]))
    assert (error.reason, error.value if isinstance(error, InvalidRecordError) else "") == (
        Reason.UNKNOWN_COLUMN,
        None,
    )
    assert "'__index_level_0__'" in error.seen
    assert "--unknown-columns ignore" in (error.action or "")


@pytest.mark.parametrize("header", ["id;amount;day;note", '"id";"amount";"day";"note"'])
def test_a_refusal_names_the_delimiter_that_the_file_seems_to_have(write: Write, header: str) -> None:
    """If the header looks like one field with semicolons, the error names that delimiter."""
    error = refused(write("bad.csv", f"{header}\n1;1;;\n"))
    assert error.reason in (Reason.MISSING_COLUMN, Reason.BAD_QUOTING)
    assert "';'" in (error.action or "")


def test_what_a_refusal_says(write: Write) -> None:
    """A refusal says the column, the place, the expected form and what to do. It shows the value only to
    those who may see the data."""
    path = write("bad.csv", f"{HEADER}3,abc,,\n")
    error = refused(path)
    assert isinstance(error, InvalidRecordError)
    rest = (
        f" (at {path} line 2); expected decimal(18,2), at most 16 digits before the point and 2 after it;"
        " mend the file and load it again [INVALID_RECORD]"
    )
    assert str(error) == f"load: amount does not fit{rest}"
    assert error.with_value() == f"load: amount does not fit: 'abc'{rest}"


def test_the_line_of_a_byte_that_is_no_utf8_is_named(write: Write) -> None:
    """The line of a byte that is not UTF-8 is named, although text is decoded in large pieces."""
    path = write("bad.csv", HEADER.encode() + b"1,1,,x\n" * 50_000 + b"2,1,,\xe9\n" + b"3,1,,x\n" * 10)
    assert refused(path).place == f"{path} line 50002"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.csv", Reason.FILE_UNREADABLE),
        ("folder", Reason.UNKNOWN_FORMAT),
        ("x.xls", Reason.UNKNOWN_FORMAT),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str, reason: Reason) -> None:
    """The file does not exist, or its format is unknown."""
    with pytest.raises(InvalidRequestError, check=because(reason, name)):
        table(tmp_path / name)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder in the place of a file is refused in every format."""
    for name in ("d.csv", "d.jsonl", "d.parquet"):
        (tmp_path / name).mkdir()
        assert refused(tmp_path / name).reason is Reason.FILE_UNREADABLE


def test_dates_follow_the_format_strictly(write: Write) -> None:
    """A date with a missing digit is an error, and never another day."""
    schema = pa.schema([("day", pa.date32())])
    good = table(write("g.csv", "day\n930101\n000229\n"), schema, date_format="%y%m%d").to_pylist()
    assert [row["day"] for row in good] == [dt.date(1993, 1, 1), dt.date(2000, 2, 29)]
    for text in ("93011", "930230", "1993-01-01", "930101 ", "93010"):
        error = refused(write("b.csv", f"day\n{text}\n"), schema, date_format="%y%m%d")
        assert error.reason is Reason.BAD_DATE
        assert "'%y%m%d'" in (error.expected or "")
    loose = table(write("l.csv", "day\n1.2.2026\n"), schema, date_format="%d.%m.%Y").to_pylist()
    assert loose == [{"day": dt.date(2026, 2, 1)}]


def test_times_keep_their_zone(write: Write) -> None:
    """A column in UTC needs a zone in the text, a column without a zone may not have one, and no digits are
    cut off."""
    zoned = pa.schema([("at", pa.timestamp("ms", tz="UTC"))])
    plain = pa.schema([("at", pa.timestamp("ms"))])
    good = write("g.csv", "at\n2026-01-31T10:00:00.123+02:00\n")
    assert table(good, zoned).to_pylist()[0]["at"] == dt.datetime(2026, 1, 31, 8, 0, 0, 123_000, dt.UTC)
    assert refused(good, plain).reason is Reason.BAD_DATETIME
    bare = write("b.csv", "at\n2026-01-31 10:00:00\n")
    assert table(bare, plain).to_pylist()[0]["at"] == dt.datetime(2026, 1, 31, 10)  # noqa: DTZ001 -- without a zone
    assert refused(bare, zoned).reason is Reason.BAD_DATETIME
    finer = write("f.csv", "at\n2026-01-31T10:00:00.123456Z\n")
    assert refused(finer, zoned).reason is Reason.BAD_DATETIME
    assert refused(bare, zoned, date_format="%Y-%m-%d %H:%M:%S").reason is Reason.BAD_DATETIME


def test_other_types(write: Write) -> None:
    """Floats, booleans, binary and small integers are read exactly. A number that a float cannot hold is
    refused."""
    schema = pa.schema(
        [
            ("f", pa.float64()),
            ("b", pa.bool_()),
            ("i", pa.int32()),
            ("x", pa.binary()),
            ("s", pa.large_string()),
        ]
    )
    found = table(write("g.csv", "f,b,i,x,s\n1.5,true,+7,é,t\n-inf,FALSE,-1,,\n"), schema).to_pylist()
    assert found[0] == {"f": 1.5, "b": True, "i": 7, "x": "é".encode(), "s": "t"}
    assert found[1]["f"] == float("-inf")
    for row, reason, value in (
        ("1e400,true,1,,", Reason.BAD_FLOAT, "'1e400'"),
        ("1,true,3000000000,,", Reason.BAD_INTEGER, "'3000000000'"),
        ("1,yes,1,,", Reason.BAD_BOOLEAN, "'yes'"),
    ):
        error = refused(write("b.csv", f"f,b,i,x,s\n{row}\n"), schema)
        assert (error.reason, value_of(error)) == (reason, value)
    binary = pa.schema([("x", pa.binary())])
    assert table(write("g.csv", "x\nAP8=\n"), binary, binary="base64").to_pylist() == [{"x": b"\x00\xff"}]
    error = refused(write("b.csv", "x\n?\n"), binary, binary="base64")
    assert (error.reason, error.expected) == (Reason.BAD_BINARY, "base64")


def test_empty_fields(write: Write) -> None:
    """An empty field without quotes is null if the column is nullable, and the empty string in other string
    columns. Other words for null can be set. In quotes they are texts, except in columns that hold no text."""
    fields = [
        pa.field("a", pa.string(), nullable=False),
        pa.field("b", pa.string()),
        pa.field("n", pa.int8()),
    ]
    path = write("g.csv", 'a,b,n\n,,\n"",NULL,""\n"","",""\n')
    for null_values, b in (
        (("",), [None, "NULL", ""]),
        (("", "NULL"), [None, None, ""]),
    ):
        found = table(path, pa.schema(fields), null_values=null_values)
        assert found.to_pydict() == {"a": ["", "", ""], "b": b, "n": [None, None, None]}
    path = write("g.csv", 'a,b\n,\n"",NULL\n,"NULL"\n')
    for null_values, b in ((("NULL",), ["", None, "NULL"]), ((), ["", "NULL", "NULL"])):
        found = table(path, pa.schema(fields[:2]), null_values=null_values)
        assert found.to_pydict() == {"a": ["", "", ""], "b": b}


def test_a_csv_for_kafkas_schema(write: Write) -> None:
    """A csv for Kafka's schema has key and value as text. The headers, which csv cannot have, may be missing
    and are null."""
    from txn_engine.log.topics import KAFKA_SCHEMA

    found = table(write("g.csv", "key,value\nk,v\n"), KAFKA_SCHEMA).to_pylist()
    assert found == [{"key": b"k", "value": b"v", "headers": None}]
    error = refused(write("b.csv", "key,value,headers\nk,v,h\n"), KAFKA_SCHEMA)
    assert error.reason is Reason.UNSUPPORTED_TYPE


# --- jsonl ------------------------------------------------------------------------------------------------


def test_jsonl_is_exact(write: Write) -> None:
    """JSON numbers keep all digits, as numbers or strings, and a nullable column may be missing."""
    lines = [
        {"id": 1, "amount": "0.10", "day": "2026-01-31", "note": "é"},
        '{"id": "9223372036854775807", "amount": 1234567890123456.78}',
        '{"id": 3, "amount": -1E+2, "note": null, "_partition": 0, "_offset": 3, "_timestamp": "x"}',
    ]
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    assert table(write("g.jsonl", text)).to_pylist() == [
        {"id": 1, "amount": Decimal("0.10"), "day": dt.date(2026, 1, 31), "note": "é"},
        {"id": 2**63 - 1, "amount": Decimal("1234567890123456.78"), "day": None, "note": None},
        {"id": 3, "amount": Decimal(-100), "day": None, "note": None},
    ]


@pytest.mark.parametrize(
    ("line", "reason", "value"),
    [
        ('{"id": 1, "amount": 1', Reason.BAD_JSON, ""),
        ('[{"id": 1}]', Reason.NOT_A_JSON_OBJECT, "[{'id'"),
        ("7", Reason.NOT_A_JSON_OBJECT, "7"),
        ('{"id": 1, "amount": 1.234}', Reason.BAD_DECIMAL, "'1.234'"),
        ('{"id": 1.5, "amount": 1}', Reason.BAD_INTEGER, "'1.5'"),
        ('{"id": true, "amount": 1}', Reason.BAD_INTEGER, "True"),
        ('{"id": 1, "amount": NaN}', Reason.BAD_JSON, ""),
        ('{"id": 1, "amount": 1, "id": 2}', Reason.BAD_JSON, ""),
        ('{"id": 1}', Reason.MISSING_COLUMN, ""),
        ('{"id": 1, "amount": null}', Reason.NULL_IN_NOT_NULL, ""),
        ('{"id": 1, "amount": 1, "more": 2}', Reason.UNKNOWN_COLUMN, "'more'"),
        ('{"id": 1, "amount": 1, "note": 5}', Reason.BAD_STRING, "5"),
        ('{"id": 1, "amount": 1, "day": 20260131}', Reason.BAD_DATE, "20260131"),
        ('{"id": 1, "amount": 1, "note": "\\ud800"}', Reason.BAD_STRING, "'\\ud800"),
        ("[" * 100_000, Reason.BAD_JSON, ""),
        ('{"id": ' + "9" * 5_000 + ', "amount": 1}', Reason.BAD_INTEGER, "'9999"),
    ],
)
def test_a_bad_json_line_is_named(write: Write, line: str, reason: Reason, value: str) -> None:
    """The error has the line's number, the reason, and the value in an attribute of its own."""
    path = write("bad.jsonl", f'{{"id": 1, "amount": 1}}\n\n{line}\n')
    error = refused(path)
    assert error.reason is reason
    assert value_of(error).startswith(value) if value else not value_of(error)
    assert (error.place or "").startswith(f"{path} line 3")


def test_jsonl_holds_nested_values(write: Write) -> None:
    """Kafka's headers are read from JSON. Invalid ones are named by their line."""
    from txn_engine.log.topics import KAFKA_SCHEMA

    good = write("g.jsonl", '{"key": "k", "value": "v", "headers": [{"key": "h", "value": "x"}]}\n')
    assert table(good, KAFKA_SCHEMA).to_pylist() == [
        {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"x"}]}
    ]
    for headers in ('{"key": "h"}', "[5]", '[{"kee": "h"}]', '[{"key": 5}]'):
        path = write("b.jsonl", f'{{"key": "k", "value": "v", "headers": {headers}}}\n')
        error = refused(path, KAFKA_SCHEMA)
        assert (error.reason, error.place) == (Reason.BAD_NESTED_VALUE, f"{path} line 1")


# --- parquet ----------------------------------------------------------------------------------------------


def test_parquet_of_other_but_fitting_types(tmp_path: Path) -> None:
    """Parquet columns of other types are converted if every value fits exactly: whole numbers to decimals,
    other widths, dictionaries."""
    path = tmp_path / "g.parquet"
    source = pa.table(
        {
            "note": pa.array(["x", None]).dictionary_encode(),
            "id": pa.array([1, 2], pa.int32()),
            "amount": pa.array([Decimal("1.500"), Decimal(2)], pa.decimal128(10, 3)),
            "day": pa.array([dt.date(2026, 1, 1), None], pa.date64()),
            **dict.fromkeys(("_topic", "_partition", "_offset", "_timestamp"), pa.array([0, 1])),
        }
    )
    pq.write_table(source, path)
    assert table(path).to_pylist() == [
        {"id": 1, "amount": Decimal("1.50"), "day": dt.date(2026, 1, 1), "note": "x"},
        {"id": 2, "amount": Decimal("2.00"), "day": None, "note": None},
    ]


@pytest.mark.parametrize(
    ("column", "values", "reason", "value"),
    [
        ("amount", pa.array([1.5, 2.5]), Reason.TYPE_MISMATCH, "double"),
        ("amount", pa.array([Decimal("1.500"), Decimal("1.005")]), Reason.BAD_DECIMAL, "'1.005'"),
        ("amount", pa.array([Decimal("1.50"), None]), Reason.NULL_IN_NOT_NULL, ""),
        ("id", pa.array(["1", "2"]), Reason.TYPE_MISMATCH, "string"),
        ("day", pa.array(["2026-01-01"] * 2).cast(pa.timestamp("us")), Reason.TYPE_MISMATCH, "timestamp[us]"),
    ],
)
def test_a_parquet_column_that_does_not_fit_is_named(
    tmp_path: Path, column: str, values: pa.Array, reason: Reason, value: str
) -> None:
    """The error has the column's type, or the row of the first value that does not fit."""
    path = tmp_path / "bad.parquet"
    plain = {"id": pa.array([1, 2]), "amount": pa.array([1, 2]), "day": pa.nulls(2, pa.date32())}
    pq.write_table(pa.table(plain | {"note": pa.array(["a", "b"])} | {column: values}), path)
    error = refused(path)
    assert (error.reason, value_of(error)) == (reason, value)
    assert column in error.seen
    assert error.place == (str(path) if reason is Reason.TYPE_MISMATCH else f"{path} row 2")


def test_parquet_as_others_write_it(tmp_path: Path) -> None:
    """Parquet files of other writers are read: text in encodings without dictionaries, also after rows with
    one, and 96-bit times, in several row groups."""
    count = 40_000
    path = tmp_path / "g.parquet"
    given = pa.table(
        {
            "text": [f"{number:05}" for number in range(count)],
            "at": pa.array(range(count), pa.timestamp("us")),
        }
    )
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        pq.write_table(given, path, use_dictionary=False, column_encoding={"text": encoding, "at": "PLAIN"})
        assert table(path, given.schema).equals(given)
    duckdb.sql(
        f"""COPY (SELECT CASE WHEN i < 40960 THEN 'x' ELSE i || 'x' END AS text FROM range(2 * {count}) AS r(i))
            TO '{path}' (PARQUET_VERSION v2, ROW_GROUP_SIZE 40960)"""
    )
    encodings = [pq.read_metadata(path).row_group(at).column(0).encodings for at in (0, 1)]
    assert ["DELTA" in str(each) for each in encodings] == [False, True]
    found = table(path, pa.schema([("text", pa.string())])).column("text").to_pylist()
    assert found == ["x" if number < 40_960 else f"{number}x" for number in range(2 * count)]
    for rows in (1_000, 7_777, 35_000):
        pq.write_table(given, path, row_group_size=rows, use_deprecated_int96_timestamps=True)
        assert table(path, given.schema).equals(given)


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    """A Parquet file that is cut short, is not Parquet, or has no rows is refused."""
    path = tmp_path / "p.parquet"
    whole = pa.table({"id": [1], "amount": pa.array([Decimal("1.00")]), "day": [None], "note": ["x"]})
    pq.write_table(whole.cast(SCHEMA), path)
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    assert refused(path).reason is Reason.DAMAGED_FILE
    path.write_bytes(b"")
    assert refused(path).reason is Reason.DAMAGED_FILE
    path.write_bytes(data[:-4] + b"PARE")
    assert refused(path).reason is Reason.DAMAGED_FILE
    pq.write_table(SCHEMA.empty_table(), path)
    assert refused(path).reason is Reason.NO_RECORDS


@pytest.mark.parametrize("place", ["of a column", "inside a column"])
def test_a_parquet_column_whose_name_is_no_utf8(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """If a Parquet column's name is not UTF-8, the error names the file and shows nothing of the name."""
    path = tmp_path / "named.parquet"
    values = pa.table({"NAME": [1]} if place == "of a column" else {"id": [{"NAME": 1}]})
    pq.write_table(values, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"NAME", SECRET[:2].encode() + b"\xff\xfe"))
    with pytest.raises(InvalidRecordError, check=because(Reason.BAD_ENCODING)) as caught:
        table(path)
    _judge_told(caught.value, str(path), caplog, secret="\\xff")


def test_progress_reaches_the_files_size(write: Write, tmp_path: Path) -> None:
    """Progress reaches the file's size in every format, and never exceeds it."""
    rows = 40_000
    csv = write("g.csv", HEADER + "1,1.00,,\n" * rows)
    jsonl = write("g.jsonl", '{"id": 1, "amount": 1}\n' * rows)
    parquet = tmp_path / "g.parquet"
    pq.write_table(table(csv), parquet)
    for path in (csv, jsonl, parquet):
        seen: list[int] = []
        assert sum(batch.num_rows for batch in read_records(path, SCHEMA, progress=seen.append)) == rows
        assert seen == sorted(seen)
        assert seen[-1] == path.stat().st_size


@pytest.mark.parametrize(
    "text",
    [
        *(
            "0000-01-01",
            "10000-01-01",
            "+2026-01-01",
            "-0000-01-01",
            "+10000-02-30",
            "+10001-02-29",
            "+10000-1-1",
        ),
        *("-2000-01-01x", "+999999999999-01-01", "+10000", "+", "+-10000-01-01"),
    ],
)
def test_a_year_that_is_not_written_so(tmp_path: Path, text: str) -> None:
    """Years before 1 and after 9999 need a sign, and others have none."""
    path = tmp_path / "days.csv"
    path.write_text(f"day\n{text}\n")
    with pytest.raises(InvalidRecordError, check=because(Reason.BAD_DATE, "line 2")):
        list(read_records(path, pa.schema([("day", pa.date32())])))


MICROS = (2**63 - 1) // 1_000 * 1_000


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.date32(), -(2**31), 2**31 - 1),
        (pa.date64(), -106_751_991_167 * 86_400_000, 106_751_991_167 * 86_400_000),
        (pa.timestamp("us"), -MICROS, 2**63 - 1),
        (pa.timestamp("us", "UTC"), -MICROS, 2**63 - 1),
        (pa.timestamp("ms", "UTC"), -(2**63), 2**63 - 1),
        (pa.timestamp("s"), -(2**53), 2**53),
    ],
)
def test_years_outside_of_the_calendar_come_back(
    write: Write, kind: Any, first: int, last: int, suffix: str
) -> None:
    """Files that `consume` writes have such years with their sign, as ISO 8601 does, and are read back exactly."""
    step = len(calendar_of(kind)) // (LAST_DAY + 1 - FIRST_DAY)
    near = [(day + 1) * step - (0 if pa.types.is_date(kind) else 1) for day in (LAST_DAY, FIRST_DAY - 2)]
    days = [count for year in range(-12_000, 12_000, 397) for count in (year * 366 * step,)]
    counts = pa.array([first, None, *near, 0, *days, last], pa.int32() if kind == pa.date32() else pa.int64())
    whole = pa.table({"id": pa.array(range(len(counts))), "c": counts.cast(kind)})
    path = write(f"f.{suffix}", "")
    stream = LateFile(path)
    writer = Csv(stream, "text") if suffix == "csv" else JsonLines(stream, "text")
    writer.write(whole)
    writer.close()
    stream.close()
    found = pa.Table.from_batches(read_records(path, whole.schema))
    assert found.equals(whole)


def test_a_year_with_a_sign_beside_a_bad_row(write: Write) -> None:
    """It is not taken for a bad row."""
    bad = list[BadRow]()
    path = write("f.csv", "day\n" + "+10000-01-01\nx\n-0001-12-31\n2026-02-30\n" * 20)
    read = read_records(path, pa.schema([("day", pa.date32())]), rejected=bad.extend)
    assert sum(batch.num_rows for batch in read) == 40
    assert [row.line for row in bad] == list(range(3, 82, 2))


BEYOND = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
WITHIN = ["0001-01-01T14:00:00+14:00", "9999-12-31T09:59:59-14:00"]


def _in_each_format(write: Write, text: str) -> list[tuple[Path, pa.Schema, dict[str, str]]]:
    moment = pa.timestamp("ms", "UTC")
    plain, nested = pa.schema([("at", moment)]), pa.schema([("at", pa.list_(moment))])
    return [
        (write("g.csv", f"at\n{text}\n"), plain, {}),
        (write("z.csv", f"at\n{text[:19]} {text[19:]}\n"), plain, {"date_format": "%Y-%m-%dT%H:%M:%S %z"}),
        (write("g.jsonl", f'\n{{"at": "{text}"}}\n'), plain, {}),
        (write("n.jsonl", f'\n{{"at": ["{text}"]}}\n'), nested, {}),
    ]


@pytest.mark.parametrize("text", BEYOND)
def test_a_year_that_only_its_zone_puts_outside(write: Write, text: str) -> None:
    """A time is judged in UTC in every format, so one that only its zone puts outside of the years is
    refused."""
    for path, schema, options in _in_each_format(write, text):
        error = refused(path, schema, **options)
        assert error.place == f"{path} line 2"
        assert text[:19] in value_of(error)


@pytest.mark.parametrize(("text", "year"), [(WITHIN[0], 1), (WITHIN[1], 9999)])
def test_the_first_and_the_last_moments_are_taken(write: Write, text: str, year: int) -> None:
    """The first and the last possible moments are accepted, also if the date format has a zone (`%z`)."""
    for path, schema, options in _in_each_format(write, text):
        (found,) = table(path, schema, **options).column(0).to_pylist()
        assert (found[0] if isinstance(found, list) else found).year == year


@pytest.mark.parametrize("text", ["\uff12\uff10\uff12\uff16-01-01", "2026-01-0\u0661", "2026-0\u06f1-01"])
def test_digits_of_another_script_are_no_digits(write: Write, text: str) -> None:
    """Digits of another script are refused in dates, with and without a date format."""
    path = write("day.csv", f"day\n{text}\n")
    for options in ({}, {"date_format": "%Y-%m-%d"}):
        error = refused(path, pa.schema([("day", pa.date32())]), **options)
        assert (error.reason, error.place) == (Reason.BAD_DATE, f"{path} line 2")


@pytest.mark.parametrize("date_format", ["%H%M%S", "%y%y%y", "%d"])
def test_a_date_format_that_names_no_day(tmp_path: Path, date_format: str) -> None:
    """An invalid date format, or one without year, month and day, is refused before the file is read."""
    path = tmp_path / "days.csv"
    path.write_text("day\n200101\n")
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)):
        list(read_records(path, pa.schema([("day", pa.date32())]), date_format=date_format))


# --- what an error may say --------------------------------------------------------------------------------

SECRET = "hunter2"
QUOTING = {
    "cell.csv": f"{HEADER}1,{SECRET},,\n",
    "header.csv": f"id ,{SECRET}\n1,1\n",
    "doubled.csv": f"{SECRET},{SECRET}\n1,1\n",
    "only.csv": f"{SECRET}\n",
    "quote.csv": f'{HEADER}1,1,,"{SECRET}\n',
    "fields.csv": f"{HEADER}{SECRET}\n",
    "day.csv": f"{HEADER}1,1,{SECRET},\n",
    "bytes.csv": HEADER.encode() + SECRET.encode() + b"\xff\n",
    "cell.jsonl": f'{{"id": 1, "amount": "{SECRET}"}}\n',
    "key.jsonl": f'{{"id": 1, "amount": 1, "{SECRET}": 2}}\n',
    "cut.jsonl": f'{{"id": "{SECRET}\n',
    "string.jsonl": f'"{SECRET}"\n',
    "surrogate.jsonl": f'{{"id": 1, "amount": 1, "note": "{SECRET}\\ud800"}}\n',
}


@pytest.mark.parametrize("name", QUOTING)
def test_no_error_quotes_the_file(write: Write, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """No cell, key or header that may be a row is in an error's text, repr, traceback, pickle or log. Only the
    attribute `value` has it."""
    path = write(name, QUOTING[name])
    with pytest.raises(InvalidRecordError) as caught:
        table(path)
    _judge_told(caught.value, str(path), caplog)


def test_no_error_quotes_a_parquet_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No error shows a value of a Parquet file."""
    path = tmp_path / "p.parquet"
    plain = {"id": [1], "amount": [Decimal("13.37001")], "day": pa.nulls(1, pa.date32()), "note": ["a"]}
    pq.write_table(pa.table(plain), path)
    with pytest.raises(InvalidRecordError) as caught:
        table(path)
    assert caught.value.value == "'13.37001'"
    _judge_told(caught.value, str(path), caplog, secret="13.37")


def _judge_told(
    error: InvalidRecordError, place: str, caplog: pytest.LogCaptureFixture, secret: str = SECRET
) -> None:
    logging.getLogger("load").error("failed", exc_info=error)
    copy = pickle.loads(pickle.dumps(error))
    told = [str(error), repr(error), caplog.text, repr(pickle.dumps(error)), str(copy), str(vars(copy))]
    told += traceback.format_exception(error)
    assert secret not in "".join(told)
    assert place in str(error.place)
