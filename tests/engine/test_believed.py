"""A correct checksum does not make an object's content credible: paths, spans, times and sizes are checked
(docs/FORMAT.md, "Limits")."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.fuzz.ledger import Objects, build, held, open_ledger, payments
from tests.fuzz.using import NOW_MS
from tests.support.refusals import damaged_at
from tests.support.sealing import json_object, parquet_object, taken_apart
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError, InvalidTimestampError
from txn_engine.log.entry_format import USER_LOG, decode_entry
from txn_engine.protocol.log_time import LATEST_MS
from txn_engine.testing import ManualClock

MAD_MS = 2**62


@pytest.fixture(scope="module")
def ledger() -> Objects:
    return build()


def last_entry(objects: Objects, partition: int) -> str:
    return max(key for key in objects if key.startswith(f"topics/payments/0/{partition}/log/"))


def changed(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The entry with its first row changed and a correct checksum."""
    table, metadata = taken_apart(data)
    rows = table.to_pylist()
    change(rows[0])
    return parquet_object(pa.Table.from_pylist(rows, table.schema), metadata)


def told(ledger: Objects, change: Callable[[dict[str, Any]], object]) -> str:
    """The error that a reader gets after the last entry of payments-2 was changed. It names the entry."""
    key = last_entry(ledger, 2)
    with (
        open_ledger({**ledger, key: changed(ledger[key], change)}, ManualClock(NOW_MS)) as engine,
        pytest.raises(CorruptObjectError) as caught,
    ):
        engine.scan("payments").to_table()
    assert caught.value.place == key
    return str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "../1/data/00000000000000000000-p-1-e-1-{}.parquet",
        "data/../../1/data/00000000000000000000-p-1-e-1-{}.parquet",
        "/data/00000000000000000000-p-1-e-1-{}.parquet",
        "data/0000000000000000000\u0661-p-1-e-1-{}.parquet",
        "data/00000000000000000000-p-1-e-1-{}.parquet\n",
        "data/99999999999999999999-p-1-e-1-{}.parquet",
    ],
)
def test_a_file_outside_the_partition_s_own_folder(ledger: Objects, path: str) -> None:
    """An entry whose data_path does not have the format's form is damage, so it cannot make a reader open
    another partition's file."""
    assert "data file" in told(ledger, lambda row: row.update(data_path=path.format("a" * 32)))


@pytest.mark.parametrize(
    "change",
    [
        {"last_offset": 2**63 - 1},
        {"last_offset": 2**62},
        {"record_count": 2**31 - 1},
        {"record_count": -1},
        {"append_time": -1},
        {"producer_epoch": -7},
        {"base_sequence": -9},
        {"data_bytes": -1},
        {"checksum": "../x"},
    ],
    ids=str,
)
def test_numbers_that_no_writer_writes(ledger: Objects, change: dict[str, Any]) -> None:
    """Spans, counts and ids out of range are damage in the entry that has them."""
    told(ledger, lambda row: row.update(change))


def test_a_time_of_a_mad_clock_in_the_log(ledger: Objects) -> None:
    """An append time of 2^62 is read as the end of the calendar. Later writers and readers go on after it."""
    key = last_entry(ledger, 2)
    mad = changed(ledger[key], lambda row: row.update(append_time=MAD_MS, max_timestamp=MAD_MS))
    with open_ledger({**ledger, key: mad}, ManualClock(NOW_MS)) as engine:
        state = engine.logs.get("payments", 0, 2).refresh()
        assert state.last_append_time == LATEST_MS
        with engine.producer() as producer:
            producer.produce("payments", payments(500), partition=2).result()
        assert 500 in accounts(engine)
        engine.admin.snapshot()
        engine.maintenance.retain()
        codes = [str(finding) for finding in engine.admin.verify().findings]
        assert any(key in finding and "clock" in finding for finding in codes)
        again = held(engine)
    with open_ledger(again, ManualClock(NOW_MS)) as engine:
        assert 500 in accounts(engine)


def accounts(engine: Engine) -> list[int]:
    found: list[int] = engine.scan("payments").to_table(["account"]).column("account").to_pylist()
    return found


@pytest.mark.parametrize("now_ms", [MAD_MS, LATEST_MS + 1, -1])
def test_a_writer_whose_clock_is_mad_is_refused(ledger: Objects, now_ms: int) -> None:
    """The error names the writer's clock, and nothing is written."""
    with open_ledger(ledger, ManualClock(now_ms)) as engine:
        refused = pytest.raises(InvalidTimestampError, check=lambda error: f" {now_ms} ms" in error.seen)
        with refused, engine.producer() as producer:
            producer.produce("payments", payments(1), partition=2, timestamp_ms=0).result()
        now = {key for key in held(engine) if "/log/" in key}
        assert now == {key for key in ledger if "/log/" in key}


def test_a_bomb_takes_no_memory(ledger: Objects) -> None:
    """An entry of twenty kilobytes that would decompress to 1.6 GB is refused before it takes the memory."""
    key = last_entry(ledger, 2)
    table, metadata = taken_apart(ledger[key])
    long = table.set_column(15, table.schema.field(15), pa.array(["x" * 1_000_000]))
    many = pa.concat_tables([long] * 1_600)
    data = parquet_object(many, metadata, compression="zstd", use_dictionary=True)
    del many
    assert len(data) < 20_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with damaged_at(key):
        decode_entry(USER_LOG, data, key=key, base_offset=0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("topics/payments/0.json", {"partitions": 10**30}),
        ("topics/payments/0.json", {"partitions": "3"}),
        ("topics/payments/0.json", {"incarnation": 7}),
        ("topics/payments/0.json", {"key": ["account"]}),
        ("topics/payments/0.json", {"arrow_schema": 5}),
        ("topics/payments/0/partitions/00000000000000000000.json", {"partitions": -1}),
        ("store.json", {"internal_partitions": {"__transaction_state": 0, "__consumer_offsets": 3}}),
        ("store.json", {"limits": 5}),
    ],
    ids=str,
)
def test_json_of_another_shape(ledger: Objects, key: str, change: dict[str, Any]) -> None:
    """A field of the wrong type or size is damage in that object."""
    data = json_object(json.loads(ledger[key]) | change)
    with (
        pytest.raises(CorruptObjectError) as caught,
        open_ledger({**ledger, key: data}, ManualClock(NOW_MS)) as engine,
    ):
        engine.scan("payments").to_table()
    assert caught.value.place == key
