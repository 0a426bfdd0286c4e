"""Rows that the server wrote are the same, whether they are read at once or text by text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.loading.refusals import because
from txn_engine.errors import InvalidRecordError
from txn_engine.postgres.kinds import read_as, reads
from txn_engine.postgres.rows import RowReader
from txn_engine.reasons import Reason

MOMENTS = (
    "2026-01-31 09:30:00+00", "2026-01-31 09:30:00.5+00", "2026-01-31 09:30:00.123456+00", "0001-01-01 00:00:00+00",
    "9999-12-31 23:59:59.999999+00", "10000-01-01 00:00:00+00", "0044-03-15 00:00:00+00 BC", "infinity", "-infinity",
)  # fmt: skip
NUMBERS = (
    "0",
    "-1",
    "127",
    "128",
    "-128",
    "32767",
    "2147483648",
    "-9223372036854775808",
    "9223372036854775807",
)
DECIMALS = ("0.00", "-0.01", "9999999999999999.99", "12345678901234567.00", "0.5", "NaN", "Infinity", "1")
FLOATS = (
    "0",
    "-0",
    "0.1",
    "1e-320",
    "1.7976931348623157e+308",
    "3.4028235e+38",
    "NaN",
    "Infinity",
    "-Infinity",
)
CASES: list[tuple[pa.DataType, str, tuple[str, ...]]] = [
    *((kind, "bigint", NUMBERS) for kind in (pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64())),
    (pa.decimal128(18, 2), "bigint", NUMBERS),
    (pa.int64(), "numeric", (*NUMBERS, "1.0", "1.5", "99999999999999999999")),
    (pa.decimal128(18, 2), "numeric(18,2)", DECIMALS),
    (pa.decimal128(18, 2), "numeric(19,2)", DECIMALS),
    (pa.decimal128(18, 2), "numeric(18,0)", DECIMALS),
    (pa.decimal128(18, 2), "numeric", (*DECIMALS, "0." + "0" * 40 + "1", "1.500", "1.005")),
    (pa.decimal128(38, 10), "numeric(38,10)", ("-1234567890123456789012345678.0123456789", "0.0000000000")),
    (pa.decimal256(50, 2), "numeric(50,2)", ("1" * 48 + ".25",)),
    (pa.float64(), "double precision", FLOATS),
    (pa.float32(), "real", ("0", "1.1", "3.4028235e+38", "1e-45", "NaN", "-Infinity")),
    (pa.bool_(), "boolean", ("t", "f")),
    (pa.date32(), "date", ("2026-01-31", "0001-01-01", "9999-12-31", "10000-01-01", "0044-03-15 BC", "infinity")),
    *((pa.timestamp(unit, "UTC"), "timestamp with time zone", MOMENTS) for unit in ("s", "ms", "us", "ns")),
    *(
        (pa.timestamp(unit), "timestamp without time zone", tuple(text.replace("+00", "") for text in MOMENTS))
        for unit in ("s", "us")
    ),
    (pa.time64("us"), "time without time zone", ("00:00:00", "23:59:59.999999", "24:00:00")),
    (pa.time32("s"), "time without time zone", ("00:00:00", "23:59:59.5")),
    (pa.string(), "text", ("", "a", 'a ""q""', "line\r\nline", "\\N", "漢字")),
    (pa.large_string(), "jsonb", ('{""a"": 1}',)),
    (pa.string(), "uuid", ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",)),
    (pa.binary(), "bytea", ("\\x", "\\x00ff")),
]  # fmt: skip


def outcome(reader: RowReader, text: bytes) -> str:
    try:
        return repr(reader.read(text)[0].to_pylist())  # NaN is not equal to itself
    except InvalidRecordError as error:
        return str(error)


@pytest.mark.parametrize(("kind", "found", "texts"), CASES, ids=lambda each: str(each)[:30])
def test_at_once_or_one_by_one(kind: pa.DataType, found: str, texts: tuple[str, ...]) -> None:
    """Each value alone, and a null, gives the same result both ways."""
    assert reads(kind, found)
    schema = pa.schema([("value", kind), ("beside", pa.string())])
    kinds = {"value": found, "beside": "text"}
    quick, slow = (RowReader("the query", "test", schema, kinds, None, with_bad=False) for _ in range(2))
    slow._quick = {}
    at_once = 0
    for text in (*(f'"{text}","x"\n' for text in texts), ',"x"\n'):
        expected = outcome(slow, text.encode())
        assert outcome(quick, text.encode()) == expected, text
        if expected.startswith("["):
            quick._at_once(text.encode())
            at_once += 1
    assert at_once >= 2


def test_what_is_read_at_once() -> None:
    """Only numbers whose limits the server keeps are read at once. Numbers of any length are not, because
    Arrow would make zeros of them."""
    money = pa.decimal128(18, 2)
    assert read_as(money, "numeric(18,2)") == read_as(money, "numeric(10,0)") == money
    for found in (
        "numeric",
        "numeric(19,2)",
        "numeric(18,1)",
        "numeric(18,3)",
        "numeric(5,-2)",
        "numeric(2,5)",
    ):
        assert read_as(money, found) is None
    assert read_as(pa.uint64(), "numeric(20,0)") is None


def test_a_row_is_named_by_its_number() -> None:
    """A bad row is named by the number in a column or by its place. The error is about the first bad row of
    all columns."""
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    text = b"1,1,71\n2,x,72\n,3,73\n"
    kinds = {"a": "bigint", "b": "bigint", "at": "bigint"}
    for number, said in (("at", "row 72 of the query"), (None, "row 3 of the query")):
        reader = RowReader("the query", "test", schema, kinds, number, with_bad=False)
        reader.read(b"1,1,70\n")
        with pytest.raises(InvalidRecordError, check=because(Reason.BAD_INTEGER, said)):
            reader.read(text)
    reader = RowReader("the query", "test", schema, kinds, None, with_bad=True)
    for first in (1, 4):
        records, bad = reader.read(text)
        assert records["a"].to_pylist() == [1]
        assert [row.line for row in bad] == [first + 1, first + 2]
