"""The engine can read whatever it writes: records, snapshots, entries and topics at the edge of the format's
limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from immutables import Map

from storage import MemoryStore, row_groups
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine import Engine
from txn_engine.errors import InvalidRecordError, InvalidRequestError, RecordTooLargeError
from txn_engine.log.entry_format import USER_LOG, decode_entry, encode_entry
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.protocol.batches import BatchDescriptor, FileRef
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.producers import ProducerEntry
from txn_engine.reasons import Reason

FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64()),
    pa.field("text", pa.string()),
    pa.field("list", pa.list_(pa.bool_())),
]
SCHEMA = pa.schema(FIELDS)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(MemoryStore()) as engine:
        engine.admin.create_topic("events", partitions=1, schema=SCHEMA)
        yield engine


def records(*texts: str, lists: object = None) -> pa.Table:
    columns: list[pa.Array[Any]] = [
        pa.array(range(len(texts))),
        pa.array(texts),
        pa.array([lists] * len(texts), pa.list_(pa.bool_())),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


# the shard writes a table at the real limit, `make test` one at a thousandth of it
@pytest.mark.parametrize("text_bytes", in_shard("damage", [100 << 10, 100 << 20], keep=1))
def test_a_table_that_compresses_to_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, text_bytes: int
) -> None:
    """600 MiB of records that take some kilobytes can be written and read, although readers accept less than
    that in one row group."""
    if text_bytes < 100 << 20:
        monkeypatch.setattr(row_groups, "ROW_GROUP_BYTES", row_groups.ROW_GROUP_BYTES >> 10)
    text = "x" * text_bytes
    with engine.producer() as producer:
        producer.produce("events", records(*[text] * 6)).result()
    assert engine.scan("events").to_table().num_rows == 6
    assert engine.admin.verify().findings == ()


def test_a_record_that_no_reader_takes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that no reader accepts is refused before anything is sent, and its transaction goes on without
    it."""
    monkeypatch.setattr(row_groups, "ROW_BYTES_MAX", 10_000)
    monkeypatch.setattr(row_groups, "ROW_NULLS_MAX", 1_000)
    producer = engine.producer(transactional_id="load")
    producer.init_transactions()
    with producer.transaction():
        for bad in (records("a", "x" * 10_000), records("a", lists=[None] * 1_001)):
            with refused(RecordTooLargeError, Reason.ROW_BEYOND_READERS):
                producer.produce("events", bad)
        producer.produce("events", records("a", "x" * 9_000))
    assert engine.scan("events").to_table().num_rows == 2
    log = engine.partition("events", 0)
    with refused(RecordTooLargeError, Reason.ROW_BEYOND_READERS):
        log.append(records("a", "x" * 10_000))


def test_merged_files_are_cut_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction cuts its output into row groups, too, if small files have large records together."""
    monkeypatch.setattr(row_groups, "ROW_GROUP_BYTES", 20_000)
    with engine.producer() as producer:
        for _ in range(12):
            producer.produce("events", records(*["x" * 3_000] * 3)).result()
    compacted = engine.maintenance.compact()
    assert compacted.partitions
    assert not compacted.failures
    table = engine.scan("events").to_table()
    assert table.column("text").to_pylist() == ["x" * 3_000] * 36
    assert engine.admin.verify().findings == ()


@pytest.mark.parametrize("columns", in_shard("damage", [300, 5_000], keep=1))
def test_a_wide_topic(engine: Engine, columns: int) -> None:
    """A topic with 5,000 columns can be written and read: its JSON object, and the footer of a file with
    statistics, stay within the limits."""
    schema = pa.schema([(f"column_{number}", pa.string()) for number in range(columns)])
    engine.admin.create_topic("wide", partitions=1, schema=schema)
    with engine.producer() as producer:
        values = pa.array(["y" * 4_000, "z" * 4_000])
        producer.produce("wide", pa.Table.from_arrays([values] * columns, schema=schema)).result()
    assert engine.scan("wide").to_table().num_rows == 2
    assert engine.admin.verify().findings == ()


def test_a_topic_too_wide_to_be_written(engine: Engine) -> None:
    """A topic with too many columns is not created, because its first transaction would fail."""
    schema = pa.schema([(f"column_{number:060}", pa.string()) for number in range(10_000)])
    with refused(InvalidRecordError, Reason.TOO_WIDE):
        engine.admin.create_topic("wide", partitions=1, schema=schema)


def file(number: int) -> FileRef:
    return FileRef(f"data/{number:020d}-p7-e0-{number:032x}.parquet", 1, f"{number:032x}")


@pytest.mark.parametrize("rows", in_shard("damage", [65_537, 65_536], keep=1))
def test_an_entry_of_the_most_rows(rows: int) -> None:
    """An entry of 65,536 rows can be written and read, and one with one row more is refused."""
    batches = [
        BatchDescriptor(n, n, 1, producer_id=7, producer_epoch=0, file=file(n), record_count=1)
        for n in range(rows)
    ]
    if rows > 65_536:
        with pytest.raises(InvalidRequestError):
            encode_entry(USER_LOG, batches, "w" * 32)
        return
    data = encode_entry(USER_LOG, batches, "w" * 32)
    assert len(decode_entry(USER_LOG, data, key="some/key", base_offset=0).batches) == rows


@pytest.mark.parametrize("count", in_shard("damage", [2_000, 20_000], keep=1))
def test_a_large_snapshot(count: int) -> None:
    """A snapshot of thousands of files and producers, more than one row group can hold, can be written and
    read."""
    live = Map({n: LogFile(7, 0, n, n, 1, 0, 0, file(n)) for n in range(count)})
    producers = Map({n: ProducerEntry(n, 0) for n in range(count)})
    state = PartitionState(log_end_offset=count, live=live, producers=producers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "ROW_GROUP_BYTES", count * 500)
        data = encode_snapshot(state)
    read = decode_snapshot(data, key="some/key")
    assert (len(read.live), len(read.producers)) == (count, count)
