"""A row that cannot be used is named with its line and the others are read. Some faults concern the whole
file."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.loading.refusals import because
from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.files import BadRow, files_named, read_records
from txn_engine.files.days import begin_without_a_day
from txn_engine.files.numbers import chars, have_others
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


def read(
    source: Any, schema: pa.Schema = SCHEMA, **options: Any
) -> tuple[list[dict[str, Any]], list[BadRow]]:
    """The rows that can be used, and the bad ones."""
    bad: list[BadRow] = []
    batches = list(read_records(source, schema, rejected=bad.extend, **options))
    return [row for batch in batches for row in batch.to_pylist()], bad


@pytest.mark.parametrize("char", ["\x1c", "\x0b", "\x0c", "\x85", "\xa0", "\u2028"])
def test_what_unicode_calls_white_space_is_no_blank_line(tmp_path: Path, char: str) -> None:
    """A line of JSON lines is blank where it has JSON's own white space alone. Any other line is a row."""
    path = tmp_path / "a.jsonl"
    path.write_text(
        f'{{"id": 1, "amount": 1, "day": null, "note": null}}\n{char}\n \t\n', encoding="utf-8", newline=""
    )
    found, bad = read(path)
    assert ([row["id"] for row in found], [row.line for row in bad]) == ([1], [2])


def test_a_bad_row_does_not_spoil_the_next(tmp_path: Path) -> None:
    """A row with wrong quotes and undecodable bytes is bad, and the row after it is still a record."""
    path = tmp_path / "a.csv"
    path.write_bytes(HEADER.encode() + b'1,1,,"a\nb\xff"c\n2,1,,d\n')
    found, bad = read(path)
    assert [row["id"] for row in found] == [2]
    assert [(row.line, row.error.reason) for row in bad] == [(2, Reason.BAD_QUOTING)]


BAD = {
    "3,abc,,": Reason.BAD_DECIMAL,
    "3,1.234,,": Reason.BAD_DECIMAL,
    ",1,,": Reason.NULL_IN_NOT_NULL,
    "3,,,": Reason.NULL_IN_NOT_NULL,
    "9223372036854775808,1,,": Reason.BAD_INTEGER,
    "3,1,2026-02-30,": Reason.BAD_DATE,
    "3,1,tomorrow,": Reason.BAD_DATE,
    "3,1,": Reason.TOO_FEW_FIELDS,
    "3,1,,,": Reason.TOO_MANY_FIELDS,
    '3,1,,"a"b': Reason.BAD_QUOTING,
    "id,amount,day,note": Reason.REPEATED_HEADER,
    '3,"1\n2",,': Reason.BAD_DECIMAL,
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_row_of_csv_is_handed_over_and_the_others_are_read(write: Write, text: str) -> None:
    """A bad row of csv is returned with its first line, and with its columns or its bytes. The others are
    read."""
    path = write("f.csv", f'{HEADER}1,1.00,,"on two\nlines"\n\n{text}\n4,4.00,2026-01-31,x\n')
    rows, (bad,) = read(path)
    assert [row["id"] for row in rows] == [1, 4]
    assert (bad.line, bad.error.reason) == (5, BAD[text])
    assert bad.error.place == f"{path} line 5"
    if bad.columns is None:
        assert bad.raw == f"{text}\n".encode()
    else:
        assert bad.raw is None
        shown = f'"{text.split(",")[0]}"' if text.split(",")[0] else "null"
        assert f'"id": {shown}' in bad.columns


def test_bytes_that_are_no_text_are_one_bad_row(write: Write) -> None:
    """A row with bytes that are not text is one bad row with those bytes, wherever it is in a large file. The
    next row is read."""
    good = b"1,1,,x\n" * 50_000
    path = write("f.csv", HEADER.encode() + good + b'2,1,,"\n\xe9"\n3,1,,\xc3\xa9\n')
    rows, (bad,) = read(path)
    assert (len(rows), rows[-1]["note"]) == (50_001, "é")
    assert (bad.line, bad.raw) == (50_002, b'2,1,,"\n\xe9"\n')
    assert (bad.error.reason, bad.error.place) == (Reason.BAD_ENCODING, f"{path} line 50003")


@pytest.mark.parametrize(
    "line",
    [
        '{"id": 1, "amount": 1',
        "[]",
        '{"id": 1, "amount": 1.234}',
        '{"id": true, "amount": 1}',
        '{"id": 1}',
        '{"id": 1, "amount": null}',
        '{"id": 1, "amount": 1, "more": 2}',
        '{"id": 1, "amount": 1, "note": "\\ud800"}',
        '{"id": 1, "amount": 1, "amount": 2}',
    ],
)
def test_a_bad_line_of_json_is_handed_over(write: Write, line: str) -> None:
    """A bad line of JSON is returned as JSON if it is an object, and otherwise as bytes."""
    rows, (bad,) = read(write("f.jsonl", f'{{"id": 1, "amount": 1}}\n{line}\n{{"id": 2, "amount": 2}}\n'))
    assert [row["id"] for row in rows] == [1, 2]
    assert bad.line == 2
    assert (bad.columns or (bad.raw or b"").decode()).strip() == line


def test_nested_values_of_json(write: Write) -> None:
    """A bad nested value of JSON makes only its own row bad."""
    schema = pa.schema([("x", pa.list_(pa.struct([("a", pa.int64())])))])
    rows, (bad,) = read(write("f.jsonl", '{"x": [{"a": 1}]}\n{"x": [{"a": "b"}]}\n{"x": null}\n'), schema)
    assert [row["x"] for row in rows] == [[{"a": 1}], None]
    assert (bad.line, bad.columns) == (2, '{"x": [{"a": "b"}]}')


@pytest.mark.parametrize(
    ("kind", "good", "value", "bad"),
    [
        (pa.struct([pa.field("a", pa.int64(), nullable=False)]), '{"a": 1}', {"a": 1}, ["{}", '{"a": null}']),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), "[1]", [1], ["[null]", "[1, null]"]),
        (pa.list_(pa.int64(), 2), "[1, null]", [1, None], ["[1]", "[1, 2, 3]"]),
        (
            pa.map_(pa.string(), pa.int64()),
            '{"a": 1, "b": null}',
            [("a", 1), ("b", None)],
            ['{"a": "x"}', '{"a": 1, "a": 2}', '[["a", 1], ["a", 2]]', '[["a"]]', "[[null, 1]]", '"a"'],
        ),
        (pa.map_(pa.int64(), pa.string()), '[[1, "x"]]', [(1, "x")], ['{"1": "x"}', '[["x", "y"]]']),
    ],
)
def test_what_is_inside_of_json(
    write: Write, kind: pa.DataType, good: str, value: Any, bad: list[str]
) -> None:
    """Nested JSON values may not be null if the type does not allow it, a fixed list needs all its items, and
    a map is an object or pairs."""
    schema = pa.schema([("x", kind)])
    rows, found = read(
        write("f.jsonl", "".join(f'{{"x": {text}}}\n' for text in [good, *bad, "null"])), schema
    )
    assert [row["x"] for row in rows] == [value, None]
    assert [row.line for row in found] == list(range(2, len(bad) + 2))


def test_one_fault_of_json_has_one_reason(write: Write) -> None:
    """A fault of JSON has one reason wherever on its line it is. Only the place differs."""
    path = write("f.jsonl", "".join('{"id": 1, "note": "' + "x" * size + '" bad}\n' for size in range(50)))
    _, bad = read(path)
    assert len({row.error.seen for row in bad}) == 1
    assert bad[2].error.place == f"{path} line 3 character 24"


def test_a_value_that_stands_once_and_is_meant_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that Parquet stores once in a dictionary do not make a batch larger than the limit."""
    monkeypatch.setattr("txn_engine.files.parquet.BATCH_CHARS", 100_000)
    path, schema = (
        tmp_path / "f.parquet",
        pa.schema([("n", pa.int64()), ("s", pa.string()), ("b", pa.binary())]),
    )
    notes = pa.array(["x" * 4_000, None, "y"]).dictionary_encode()
    rows = 10_000
    table = pa.table({"n": range(rows), "s": notes.take([0, 1, 2, 0] * (rows // 4)), "b": [b"z" * 50] * rows})
    for store_schema in (True, False):
        pq.write_table(table, path, store_schema=store_schema)
        batches = list(read_records(path, schema))
        assert max(batch.nbytes for batch in batches) < 150_000
        assert pa.Table.from_batches(batches).equals(table.cast(schema))
    pq.write_table(table.cast(schema), path, use_dictionary=False, compression="zstd")
    assert max(batch.nbytes for batch in read_records(path, schema)) < 150_000


def test_bad_rows_of_parquet(tmp_path: Path) -> None:
    """A bad row of Parquet has its number, and its JSON has every digit."""
    path = tmp_path / "f.parquet"
    amounts = pa.array([Decimal("1.500"), Decimal("1.001"), None, Decimal(4)], pa.decimal128(10, 3))
    pq.write_table(
        pa.table({"id": [1, 2, 3, 4], "amount": amounts, "day": pa.nulls(4), "note": ["a"] * 4}), path
    )
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("amount"), SCHEMA.field("note")])
    rows, bad = read(path, schema, unknown_columns="ignore")
    assert [row["amount"] for row in rows] == [Decimal("1.50"), Decimal("4.00")]
    assert [row.line for row in bad] == [2, 3]
    assert bad[0].columns == '{"id": 2, "amount": "1.001", "note": "a"}'


def test_every_bad_row_of_many_is_found(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bad row is found once and in order, over many batches, even if several columns of a row are
    bad."""
    monkeypatch.setattr("txn_engine.files.text.BATCH_ROWS", 100)
    bad = {7: "x,y,z,", 8: "9999999999999999999,1,,", 150: "1,1,2026-02-30,", 151: "1,,,", 599: "1,2.999,,"}
    lines = [bad.get(number, f"{number},1.00,2026-01-01,") for number in range(600)]
    rows, found = read(write("f.csv", HEADER + "\n".join(lines)))
    assert [row["id"] for row in rows] == [number for number in range(600) if number not in bad]
    assert [row.line - 2 for row in found] == sorted(bad)
    assert found[0].error.reason is Reason.BAD_INTEGER


def test_what_lies_behind_a_null_is_no_bad_text() -> None:
    """The bytes below a null of a text column, in a slice of a longer one, do not make its row or a neighbour
    bad."""
    whole = pa.array(["y", "1", "x", "", "-2", "z3", "4"])
    texts = pc.if_else(pc.equal(whole, "x"), pa.scalar(None, pa.string()), whole)
    behind = pa.StringArray.from_buffers(7, *whole.buffers()[1:], pa.py_buffer(bytes([0b1111011])))
    for part in (texts[1:], behind[1:]):
        assert have_others(part, chars("-0123456789")).tolist() == [False, False, False, False, True, False]


def test_days_that_the_calendar_has_not_are_told_at_a_glance() -> None:
    """A quick look finds the days that the calendar does not have. It leaves text after a day, and nulls, to
    other checks."""
    texts = [
        *("2026-02-28", "2026-02-29", "2024-02-29", "1900-02-29", "2000-02-29", "2026-13-01", "2026-00-10"),
        *("2026-04-31", "2026-12-31T23:59", "2026-06-00 x", "2026-1-1", "2026-", "2026", "26-01-01", "", "x"),
        *(None, "202é-01-01", "2026-01-3é", "9999-12-31", "0000-01-01", "2026/01/01"),
    ]
    whole = pa.array(["1999-02-30", *texts, "2026-01-01"])
    bad = {"2026-02-29", "1900-02-29", "2026-13-01", "2026-00-10", "2026-04-31", "2026-06-00 x"}
    bad |= {"2026", "26-01-01", "", "x", "202é-01-01", "2026/01/01"}
    told = begin_without_a_day(whole[1:-1]).tolist()
    assert [text for text, is_bad in zip(texts, told, strict=True) if is_bad] == [
        text for text in texts if text in bad
    ]


def test_a_file_of_bad_rows_alone_is_read(write: Write) -> None:
    """A file with only bad rows, more than one batch has, is read. A file without any rows is refused."""
    rows, bad = read(write("f.csv", HEADER + "x\n" * 10_000))
    assert (rows, len(bad)) == ([], 10_000)
    assert [row.line for row in bad] == list(range(2, 10_002))
    with pytest.raises(InvalidRecordError, check=because(Reason.NO_RECORDS)):
        read(write("e.csv", HEADER))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("f.csv", HEADER + '1,1,,"open\n2,2,,\n', Reason.UNCLOSED_QUOTE),
        ("f.csv", "id;amount\n1;1\n", Reason.MISSING_COLUMN),
        ("f.csv", "id,amount,day,note,id\n1,1,,,2\n", Reason.DUPLICATE_COLUMN),
        ("f.csv", b"id,amount,day,n\xe9te\n1,1,,\n", Reason.BAD_ENCODING),
        ("f.csv.gz", gzip.compress(HEADER.encode() + b"1,1,,\n" * 100_000)[:-9], Reason.DAMAGED_FILE),
        ("f.csv.gz", HEADER, Reason.DAMAGED_FILE),
        ("f.csv.zst", HEADER, Reason.DAMAGED_FILE),
        ("f.jsonl", "", Reason.NO_RECORDS),
        ("f.parquet", b"PAR1", Reason.DAMAGED_FILE),
    ],
)
def test_a_fault_of_the_file_is_no_bad_row(
    write: Write, name: str, content: str | bytes, reason: Reason
) -> None:
    """If rows or columns cannot be recognised, the whole file is refused in one line that names it."""
    path = write(name, content)
    with pytest.raises(InvalidRecordError, check=because(reason, str(path))):
        read(path)


class Endless(io.RawIOBase):
    """Bytes without a line end, as many as the reader asks for. `given` counts them."""

    def __init__(self, begin: bytes) -> None:
        super().__init__()
        self._begin = begin
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        begin, self._begin = self._begin[: len(buffer)], self._begin[len(buffer) :]
        buffer[: len(begin)] = begin
        buffer[len(begin) :] = b"x" * (len(buffer) - len(begin))
        self.given += len(buffer)
        return len(buffer)


@pytest.mark.parametrize(
    ("known", "begin", "line"),
    [("csv", HEADER.encode(), 2), ("jsonl", b'{"id": "', 1), ("csv", HEADER.encode() + b'1,1,,"', 2)],
)
def test_one_line_without_an_end_is_refused(known: str, begin: bytes, line: int) -> None:
    """A line that is longer than any row may be is refused with its number, so memory does not grow with the
    file."""
    stream = Endless(begin)
    with pytest.raises(InvalidRecordError, check=because(Reason.ROW_TOO_LONG, f"<stdin> line {line}")):
        read(stream, format=known)
    assert stream.given < 20_000_000


def test_a_quote_that_swallows_a_large_file(write: Write) -> None:
    """An open quote is refused at the line where it begins, once more was read than any row may have."""
    path = write("f.csv", HEADER + '1,1,,"open\n' + "2,2,,a longer note to fill the lines\n" * 500_000)
    with pytest.raises(InvalidRecordError, check=because(Reason.ROW_TOO_LONG, "line 2")) as caught:
        read(path)
    assert "quote" in (caught.value.action or "")


LISTS = pa.schema([("id", pa.int64()), ("deep", pa.list_(pa.int64()))])
ONES = ",".join(["1"] * 1_000_000)


@pytest.mark.parametrize(
    "line",
    [
        f'{{"id": 1, "deep": [{ONES}]}}',
        "{" + ", ".join(['"id": 1'] * 1_000_001) + "}",
        '{"id": ' + "[" * 1_000_001 + "}",
    ],
)
def test_a_line_of_json_with_too_many_values_is_bad(write: Write, line: str) -> None:
    """Its values would take a hundred times the memory of its text; the rows around it are read."""
    path = write("f.jsonl", f'{{"id": 0, "deep": [2]}}\n{line}\n{{"id": 3, "deep": []}}\n')
    tracemalloc.start()
    try:
        found, bad = read(path, LISTS)
        assert tracemalloc.get_traced_memory()[1] < 160 << 20
    finally:
        tracemalloc.stop()
    assert found == [{"id": 0, "deep": [2]}, {"id": 3, "deep": []}]
    assert [(row.line, row.error.reason) for row in bad] == [(2, Reason.TOO_MANY_VALUES)]


def test_commas_in_a_text_are_not_values(write: Write) -> None:
    """A text of a million commas and brackets is one value."""
    text = ',[{\\"' * 400_000
    path = write("f.jsonl", f'{{"id": 1, "note": "{text}"}}\n')
    schema = pa.schema([("note", pa.string())])
    found, _ = read(path, schema, unknown_columns="ignore")
    assert [row["note"] for row in found] == [text.replace("\\", "")]


def test_lines_of_json_with_many_values_are_not_held_together(write: Write) -> None:
    """A batch ends where its lines have a million values, however few characters these have."""
    line = '{"id": 1, "deep": [' + ",".join(["1"] * 300_000) + "]}\n"
    batches = list(read_records(write("f.jsonl", line * 8), LISTS))
    assert [batch.num_rows for batch in batches] == [4, 4]


# --- forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "UTF-8", "latin-1"])
def test_encodings(write: Write, encoding: str) -> None:
    """Text in another encoding is read with every character."""
    path = write("f.csv", f"{HEADER}1,1,,Zürich\n".encode(encoding))
    assert read(path, encoding=encoding)[0][0]["note"] == "Zürich"


def test_an_encoding_that_is_none_or_does_not_fit(write: Write) -> None:
    """An unknown encoding is refused by its name, and so is a UTF-16 file that ends in the middle of a
    character."""
    for name in ("utf-9", "hex", "undefined", ""):
        with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)):
            read(write("f.csv", HEADER), encoding=name)
    cut = f"{HEADER}1,1,,x\n".encode("utf-16")[:-1]
    with pytest.raises(InvalidRecordError, check=because(Reason.BAD_ENCODING)):
        read(write("f.csv", cut), encoding="utf-16")


@pytest.mark.parametrize("form", ["f.csv", "f.jsonl"])
def test_the_line_of_bytes_that_are_no_text(write: Write, form: str) -> None:
    """The lines before them are counted, however the file is read."""
    rows = [HEADER, "1,1,,x\n", "2,2,,x\n"] if form == "f.csv" else ['{"id": 1, "amount": 1}\n'] * 3
    text = "".join(rows)
    for encoding in ("utf-16-le", "utf-16-be"):
        torn = "\ud800x".encode(encoding, "surrogatepass")
        with pytest.raises(InvalidRecordError, check=because(Reason.BAD_ENCODING)) as caught:
            read(write(form, text.encode(encoding) + torn), encoding=encoding)
        assert caught.value.seen.endswith("behind line 3")


def test_german_numbers_and_dates(write: Write) -> None:
    """Numbers may have a decimal comma, and nothing may separate thousands. Days are read by a format."""
    schema = pa.schema(
        [("a", pa.decimal128(9, 2)), ("f", pa.float64()), ("n", pa.int32()), ("d", pa.date32())]
    )
    path = write(
        "f.csv", "a;f;n;d\n1,50;-0,25;7;31.01.2026\n1.50;1;1;01.01.2026\n1.000,50;1;1;\n1;1;1,0;\n2;2;2,5;\n"
    )
    rows, bad = read(path, schema, delimiter=";", decimal=",", date_format="%d.%m.%Y")
    assert rows == [
        {"a": Decimal("1.50"), "f": -0.25, "n": 7, "d": dt.date(2026, 1, 31)},
        {"a": Decimal(1), "f": 1.0, "n": 1, "d": None},
    ]
    assert [row.line for row in bad] == [3, 4, 6]
    assert [row.error.reason for row in bad] == [Reason.BAD_DECIMAL, Reason.BAD_DECIMAL, Reason.BAD_INTEGER]
    assert "before the comma" in (bad[0].error.expected or "")


def test_json_keeps_its_own_numbers_beside_a_decimal_comma(write: Write) -> None:
    """With a decimal comma, a JSON number still has a point. Only a JSON string has the comma."""
    schema = pa.schema([("a", pa.decimal128(9, 2))])
    rows, bad = read(write("f.jsonl", '{"a": 1.5}\n{"a": "2,5"}\n{"a": "3.5"}\n'), schema, decimal=",")
    assert ([row["a"] for row in rows], [row.line for row in bad]) == (
        [Decimal("1.50"), Decimal("2.50")],
        [3],
    )


def test_other_quotes_and_none(write: Write) -> None:
    """Another quote can be set, or none, so that fields are never quoted."""
    rows, _ = read(write("f.csv", f"{HEADER}1,1,,'a,\"b'\n"), quote="'")
    assert rows[0]["note"] == 'a,"b'
    rows, _ = read(write("f.csv", f'{HEADER}1,1,,"a\n'), quote="")
    assert rows[0]["note"] == '"a'
    for options in ({"quote": "''"}, {"quote": "\n"}, {"quote": ";", "delimiter": ";"}):
        with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)):
            read(write("f.csv", HEADER), **options)


def test_without_a_header(write: Write) -> None:
    """Without a header the columns are those of the schema, or named ones, and a bad first row is a bad
    row."""
    path = write("f.csv", "x,1,,\n1,2,,a\n")
    rows, (bad,) = read(path, header=False)
    assert (rows[0]["amount"], bad.line) == (Decimal(2), 1)
    rows, _ = read(path, header=["note", "amount", "day", "id"], unknown_columns="ignore")
    assert rows == []
    with pytest.raises(InvalidRecordError, check=because(Reason.MISSING_COLUMN)):
        read(path, header=["note", "amount", "day", "it"])


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compressed_files(write: Write, kind: str) -> None:
    """Compressed files are recognised by their ending or by an option, and several streams in one file are
    one text."""
    data = pa.compress((HEADER + "1,1,,\n").encode(), kind, asbytes=True)
    if kind == "zstd":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, kind) as out:
            out.write((HEADER + "1,1,,\n").encode())
        data = sink.getvalue().to_pybytes()
    else:
        data = gzip.compress(HEADER.encode()) + gzip.compress(b"1,1,,\n")
    ending = {"gzip": "csv.gz", "zstd": "CSV.zst"}[kind]
    assert len(read(write(f"f.{ending}", data))[0]) == 1
    assert len(read(write("f.data", data), format="csv", compression=kind)[0]) == 1


def test_a_stream(write: Write) -> None:
    """A stream like stdin needs its format, and cannot be Parquet."""
    assert len(read(io.BytesIO(b'{"id": 1, "amount": 1}\n'), format="jsonl")[0]) == 1
    with pytest.raises(InvalidRequestError, check=because(Reason.UNKNOWN_FORMAT)):
        read(io.BytesIO(b""))
    with pytest.raises(InvalidRequestError, check=because(Reason.PARQUET_FROM_STREAM)):
        read(io.BytesIO(b"PAR1"), format="parquet")


def test_more_and_fewer_columns(write: Write, tmp_path: Path) -> None:
    """Missing and unknown columns are refused by default. With options a missing nullable column is null. A
    file with none of the columns is always refused."""
    few = pa.table({"id": [1], "amount": pa.array([1]), "more": ["x"]})
    pq.write_table(few, tmp_path / "f.parquet")
    texts = {"f.csv": "id,amount,more\n1,1,x\n", "f.jsonl": '{"id": 1, "amount": 1, "more": "x"}\n'}
    loose = {"missing_columns": "null", "unknown_columns": "ignore"}
    for path in [tmp_path / "f.parquet", *(write(name, text) for name, text in texts.items())]:
        assert read(path, **loose)[0] == [{"id": 1, "amount": Decimal(1), "day": None, "note": None}]
    with pytest.raises(InvalidRecordError, check=because(Reason.MISSING_COLUMN)):
        read(tmp_path / "f.parquet")
    with pytest.raises(InvalidRecordError, check=because(Reason.MISSING_COLUMN)):
        read(write("g.csv", "id\n1\n"), **loose)
    all_null = pa.schema([("a", pa.int64())])
    with pytest.raises(InvalidRecordError, check=because(Reason.UNKNOWN_COLUMN)):
        read(write("g.csv", "b\n1\n"), all_null, **loose)


OPTIONS = [
    "decimal",
    "missing_columns",
    "unknown_columns",
    "compression",
    "binary",
    "null_values",
    "header",
    "format",
]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_is_none(write: Write, option: str) -> None:
    """An invalid value of an option is refused before the file is read, and so is one text for an option with
    several values, like null_values."""
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)) as caught:
        read(write("f.csv", HEADER), **{option: "other"})
    assert caught.value.seen.startswith(option)


@pytest.mark.parametrize(
    "option", ["null_values", "header", "columns", "delimiter", "quote", "encoding", "date_format"]
)
def test_an_option_that_is_no_text(write: Write, option: str) -> None:
    """An option of another type, like -9999 for null in a DAG, is refused by its name, not with an error of
    Python's."""
    given: Any = {"columns": {"id": 1}, "null_values": [-9999], "header": [1, 2, 3, 4]}.get(option, 5)
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)) as caught:
        read(write("f.csv", HEADER), **{option: given})
    assert caught.value.seen.startswith(f"{option} ")


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("quote", None),
        ("encoding", None),
        ("header", None),
        ("null_values", None),
        ("null_values", iter(["NA"])),
        ("header", iter(["id", "amount", "day", "note"])),
    ],
)
def test_an_option_that_is_nothing_or_gone_after_one_file(write: Write, option: str, given: Any) -> None:
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)) as caught:
        read(write("f.csv", HEADER), **{option: given})
    assert caught.value.seen.startswith(f"{option} ")


def test_a_name_of_no_column(write: Write) -> None:
    """A renaming for a column that does not exist is refused, because the column that was meant would
    silently be null."""
    with pytest.raises(InvalidRequestError, check=because(Reason.UNKNOWN_COLUMN)):
        read(write("f.csv", HEADER), columns={"nota": "Text"}, missing_columns="null")


# --- which files ------------------------------------------------------------------------------------------


def test_folders_and_patterns_in_a_stable_order(tmp_path: Path) -> None:
    """Files are sorted by path, hidden names are skipped, and a name with brackets is not a pattern."""
    for name in ("b.csv", "a.csv", "sub/c.jsonl", "_SUCCESS", ".part.csv", "_tmp/x.csv", "x[1].csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    names = ["a.csv", "b.csv", "sub/c.jsonl", "x[1].csv"]
    assert [str(path.relative_to(tmp_path)) for path in files_named([tmp_path])] == names
    assert [path.name for path in files_named([f"{tmp_path}/[ab].csv"])] == ["a.csv", "b.csv"]
    assert [path.name for path in files_named([f"{tmp_path}/**/*.jsonl"])] == ["c.jsonl"]
    assert [path.name for path in files_named([f"{tmp_path}/x[1].csv"])] == ["x[1].csv"]
    assert [path.name for path in files_named([f"{tmp_path}/b.csv", f"{tmp_path}/a.csv"])] == [
        "b.csv",
        "a.csv",
    ]


def files_in(tmp_path: Path, *names: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**/*.csv", ["a.csv", "d=1/b.csv", "_p=2/c.csv"]),
        ("*/*.csv", ["d=1/b.csv", "_p=2/c.csv"]),
        ("*", ["a.csv", "d=1/b.csv", "_p=2/c.csv"]),
        ("_*/*/*.csv", ["_temporary/0/x.csv"]),
        ("_temporary/*/*.csv", ["_temporary/0/x.csv"]),
        (".h*/*.csv", [".hidden/y.csv"]),
    ],
)
def test_what_spark_passes_over_no_pattern_takes(tmp_path: Path, pattern: str, names: list[str]) -> None:
    """A pattern does not match hidden names and files of a running job or copy, which are reported, unless it
    spells them out."""
    files_in(tmp_path, "a.csv", "d=1/b.csv", "_p=2/c.csv", "_temporary/0/x.csv", ".hidden/y.csv", "_bad.csv")
    files_in(tmp_path, "d=1/_tmp.csv", "d=1/b.csv._COPYING_")
    hidden: list[Path] = []
    found = files_named([f"{tmp_path}/{pattern}"], "csv", passed_over=hidden.append)
    assert {str(path.relative_to(tmp_path)) for path in found} == set(names)
    assert len(set(hidden)) == len(hidden)
    if pattern == "*":
        folder, whole = {tmp_path / "_temporary", tmp_path / "_bad.csv"}, tmp_path / "d=1"
        assert set(hidden) == {*folder, whole / "_tmp.csv", whole / "b.csv._COPYING_"}


def test_linked_folders_are_read_once(tmp_path: Path) -> None:
    """Linked folders are read once, even if a link leads to a folder that is read anyway or to its own
    parent."""
    files_in(tmp_path, "in/a.csv", "in/sub/b.csv", "in/_other/c.csv")
    os.symlink(tmp_path / "in" / "_other", tmp_path / "in" / "linked")
    os.symlink(tmp_path / "in" / "_other", tmp_path / "in" / "twice")
    os.symlink(tmp_path / "in", tmp_path / "in" / "sub" / "loop")
    os.symlink(tmp_path / "in" / "sub", tmp_path / "in" / "alias")
    found = [str(path.relative_to(tmp_path)) for path in files_named([tmp_path / "in"])]
    assert found == ["in/a.csv", "in/linked/c.csv", "in/sub/b.csv"]


@pytest.mark.parametrize("path", ["in", "in/*", "in/**", "in/x*"])
@pytest.mark.parametrize("target", ["secret.csv", "elsewhere", "/", "in.csv/../secret.csv", "nowhere"])
def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path, path: str, target: str) -> None:
    """A link in a folder or pattern may lead to no file or folder outside. The error names it and where it leads."""
    files_in(tmp_path, "in/a.csv", "secret.csv", "elsewhere/b.csv", "in.csv/c.csv")
    os.symlink(tmp_path / target, tmp_path / "in" / "x.csv")
    with pytest.raises(InvalidRequestError) as refused:
        files_named([tmp_path / path])
    assert refused.value.reason is Reason.LINK_LEADS_OUT
    assert refused.value.place == str(tmp_path / "in" / "x.csv")


@pytest.mark.parametrize(
    ("name", "target", "path"),
    [
        ("in/*.csv", "secret.csv", "in/*.csv"),
        ("in/*", "elsewhere", "in/*"),
        ("in/**", "elsewhere", "in/**"),
        ("in/[x].csv", "secret.csv", "in/[x].csv"),
        ("in/day/*.csv", "secret.csv", "in/*/*.csv"),
        ("in/*/x.csv", "secret.csv", "in/*/x.csv"),
    ],
)
def test_a_link_whose_name_is_a_pattern_leads_nowhere_else(
    tmp_path: Path, name: str, target: str, path: str
) -> None:
    """Who may put files into a folder may choose their names too. A pattern stays one, whatever is called like it."""
    files_in(tmp_path, "in/a.csv", "secret.csv", "elsewhere/b.csv")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.symlink(tmp_path / target, tmp_path / name)
    with pytest.raises(InvalidRequestError) as refused:
        files_named([tmp_path / path])
    assert refused.value.reason is Reason.LINK_LEADS_OUT
    assert refused.value.place == str(tmp_path / name)


def test_a_file_whose_name_is_a_pattern_hides_no_other(tmp_path: Path) -> None:
    """A pattern matches the file that is called like it, too. Where it does not, the file is meant only if nothing
    else can be."""
    files_in(tmp_path, "*.csv", "a.csv", "b[1].csv")
    assert files_named([f"{tmp_path}/*.csv"]) == sorted(tmp_path.iterdir())
    assert files_named([f"{tmp_path}/b[1].csv"]) == [tmp_path / "b[1].csv"]
    files_in(tmp_path, "b1.csv")
    with pytest.raises(InvalidRequestError) as refused:
        files_named([f"{tmp_path}/b[1].csv"])
    assert refused.value.reason is Reason.BAD_PATH
    assert files_named([f"{tmp_path}/b[[]1].csv"]) == [tmp_path / "b[1].csv"]


def test_folders_of_a_double_star_are_entered_once(tmp_path: Path) -> None:
    """Linked folders are not entered, whatever circles they make, and are reported. Only a whole part means folders."""
    files_in(tmp_path, "a.csv", "day1/x.csv", "day1/sub/y.csv", "d/z.txt")
    assert len(files_named([f"{tmp_path}/day**"])) == 2
    for number in range(4):
        os.symlink(tmp_path, tmp_path / "day1" / f"self{number}")
    passed: list[Path] = []
    found = files_named([f"{tmp_path}/**/*.csv"], passed_over=passed.append)
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a.csv", "day1/sub/y.csv", "day1/x.csv"]
    assert {path.name for path in passed} == {f"self{number}" for number in range(4)}
    assert files_named([f"{tmp_path}/**/sub/*"]) == [tmp_path / "day1" / "sub" / "y.csv"]
    assert len(files_named([f"{tmp_path}/**"], "csv")) == 4


def test_a_link_that_is_named_by_itself_is_read(tmp_path: Path) -> None:
    """A link is followed where the caller names it: a file, a folder, and the folder that a pattern begins in."""
    files_in(tmp_path, "elsewhere/b.csv")
    os.symlink(tmp_path / "elsewhere", tmp_path / "in")
    os.symlink(tmp_path / "elsewhere" / "b.csv", tmp_path / "x.csv")
    for path in ("in", "in/*", "x.csv"):
        assert len(files_named([tmp_path / path])) == 1


def test_a_pipe_in_a_folder_is_refused(tmp_path: Path) -> None:
    """A named pipe in a folder is refused, because opening it would wait for ever."""
    files_in(tmp_path, "a.csv")
    os.mkfifo(tmp_path / "b.csv")
    for path in (tmp_path, f"{tmp_path}/*"):
        with pytest.raises(InvalidRequestError, check=because(Reason.NOT_A_REGULAR_FILE, "b.csv")):
            files_named([path])


def test_paths_that_name_nothing_twice_or_the_unknown(tmp_path: Path) -> None:
    """Paths that match nothing, a file that is named twice and unknown formats are refused in one line before
    anything is read."""
    (tmp_path / "a.csv").write_text("")
    os.symlink(tmp_path / "a.csv", tmp_path / "z.csv")
    os.link(tmp_path / "a.csv", tmp_path / "hard.csv")
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "a.xls").write_text("")
    named: list[tuple[Any, Reason]] = [
        ([f"{tmp_path}/*.tsv"], Reason.NO_FILES),
        ([""], Reason.BAD_PATH),
        ([5], Reason.BAD_PATH),
        ([f"{tmp_path}/\0.csv"], Reason.BAD_PATH),
        (["x" * 5_000], Reason.BAD_PATH),
        ([tmp_path / "empty"], Reason.NO_FILES),
        ([tmp_path / "odd"], Reason.UNKNOWN_FORMAT),
        ([tmp_path / "a.csv", f"{tmp_path}/a*"], Reason.DUPLICATE_FILE),
        ([tmp_path / "a.csv", tmp_path / "z.csv"], Reason.DUPLICATE_FILE),
        ([tmp_path / "a.csv", tmp_path / "hard.csv"], Reason.DUPLICATE_FILE),
    ]
    for paths, reason in named:
        with pytest.raises(TxnEngineError, check=because(reason)):
            files_named(paths)
    assert files_named([]) == []
    assert files_named([tmp_path / "odd"], "csv") == [tmp_path / "odd" / "a.xls"]
