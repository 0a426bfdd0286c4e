"""`Engine.maintenance` forgets and moves: producer-id expiry, late transactions, the log's start, compaction.

Kafka's tests are ProducerStateManagerTest, UnifiedLogTest and LogCleanerTest.
"""

from __future__ import annotations

import pytest

from tests.kafka_rules.driver import DAY_MS, SCHEMA, T0, TOPIC, Partition, answer, put_row, records
from txn_engine import Engine
from txn_engine.maintain import MaintenancePolicy
from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.controls import Trim, encode_control
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.replay import apply
from txn_engine.testing import ManualClock
from txn_engine.types import AbortedTransaction

EVERYTHING = MaintenancePolicy(min_files=2)
LATE_MS = 900_000 + 300_000
"""The store's longest timeout and Kafka's five minutes on top."""


# --- producer-id expiry -----------------------------------------------------------------------------------


def test_psm_16_a_producer_with_a_transaction_open_stays(
    engine: Engine, clock: ManualClock, log: Partition
) -> None:
    """PSM-16: however long it is idle, a producer with an open transaction is not forgotten, and the LSO stays."""
    log.plain(99)
    log.transactional(1, 5, 0)
    clock.advance(DAY_MS + 1)
    assert engine.maintenance.expire_producers(TOPIC).partitions == ()
    assert log.producer(1) is not None
    assert log.stable == 99
    assert log.transactional(1, 5, 1) == (100, 100)


def test_psm_17_an_idle_producer_is_forgotten(engine: Engine, clock: ManualClock, log: Partition) -> None:
    """PSM-17: after `producer.id.expiration.ms` a producer is unknown, so its next batch is accepted at any
    sequence."""
    log.client(1, 5, 0)
    log.plain()
    clock.advance(DAY_MS + 1)
    (expired,) = engine.maintenance.expire_producers(TOPIC).partitions
    assert expired.producer_ids == (1,)
    assert log.log.producers() == []
    end = log.end  # the expiry took an offset, as a marker does
    assert log.client(1, 5, 1) == (end, end)
    (state,) = log.log.producers()
    assert (state.producer_id, state.last_sequence) == (1, 1)
    assert log.end == end + 1


@pytest.mark.parametrize(("age", "forgotten"), [(DAY_MS - 1, False), (DAY_MS, True)])
def test_expiry_counts_from_the_last_batch(
    engine: Engine, clock: ManualClock, log: Partition, age: int, forgotten: bool
) -> None:
    """A producer expires at the limit, not only above it. Every batch and every marker restarts the day, by the log's
    time and not by the records' timestamps.
    """
    log.client(1, 0, 0, timestamp_ms=1)
    clock.advance(DAY_MS - 1)
    log.client(1, 0, 1, timestamp_ms=2)
    clock.advance(age)
    engine.maintenance.expire_producers(TOPIC)
    assert (log.producer(1) is None) == forgotten


def test_an_idle_producer_comes_back_inside_a_transaction(
    engine: Engine, clock: ManualClock, log: Partition
) -> None:
    """The other side of testRemoveExpiredPidsOnReload.

    A forgotten producer begins a transaction only at sequence 0. The partition does not recognise a zombie of
    a lower epoch any more, but the coordinator keeps it out.
    """
    log.transactional(1, 5, 0)
    log.commit(1, 6)
    clock.advance(DAY_MS)
    engine.maintenance.expire_producers(TOPIC)
    assert log.transactional(1, 6, 1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    name = put_row(engine, "CompleteCommit", pid=1, epoch=6)
    found = answer(lambda: engine.coordinator.add_partitions(name, 1, 5, [T0]))
    assert found == "PRODUCER_FENCED"
    assert log.transactional(1, 6, 0) is not None


def test_a_duplicate_is_forgotten_with_its_producer(
    engine: Engine, clock: ManualClock, log: Partition
) -> None:
    """A batch that is sent again a day later is a new batch, because `producer.id.expiration.ms` limits how
    long a repeated one is known."""
    assert log.client(1, 0, 0) == (0, 0)
    assert log.client(1, 0, 0) == (0, 0)
    clock.advance(DAY_MS)
    engine.maintenance.expire_producers(TOPIC)
    assert log.client(1, 0, 0) == (2, 2)


# --- late transactions ------------------------------------------------------------------------------------


def test_psm_18_late_transactions(engine: Engine, clock: ManualClock, log: Partition) -> None:
    """PSM-18: one of two transactions 500 ms apart is late once it exceeds the longest timeout and five
    minutes. It stays late until both are ended, and a snapshot knows it too."""

    def late() -> bool:
        return log.log.has_late_transaction

    log.transactional(1, 2, 0)
    assert not late()
    clock.advance(500)
    log.transactional(2, 9, 0)
    clock.advance(LATE_MS - 500)
    assert not late()  # at the limit
    clock.advance(1)
    assert late()
    engine.admin.snapshot(TOPIC, 0)
    with Engine(engine.store, clock=clock) as reloaded:
        assert reloaded.partition(TOPIC, 0).has_late_transaction
        clock.advance(500)
        assert log.commit(1, 3) == 2
        assert late()
        assert log.abort(2, 10) == 3
        assert not late()
        assert not reloaded.partition(TOPIC, 0).has_late_transaction


def test_a_transaction_that_still_writes_is_not_late(clock: ManualClock, log: Partition) -> None:
    """Kafka's measure is the last write of the oldest open transaction, not its first."""
    log.transactional(1, 0, 0)
    clock.advance(LATE_MS)
    log.transactional(1, 0, 1)
    clock.advance(LATE_MS)
    assert not log.log.has_late_transaction
    clock.advance(1)
    assert log.log.has_late_transaction


# --- the log's start --------------------------------------------------------------------------------------


@pytest.fixture
def short(engine: Engine) -> Partition:
    """A partition whose records are kept for a minute."""
    engine.admin.create_topic("short", partitions=1, schema=SCHEMA, retention_ms=60_000)
    return Partition(engine.partition("short", 0))


def test_log_09_the_start_stops_at_an_open_transaction(
    engine: Engine, clock: ManualClock, short: Partition
) -> None:
    """LOG-09, where we are stricter: retention never moves the start above an open transaction, so the LSO cannot be
    below it.
    """
    short.plain(5)
    short.transactional(1, 0, 0)
    short.plain(3)
    clock.advance(60_001)
    (trimmed,) = engine.maintenance.retain("short").partitions
    assert (trimmed.log_start_before, trimmed.log_start_offset) == (0, 5)
    assert (short.log.log_start_offset, short.stable) == (5, 5)
    short.abort(1, 1)
    engine.maintenance.retain("short")
    assert short.log.log_start_offset <= short.stable == short.end
    assert short.offsets(short.log.log_start_offset) == []


@pytest.mark.parametrize("start", [5, 8])
def test_log_09_the_unstable_offset_is_never_below_the_start(start: int) -> None:
    """LOG-09 on the pure core: replay takes the log as it is. If the start is above an open transaction's
    first offset, the first unstable offset is at the start."""
    state = PartitionState()
    opened = BatchDescriptor(
        0, 9, 1_000, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    trim = BatchDescriptor(10, 10, 1_000, control=Control.TRIM, control_value=encode_control(Trim(start, 0)))
    state = apply(apply(state, opened), trim)
    assert (state.first_unstable_offset, state.last_stable_offset) == (start, start)


def test_reading_below_the_start(engine: Engine, clock: ManualClock, short: Partition) -> None:
    """An offset that retention removed is out of range. A consumer without a position begins at the start."""
    short.plain(5)
    clock.advance(30_000)
    short.plain(5)
    clock.advance(30_001)
    engine.maintenance.retain("short")
    assert short.log.log_start_offset == 5
    assert answer(lambda: short.log.read(4)) == "OFFSET_OUT_OF_RANGE"
    consumer = engine.consumer()
    consumer.subscribe(["short"])
    table = consumer.poll()
    assert table is not None
    assert table.column("_offset").to_pylist() == [5, 6, 7, 8, 9]


def test_the_aborted_index_goes_with_its_range(engine: Engine, clock: ManualClock, short: Partition) -> None:
    """An index entry that ends below the start is gone, and one that begins later stays."""
    short.transactional(1, 0, 0)  # 0
    short.abort(1, 1)  # 1
    short.plain(2)  # 2, 3
    clock.advance(60_001)
    short.plain()  # 4
    short.transactional(1, 1, 0)  # 5
    short.abort(1, 2)  # 6
    engine.maintenance.retain("short")
    assert short.log.log_start_offset == 4
    assert short.log.aborted_transactions(4, 100) == [AbortedTransaction(1, 5, 6, 7)]


# --- compaction -------------------------------------------------------------------------------------------


def test_cln_01_compaction_knows_transactions(engine: Engine, log: Partition) -> None:
    """CLN-01, as far as it is ours: small files are merged, not keys. The merged file has no aborted record,
    committed records keep their offsets, the aborted index stays, and the markers' offsets stay gaps."""
    log.transactional(1, 0, 0, count=2)  # 0, 1 aborted
    log.transactional(2, 0, 0, count=2)  # 2, 3 committed
    log.transactional(1, 0, 2, count=2)  # 4, 5 aborted
    log.abort(1, 1)  # 6
    log.commit(2, 1)  # 7
    log.transactional(1, 1, 0, count=100)  # 8 to 107, committed
    log.commit(1, 2)  # 108
    seen, index = log.log.read(0), log.log.aborted_transactions(0, 109)
    (done,) = engine.maintenance.compact(TOPIC, policy=EVERYTHING).partitions
    assert (done.files, done.outputs, done.records) == (2, 1, 102)
    assert log.offsets() == [2, 3, *range(8, 108)]
    assert log.log.read(0).equals(seen)
    assert log.log.aborted_transactions(0, 109) == index == [AbortedTransaction(1, 0, 6, 2)]
    (file,) = engine.scan(TOPIC, partitions=[0]).files()
    assert (file.base_offset, file.record_count) == (2, 102)


def test_cln_02_markers_outlive_their_records(engine: Engine, clock: ManualClock, short: Partition) -> None:
    """CLN-02, where we differ: a marker is an entry, not a record, so it needs no delete horizon. After all
    the records are gone it still fences the epoch that it ended."""
    short.transactional(1, 0, 0)
    short.transactional(1, 0, 1)
    assert short.commit(1, 1, coordinator_epoch=7) == 2
    engine.maintenance.compact("short", policy=EVERYTHING)
    clock.advance(60_001)
    engine.maintenance.retain("short")
    assert short.log.log_start_offset > 1
    assert short.offsets(short.log.log_start_offset) == []
    assert short.transactional(1, 0, 2) == "INVALID_PRODUCER_EPOCH"
    assert short.abort(1, 2, coordinator_epoch=6) == "TRANSACTION_COORDINATOR_FENCED"


def test_cln_05_what_is_undecided_waits_for_the_next_pass(engine: Engine, log: Partition) -> None:
    """CLN-05: a pass leaves records above the LSO as they are. Once they are decided, the next pass cleans the
    committed ones and none of the aborted ones.
    """
    for sequence in range(2):
        log.client(9, 0, sequence)  # 0, 1
    log.transactional(1, 0, 0)  # 2, aborted later
    for sequence in range(2, 4):
        log.client(9, 0, sequence)  # 3, 4
    log.transactional(2, 0, 0)  # 5, committed later
    (first,) = engine.maintenance.compact(TOPIC, policy=EVERYTHING).partitions
    assert (first.files, first.records) == (2, 2)
    log.abort(1, 1)
    log.commit(2, 1)
    before = log.log.read(0)
    (second,) = engine.maintenance.compact(TOPIC, policy=EVERYTHING).partitions
    assert second.records >= 3
    assert log.log.read(0).equals(before)
    assert log.offsets() == [0, 1, 3, 4, 5]


def test_fet_07_a_merged_file_with_gaps_is_stepped_over(engine: Engine, log: Partition) -> None:
    """FET-07: if the last offsets of a range have no record, the position still moves to the end, from any
    offset inside the gaps."""
    log.plain(2)  # 0, 1
    log.transactional(1, 0, 0, count=3)  # 2 to 4, aborted
    log.abort(1, 1)  # 5
    log.plain(2)  # 6, 7
    log.transactional(1, 1, 0, count=2)  # 8, 9 aborted
    log.abort(1, 2)  # 10
    (done,) = engine.maintenance.compact(TOPIC, policy=EVERYTHING).partitions
    assert (done.files, done.records) == (2, 4)
    end = log.end
    for start, expected in [
        (0, [0, 1, 6, 7]),
        (2, [6, 7]),
        (4, [6, 7]),
        (7, [7]),
        (8, []),
        (9, []),
        (10, []),
    ]:
        consumer = engine.consumer()
        consumer.assign([T0])
        consumer.seek(T0, start)
        table = consumer.poll()
        assert ([] if table is None else table.column("_offset").to_pylist()) == expected
        assert consumer.position(T0) == end


def test_compaction_forgets_no_producer(engine: Engine, log: Partition) -> None:
    """Merging files changes no producer state of the partition, so a duplicate is still known and a gap still
    refused."""
    for sequence in range(6):
        log.client(1, 0, sequence)
    before = log.log.producers()
    assert len(engine.maintenance.compact(TOPIC, policy=EVERYTHING).partitions) == 1
    assert log.log.producers() == before
    assert log.client(1, 0, 5) == (5, 5)
    assert log.client(1, 0, 7) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    log.log.append(records(1))
