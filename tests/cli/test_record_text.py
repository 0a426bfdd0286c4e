"""Records as text: exact, and the same by Arrow's road as by Python's."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal

import pyarrow as pa

from txn_engine.cli.output import as_text, columns, snake_case
from txn_engine.cli.record_text import Aligned, _plain, value_as_json


def test_both_roads_write_the_same() -> None:
    """Decimals small and large, negative dates, times with and without a fraction, nulls."""
    for column in (
        pa.chunked_array([[Decimal("0.00"), Decimal("-1.50"), None, Decimal("9999999999999999.99")]]),
        pa.chunked_array([[Decimal("1E-10"), Decimal("123.4567890123")]], pa.decimal128(30, 10)),
        pa.chunked_array([[dt.date(2026, 1, 2), dt.date(1, 1, 1), dt.date(9999, 12, 31), None]]),
        pa.chunked_array([[0, -1, 1_795_264_647_323, None]], pa.timestamp("ms", tz="UTC")),
    ):
        assert _plain(column, "text") == [value_as_json(value, "text") for value in column.to_pylist()]


def test_values_of_other_types() -> None:
    """Times of other units and without a zone, binary as text or base64, nested values, floats."""
    assert value_as_json(dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC), "text") == "2026-01-02T03:04:05.000006Z"
    assert value_as_json(dt.datetime(2026, 1, 2, 3, 4, 5), "text") == "2026-01-02T03:04:05.000"  # noqa: DTZ001
    assert value_as_json(b"\xc3\xa9\xff", "text") == "é\\xff"
    assert value_as_json(b"\x00\xff", "base64") == "AP8="
    assert value_as_json([{"key": "h", "value": b"x"}], "text") == [{"key": "h", "value": "x"}]
    assert json.dumps(value_as_json(0.1, "text")) == "0.1"


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
    """Texts give way first; where that is not enough, each record is a block of its own."""
    records = pa.table({"amount": [Decimal("1234567.89")], "note": ["x" * 200]})
    wide = shown(100, records, monkeypatch)
    assert wide[1] == f"1234567.89  {'x' * 59}…"
    narrow = shown(40, records, monkeypatch)
    assert narrow[1] == f"1234567.89  {'x' * 27}…"
    assert max(map(len, narrow)) == 40
    block = shown(20, records, monkeypatch)
    assert block[:2] == ["amount  1234567.89", f"note    {'x' * 200}"]


def test_nothing_in_a_record_moves_the_cursor(monkeypatch: object) -> None:
    """Line ends, escapes and tabs are shown, not sent."""
    (_, line) = shown(80, pa.table({"note": ["a\nb\x1b[2Jc\td"]}), monkeypatch)
    assert line == "a\\nb\\x1b[2Jc\\td"


def test_names_and_cells() -> None:
    """Kafka's titles in snake_case; None as Kafka prints it; lists with commas."""
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
