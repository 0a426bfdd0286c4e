"""Consumers, scans and `PartitionLog.read` return what Kafka's readers get (FetcherTest,
CompletedFetchTest)."""

from __future__ import annotations

import pytest

from tests.kafka_rules.driver import T0, T1, TOPIC, Partition, answer, records
from txn_engine import Engine
from txn_engine.consumer import Consumer
from txn_engine.types import IsolationLevel


def reader(engine: Engine, isolation_level: IsolationLevel = "read_committed") -> Consumer:
    consumer = engine.consumer(isolation_level=isolation_level)
    consumer.assign([T0])
    return consumer


def polled(consumer: Consumer, max_records: int = 100_000) -> list[int]:
    """The offsets of one poll."""
    table = consumer.poll(max_records=max_records)
    return [] if table is None else table.column("_offset").to_pylist()


def test_fet_01_aborted_records_are_stepped_over(engine: Engine, log: Partition) -> None:
    """FET-01: records of an aborted transaction are not returned, and the position moves past its marker.
    read_uncommitted returns the records.
    """
    log.transactional(1, 0, 0)
    log.transactional(1, 0, 1)
    log.abort(1, 1)
    consumer = reader(engine)
    assert polled(consumer) == []
    assert consumer.position(T0) == 3
    dirty = reader(engine, "read_uncommitted")
    assert polled(dirty) == [0, 1]
    assert dirty.position(T0) == 3


def test_fet_02_markers_are_not_seen(engine: Engine, log: Partition) -> None:
    """FET-02: a reader gets a committed transaction's records and no marker."""
    log.transactional(1, 0, 0)
    log.transactional(1, 0, 1)
    log.commit(1, 1)
    consumer = reader(engine)
    assert polled(consumer) == [0, 1]
    log.plain()
    assert polled(consumer) == [3]
    assert consumer.position(T0) == 4


def test_fet_04_a_marker_twice(engine: Engine, log: Partition) -> None:
    """FET-04: a repeated abort is not in the log twice, and an abort without an open transaction hides no
    later record."""
    log.transactional(1, 0, 0, count=2)
    assert log.abort(1, 1) == 2
    assert log.abort(1, 1) == -1
    assert log.abort(1, 2) == 3  # a later decision, with nothing open: in the log, and of no effect
    log.transactional(1, 2, 0, count=2)
    log.commit(1, 3)
    assert polled(reader(engine)) == [4, 5]


def test_interleaved_transactions_of_several_producers(engine: Engine, log: Partition) -> None:
    """testReadCommittedWithCommittedAndAbortedTransactions: a reader gets the committed records of two
    interleaved producers whose transactions end both ways."""
    log.transactional(1, 0, 0)  # 0, aborted
    log.transactional(2, 0, 0, count=2)  # 1, 2 committed
    log.transactional(1, 0, 1, count=2)  # 3, 4 aborted
    log.abort(1, 1)  # 5
    log.transactional(2, 0, 2, count=2)  # 6, 7 committed
    log.transactional(1, 1, 0)  # 8 committed
    log.commit(1, 2)  # 9
    log.transactional(1, 2, 0)  # 10, aborted
    log.commit(2, 1)  # 11
    log.abort(1, 3)  # 12
    assert polled(reader(engine)) == [1, 2, 6, 7, 8]
    assert polled(reader(engine, "read_uncommitted")) == [0, 1, 2, 3, 4, 6, 7, 8, 10]


def test_a_commit_in_the_middle_of_anothers_abort(engine: Engine, log: Partition) -> None:
    """testReadCommittedAbortMarkerWithNoData: plain records inside an aborted transaction's range are
    returned."""
    log.abort(1, 1)
    log.transactional(1, 1, 0)
    log.plain(2)
    log.abort(1, 2)
    assert polled(reader(engine)) == [2, 3]


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_any_number_at_a_time(engine: Engine, log: Partition, step: int) -> None:
    """However few records a poll may return, the same ones come, once each and in order, and the position
    ends at the LSO."""
    log.plain(3)
    log.transactional(1, 0, 0, count=4)
    log.plain(2)
    log.abort(1, 1)
    log.transactional(2, 0, 0, count=3)
    log.commit(2, 1)
    consumer = reader(engine)
    found: list[int] = []
    for _ in range(20):
        found += polled(consumer, step)
    assert found == [0, 1, 2, 7, 8, 10, 11, 12]
    assert consumer.position(T0) == log.stable == 14


def test_fet_07_positions_step_over_what_has_no_records(engine: Engine, log: Partition) -> None:
    """FET-07, as far as it can happen here: a position inside a range without records (markers or aborted
    records) moves to the range's end."""
    log.plain(37)
    log.transactional(1, 0, 0, count=18)  # 37 to 54
    log.abort(1, 1)  # 55
    for start in (37, 40, 54, 55):
        consumer = reader(engine)
        consumer.seek(T0, start)
        assert polled(consumer) == []
        assert consumer.position(T0) == 56


def test_fet_08_lag_counts_to_the_last_stable_offset(engine: Engine, log: Partition) -> None:
    """FET-08: the lag of a committed reader counts to the LSO, and the lag of an uncommitted one to the high
    watermark."""
    log.plain(50)
    log.transactional(1, 0, 0, count=50)
    consumer, dirty = reader(engine), reader(engine, "read_uncommitted")
    assert (consumer.lag(), dirty.lag()) == ({T0: 50}, {T0: 100})
    assert polled(consumer, 3) == [0, 1, 2]
    assert consumer.lag() == {T0: 47}
    log.commit(1, 1)
    log.plain(49)
    log.transactional(2, 0, 0, count=50)
    assert consumer.lag() == {T0: 147}
    assert dirty.lag() == {T0: 200}


def test_an_open_transaction_holds_readers_back(engine: Engine, log: Partition) -> None:
    """A committed reader gets no record after the first open one, transactional or not, until that
    transaction ends. Then it gets all of them."""
    log.plain(2)
    log.transactional(1, 0, 0)
    log.plain(2)
    log.transactional(2, 0, 0)
    log.commit(2, 1)
    consumer = reader(engine)
    assert polled(consumer) == [0, 1]
    assert polled(consumer) == []
    assert consumer.position(T0) == 2
    log.commit(1, 1)
    assert polled(consumer) == [2, 3, 4, 5]


@pytest.mark.parametrize("offset", [-1, 4])
def test_a_position_outside_the_log(engine: Engine, log: Partition, offset: int) -> None:
    """A read cannot begin below the start or past the end."""
    log.plain(3)
    assert answer(lambda: reader(engine).seek(T0, offset)) == "OFFSET_OUT_OF_RANGE"
    assert answer(lambda: log.log.read(offset)) == "OFFSET_OUT_OF_RANGE"
    assert log.log.read(3).num_rows == 0


def test_ends_follow_the_isolation_level(engine: Engine, log: Partition) -> None:
    """The end of a partition is the LSO for a committed reader and the high watermark for the other."""
    log.plain(2)
    log.transactional(1, 0, 0)
    ends = reader(engine).end_offsets([T0, T1])
    assert ends == {T0: 2, T1: 0}
    assert reader(engine, "read_uncommitted").end_offsets([T0]) == {T0: 3}
    assert engine.admin.list_offsets(TOPIC, [0])[T0].last_stable_offset == 2


def test_a_scan_and_a_consumer_agree(engine: Engine, log: Partition) -> None:
    """A poll, a scan and a read of the partition return the same records."""
    log.plain(2)
    log.transactional(1, 0, 0, count=3)
    log.transactional(2, 0, 0, count=2)
    log.abort(1, 1)
    log.commit(2, 1)
    log.log.append(records(5))
    expected = polled(reader(engine))
    assert log.offsets() == expected
    table = engine.scan(TOPIC, partitions=[0]).to_table(["_offset"])
    assert table.column("_offset").to_pylist() == expected == [0, 1, 5, 6, 9]
