"""Records as text are exact for every type of column."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txn_engine.cli.output import as_text, columns, snake_case
from txn_engine.cli.record_text import Aligned, Csv, ParquetFile
from txn_engine.errors import SchemaChangedError
from txn_engine.value_text import BinaryText, json_records, plain_column


def plain(values: list[Any], kind: pa.DataType, binary: BinaryText = "text") -> list[Any]:
    """The values as JSON shows them when they are a column of a topic."""
    return plain_column(pa.chunked_array([pa.array(values, kind)]), binary)


def test_decimals_and_texts() -> None:
    """Decimals have all digits and no exponent. Binary values are shown as text or base64, nested ones
    too."""
    assert plain(
        [Decimal("0.00"), Decimal("-1.50"), None, Decimal("9999999999999999.99")], pa.decimal128(18, 2)
    ) == ["0.00", "-1.50", None, "9999999999999999.99"]
    small = [Decimal("1E-10"), Decimal("123.4567890123")]
    assert plain(small, pa.decimal128(30, 10)) == ["0.0000000001", "123.4567890123"]
    assert plain([b"\xc3\xa9\xff"], pa.binary()) == ["é\\xff"]
    assert plain([b"\x00\xff"], pa.binary(), "base64") == ["AP8="]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    assert plain([[{"key": "h", "value": b"x"}], None], headers) == [[{"key": "h", "value": "x"}], None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times(unit: str) -> None:
    """Times are in ISO 8601 with three, six or nine digits as needed, and with Z if the column has any time
    zone."""
    second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    kind = pa.timestamp(unit, tz="Europe/Berlin")
    whole = [0, -second, 1_795_264_647 * second, None]
    texts = ["1970-01-01T00:00:00.000Z", "1969-12-31T23:59:59.000Z", "2026-11-21T12:37:27.000Z", None]
    assert plain(whole, kind) == plain(whole, pa.timestamp(unit, tz="UTC")) == texts
    assert plain([0], pa.timestamp(unit)) == ["1970-01-01T00:00:00.000"]
    fractions = {"s": ".000", "ms": ".001", "us": ".000001", "ns": ".000000001"}
    assert plain([1 - second], pa.timestamp(unit, tz="UTC")) == [
        f"1969-12-31T23:59:59{fractions[unit]}Z" if unit != "s" else "1970-01-01T00:00:00.000Z"
    ]


def test_times_outside_pythons_calendar() -> None:
    """Years after 9999 and before 1 have a sign, as in ISO 8601, in nested values too."""
    kind = pa.timestamp("ms", tz="UTC")
    far = [2**53, 253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_000, -62_135_596_800_001, None]
    texts = [
        "+287396-10-12T08:59:00.992Z",
        "9999-12-31T23:59:59.999Z",
        "+10000-01-01T00:00:00.000Z",
        "0001-01-01T00:00:00.000Z",
        "+0000-12-31T23:59:59.999Z",
        None,
    ]
    assert plain(far, kind) == texts
    assert plain_column(pa.chunked_array([pa.array(far, kind).dictionary_encode()]), "text") == texts
    assert plain([-62_167_219_200_001], kind) == ["-0001-12-31T23:59:59.999Z"]
    assert plain([far, None], pa.list_(kind)) == [texts, None]
    times = pa.array(far[:1], kind)
    pairs = pa.MapArray.from_arrays([0, 1], pa.array(["a"]), times)
    assert plain_column(pa.chunked_array([pairs]), "text") == [[["a", texts[0]]]]
    struct = pa.StructArray.from_arrays([times], ["at"])
    assert plain_column(pa.chunked_array([struct]), "text") == [{"at": texts[0]}]
    days = pa.array([2**30, 2_932_896, 2_932_897, -719_163, 0, None], pa.int32()).cast(pa.date32())
    assert plain_column(pa.chunked_array([days]), "text") == [
        "+2941775-04-07",
        "9999-12-31",
        "+10000-01-01",
        "+0000-12-31",
        "1970-01-01",
        None,
    ]


def test_durations() -> None:
    """Durations are shown as Python shows them. One that is too long for Python is a number with its unit."""
    assert plain([90_000_005], pa.duration("us")) == ["0:01:30.000005"]
    assert plain([2**62, None], pa.duration("s")) == [f"{2**62} s", None]


def test_nan_and_infinity_are_strings_in_json() -> None:
    """Every line is valid JSON, with nested values too."""
    numbers = [float("nan"), float("inf"), float("-inf"), 0.1, None]
    texts = ["NaN", "Infinity", "-Infinity", 0.1, None]
    for kind in (pa.float32(), pa.float64()):
        assert plain(numbers[:3], kind) == texts[:3]
    assert plain(numbers, pa.float64()) == texts
    assert plain([numbers], pa.list_(pa.float64())) == [texts]
    records = pa.table({"x": numbers, "y": [[number] for number in numbers]})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    lines = [json.loads(line, parse_constant=refuse) for line in json_records(records, "text")]
    assert lines == [{"x": text, "y": [text]} for text in texts]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(width: int, records: pa.Table, monkeypatch: object) -> list[str]:
    stream = _Terminal()
    monkeypatch.setenv("COLUMNS", str(width))  # type: ignore[attr-defined]
    monkeypatch.setenv("NO_COLOR", "1")  # type: ignore[attr-defined]
    Aligned(stream, "text").write(records)
    return stream.getvalue().splitlines()


def test_on_a_terminal_numbers_are_never_cut(monkeypatch: object) -> None:
    """Texts are cut first. If that is not enough, each record is a block of its own."""
    records = pa.table({"amount": [Decimal("1234567.89")], "note": ["x" * 200]})
    wide = shown(100, records, monkeypatch)
    assert wide[1] == f"1234567.89  {'x' * 59}…"
    narrow = shown(40, records, monkeypatch)
    assert narrow[1] == f"1234567.89  {'x' * 27}…"
    assert max(map(len, narrow)) == 40
    block = shown(20, records, monkeypatch)
    assert block[:2] == ["amount  1234567.89", f"note    {'x' * 200}"]


def test_nothing_in_a_record_moves_the_cursor(monkeypatch: object) -> None:
    """Line ends, escapes and tabs are shown as text."""
    (_, line) = shown(80, pa.table({"note": ["a\nb\x1b[2Jc\td"]}), monkeypatch)
    assert line == "a\\nb\\x1b[2Jc\\td"


def test_names_and_cells() -> None:
    """Kafka's titles become snake_case, None is shown as Kafka prints it, and lists have commas."""
    for title, name in (
        ("TransactionalId", "transactional_id"),
        ("Duration(min)", "duration_min"),
        ("CURRENT-OFFSET", "current_offset"),
        ("CurrentTransactionStartTimeMs", "current_transaction_start_time_ms"),
        ("TopicPartitions", "topic_partitions"),
        ("PENDING-PRODUCER-ID", "pending_producer_id"),
    ):
        assert snake_case(title) == name
    assert columns("ProducerId>")[0].right
    assert as_text(None) == "None"
    assert as_text([{"topic": "a", "partition": 0}, {"topic": "b", "partition": 1}]) == "a-0,b-1"


def test_columns_that_change_under_one_header(tmp_path: Path) -> None:
    """Records with other columns are refused, so everything below a header has its columns."""
    first = pa.table({"a": [1], "b": [2]})
    stream = io.StringIO()
    text = Csv(stream, "text")
    text.write(first)
    text.write(first.cast(pa.schema([("a", pa.float64()), ("b", pa.int64())])))
    for other in (first.select(["b", "a"]), first.rename_columns(["a", "c"]), first.select(["a"])):
        with pytest.raises(SchemaChangedError) as error:
            text.write(other)
        assert "a, b, as what is written already; run it again" in str(error.value)
    assert stream.getvalue() == "a,b\n1,2\n1.0,2\n"
    file = ParquetFile(tmp_path / "out.parquet")
    file.write(first)
    with pytest.raises(SchemaChangedError):
        file.write(first.select(["b", "a"]))
    file.discard()
    assert not list(tmp_path.iterdir())
