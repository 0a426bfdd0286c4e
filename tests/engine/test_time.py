"""The log's own time, which never falls, decides how old a row is, whatever the clocks of its writers say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import txn_engine
from tests.engine.conftest import at_rest, payments
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from txn_engine.producer import Producer
from txn_engine.testing import ManualClock, write_transaction_state
from txn_engine.types import ForgottenOffset

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)


@contextmanager
def engine_with_skew(url: str, clock: ManualClock, skew_ms: int) -> Iterator[Engine]:
    """Another client of the same store, whose clock is off by this much."""
    with txn_engine.connect(url, clock=lambda: clock() + skew_ms) as skewed:
        yield skewed


def opened(engine: Engine, transactional_id: str = "job", timeout_ms: int = 60_000) -> Producer:
    """A producer with a record in an open transaction."""
    producer = engine.producer(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    return producer


def swept(engine: Engine) -> tuple[str, ...]:
    return engine.coordinator.abort_timed_out_transactions().transactional_ids


def test_a_clock_behind_does_not_shorten_a_transaction(engine: Engine, url: str, clock: ManualClock) -> None:
    """A transaction of a client whose clock is an hour behind lasts as long as any other, because the log's
    time counts."""
    engine.coordinator.init_producer_id("job")  # the log that keeps the id has a right time by now
    with engine_with_skew(url, clock, -HOUR_MS) as slow:
        producer = opened(slow)
        clock.advance(30_000)
        producer.produce("payments", payments(2), partition=1).result()  # a second row, by the same clock
        clock.advance(30_000)
        assert swept(engine) == ()
        clock.advance(1)
        assert swept(engine) == ("job",)


def test_a_clock_ahead_does_not_let_it_live_for_ever(engine: Engine, url: str, clock: ManualClock) -> None:
    """A transaction of a client whose clock is an hour ahead lasts for its time-out and that hour, and no
    longer."""
    with engine_with_skew(url, clock, HOUR_MS) as fast:
        opened(fast)
    assert swept(engine) == ()
    clock.advance(HOUR_MS + 60_000)
    assert swept(engine) == ()
    clock.advance(1)
    assert swept(engine) == ("job",)


def test_a_clock_that_ran_ahead_once_spoils_nothing_later(
    engine: Engine, url: str, clock: ManualClock
) -> None:
    """If one client's clock ran a year ahead, later rows are judged by their own times, so time-outs and
    expiry go on."""
    with engine_with_skew(url, clock, 365 * DAY_MS) as mad:
        mad.coordinator.init_producer_id("job")
    opened(engine)
    clock.advance(60_000)
    assert swept(engine) == ()
    clock.advance(1)
    assert swept(engine) == ("job",)
    clock.advance(7 * DAY_MS)
    assert engine.coordinator.expire_transactional_ids().transactional_ids == ("job",)


def test_the_start_is_the_first_rows(engine: Engine, clock: ManualClock) -> None:
    """A transaction that keeps adding partitions is as old as its first row."""
    producer = opened(engine)
    clock.advance(60_000)
    producer.produce("payments", payments(2), partition=1).result()
    stored = engine.coordinator.current("job")
    assert stored is not None
    assert (stored.append_time, stored.start_append_time) == (clock(), clock() - 60_000)
    clock.advance(1)
    assert swept(engine) == ("job",)
    with pytest.raises(InvalidTxnStateError):
        producer.commit_transaction()


def test_tm_14_the_rows_own_times_follow_the_writers_clock(engine: Engine, clock: ManualClock) -> None:
    """TM-14: a row's own times follow its writer's clock when the clock goes back. The log's time does
    not."""
    producer_id, epoch = engine.coordinator.init_producer_id("job")
    began = clock.advance(-1)
    engine.coordinator.add_partitions("job", producer_id, epoch, [P0])
    clock.advance(-1)
    engine.coordinator.add_partitions("job", producer_id, epoch, [P1])
    described = engine.admin.describe_transaction("job")
    assert (described.transaction_start_ms, described.partitions) == (began, (P0, P1))
    stored = engine.coordinator.current("job")
    assert stored is not None
    assert (stored.row.update_ms, stored.append_time, stored.start_append_time) == (
        began - 1,
        began + 1,
        began + 1,
    )


def test_times_survive_a_snapshot(engine: Engine, url: str, clock: ManualClock) -> None:
    """A reader that starts from a snapshot judges the age of open transactions and group offsets like one
    that replays everything."""
    producer = opened(engine)
    clock.advance(50_000)
    producer.produce("payments", payments(2), partition=1).result()
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    consumer.commit({P0: 0})
    engine.admin.snapshot()
    with txn_engine.connect(url, clock=clock) as fresh:
        assert fresh.coordinator.current("job") == engine.coordinator.current("job")
        clock.advance(10_001)
        assert swept(fresh) == ("job",)
        assert fresh.admin.expire_group_offsets(retention_ms=10_001) == [
            ForgottenOffset("g", "payments", 0, 0)
        ]
    assert engine.admin.verify().ok


def test_a_seeded_row_counts_from_its_own_time(engine: Engine, clock: ManualClock) -> None:
    """TSM-06: of the rows that were left two seconds ago, only the open transaction past its time-out is
    aborted."""
    left = clock() - 2_000
    for number, (state, timeout_ms) in enumerate(
        [("Ongoing", 1_000), ("Ongoing", 10_000), ("CompleteCommit", 1_000), ("CompleteAbort", 1_000)]
    ):
        write_transaction_state(
            engine, f"id-{number}", state=state, producer_id=900 + number, producer_epoch=1,
            transaction_timeout_ms=timeout_ms, last_update_ms=left,
        )  # fmt: skip
    assert swept(engine) == ("id-0",)


def test_durations_are_by_the_logs_time(engine: Engine, url: str, clock: ManualClock) -> None:
    """The duration filter counts from the start by the log's time, whatever the client's clock said."""
    engine.coordinator.init_producer_id("job")
    with engine_with_skew(url, clock, -HOUR_MS) as slow:
        opened(slow)
    clock.advance(10_000)
    names = [
        found.transactional_id for found in engine.admin.list_transactions(["Ongoing"], duration_ms=9_999)
    ]
    assert names == ["job"]
    assert engine.admin.list_transactions(["Ongoing"], duration_ms=10_000) == []


# --- the daily renewal ------------------------------------------------------------------------------------


def test_a_job_of_days_keeps_its_id(engine: Engine, clock: ManualClock) -> None:
    """A producer that is used now and then for weeks does not expire: the first call of each day writes its
    row again, and other calls do not."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    log = engine.logs.coordinator("job")
    for day in range(20):
        for wait_ms, rows in ((DAY_MS - 1, day + 1), (1, day + 2), (0, day + 2)):
            clock.advance(wait_ms)
            producer.begin_transaction()
            assert log.refresh().log_end_offset == rows
            producer.abort_transaction()
        assert engine.coordinator.expire_transactional_ids().transactional_ids == ()
    with producer.transaction():
        producer.produce("payments", payments(1), partition=0)
    assert accounts_in(engine) == [1]
    assert engine.admin.verify().ok


def test_who_comes_back_too_late_may_begin_afresh(engine: Engine, clock: ManualClock) -> None:
    """init_transactions gives a producer whose id has expired a new identity, if no call has failed yet. Its
    run ids stay known."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    with producer.transaction(run_id="r1"):
        producer.produce("payments", payments(1), partition=0)
    at_rest(producer)
    old = producer.producer_id
    clock.advance(8 * DAY_MS)
    assert engine.coordinator.expire_transactional_ids().transactional_ids == ("job",)
    producer.init_transactions()
    assert (producer.producer_id != old, producer.producer_epoch) == (True, 0)
    assert producer.has_committed("r1") is True
    with producer.transaction():
        producer.produce("payments", payments(2), partition=0)
    assert accounts_in(engine) == [1, 2]


def test_a_renewal_changes_no_state(engine: Engine, clock: ManualClock) -> None:
    """A renewed row differs from the old one only in its time. State, epoch, decision and run ids are kept,
    and a retried commit before it is answered as before."""
    with engine.producer(transactional_id="job") as producer:
        producer.init_transactions()
        identity = (producer.producer_id, producer.producer_epoch)
        with producer.transaction(run_id="r1"):
            producer.produce("payments", payments(1), partition=0)
        at_rest(producer)
        before = engine.coordinator.current("job")
        clock.advance(DAY_MS)
        producer.begin_transaction()
        after = engine.coordinator.current("job")
        assert before is not None
        assert after is not None
        assert after.offset == before.offset + 1
        assert (after.row.update_ms, after.append_time) == (clock(), clock())
        assert after.start_append_time == before.start_append_time
        changed = {name: getattr(after.row, name) for name in ("state", "producer_epoch", "decision_offset")}
        assert changed == {name: getattr(before.row, name) for name in changed}
        assert after.row.committed_run_ids == ("r1",)
        again = engine.coordinator.end_transaction("job", *identity, committed=True)
        assert again == (producer.producer_id, producer.producer_epoch)
    assert engine.admin.verify().ok


@pytest.mark.parametrize("lost", ["expired", "fenced"])
def test_a_renewal_finds_that_the_id_is_lost(engine: Engine, url: str, clock: ManualClock, lost: str) -> None:
    """If a producer's id has expired or was fenced, its first call after that fails, before any work is
    done."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    clock.advance(7 * DAY_MS)
    error: type[Exception] = InvalidProducerIdMappingError if lost == "expired" else ProducerFencedError
    with txn_engine.connect(url, clock=clock) as other:
        if lost == "expired":
            assert other.coordinator.expire_transactional_ids().transactional_ids == ("job",)
        else:
            other.admin.fence_producers(["job"])
    for _ in range(2):  # a fatal error is raised again by every later call
        with pytest.raises(error):
            producer.begin_transaction()
    with engine.producer(transactional_id="job") as fresh:
        fresh.init_transactions()
        with fresh.transaction():
            fresh.produce("payments", payments(1), partition=0)
    assert accounts_in(engine) == [1]


def test_an_open_transaction_is_not_renewed(engine: Engine, clock: ManualClock) -> None:
    """Calls inside a transaction do not renew its row, because an open transaction does not expire and its
    row says when it began."""
    producer = opened(engine)
    log = engine.logs.coordinator("job")
    end = log.refresh().log_end_offset
    clock.advance(3 * DAY_MS)
    producer.produce("payments", payments(2), partition=0).result()
    assert log.refresh().log_end_offset == end
    producer.commit_transaction()
    assert accounts_in(engine) == [1, 2]


def test_seconds_beyond_what_milliseconds_hold_are_refused() -> None:
    """Seconds too large for milliseconds are refused, because Parquet stores them as milliseconds."""
    schema = pa.schema([("at", pa.timestamp("s"))])
    with txn_engine.connect("memory://seconds-beyond") as engine:
        engine.admin.create_topic("times", schema=schema)
        with pytest.raises(InvalidRecordError) as caught, engine.producer() as producer:
            producer.produce(
                "times", pa.table({"at": pa.array([2**63 // 1_000 + 1], pa.timestamp("s"))})
            ).result()
        assert str(2**63 // 1_000 + 1) not in str(caught.value)
        assert engine.scan("times").to_table().num_rows == 0
