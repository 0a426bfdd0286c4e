"""The log of a partition follows UnifiedLogTest's transactions, TransactionIndexTest, the LSO rule and the
aborted index."""

from __future__ import annotations

import threading

import pytest

import txn_engine
from storage import MemoryStore
from tests.kafka_rules.driver import (
    MAX_SEQUENCE,
    SCHEMA,
    T0,
    T1,
    TOPIC,
    Partition,
    answer,
    fresh_id,
    put_row,
    records,
    row_of,
)
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from txn_engine import Engine, TopicPartition
from txn_engine.errors import TransactionAbortableError
from txn_engine.protocol.proposals import ExpireProposal
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.types import AbortedTransaction


def test_log_02_an_old_epoch(log: Partition) -> None:
    """LOG-02: once a later epoch has written, the earlier one is refused."""
    assert log.client(1, 1, 0) == (0, 0)
    assert log.client(1, 0, 0) == "INVALID_PRODUCER_EPOCH"
    assert log.client(1, 0, 1) == "INVALID_PRODUCER_EPOCH"
    assert log.end == 1


def test_log_04_read_up_to_the_last_stable_offset(log: Partition) -> None:
    """LOG-04: two transactions and plain records are interleaved. A committed read returns all records below
    the LSO and no others, and is empty at the LSO."""

    def check(stable: int, seen: list[int]) -> None:
        assert log.stable == stable
        assert log.offsets() == seen
        assert log.offsets(stable) == []
        assert log.offsets(isolation_level="read_uncommitted") == [
            offset for offset in range(log.end) if offset not in markers
        ]

    markers: set[int] = set()
    log.transactional(1, 0, 0, count=5)
    log.plain(3)
    log.transactional(2, 0, 0, count=2)
    check(0, [])
    log.transactional(1, 0, 5, count=4)
    log.plain(2)
    log.transactional(1, 0, 9, count=10)
    check(0, [])
    assert log.commit(1, 1) == 26
    markers.add(26)
    check(8, list(range(8)))
    assert log.abort(2, 1) == 27
    markers.add(27)
    check(28, [*range(8), *range(10, 26)])
    assert log.log.aborted_transactions(0, 28) == [AbortedTransaction(2, 8, 27, 28)]


def test_log_06_plain_records_between(log: Partition) -> None:
    """LOG-06: plain records between an aborted and a committed transaction are read as soon as they are below
    the LSO."""
    log.transactional(1, 0, 0, count=3)
    log.plain(3)
    log.transactional(2, 0, 0, count=3)
    assert log.stable == 0
    log.abort(1, 1)
    assert log.stable == 6
    assert log.offsets() == [3, 4, 5]
    log.commit(2, 1)
    assert log.stable == log.end
    assert log.offsets() == [*range(3, 9)]


def test_log_10_the_marker_and_its_index_entry_are_one(clock: ManualClock) -> None:
    """LOG-10, where we differ: the marker's entry is the index entry, so they cannot part. A marker whose put
    has no answer leaves the LSO in place until the answer is known, and is in the log once."""
    faulty = FaultyStore(MemoryStore(fresh_id("store")))
    with Engine(faulty, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        log = Partition(engine.partition(TOPIC, 0))
        log.transactional(1, 0, 0, count=10)
        deaf = False

        def decide(operation: Operation, key: str, _: int) -> Fault | None:
            nonlocal deaf
            if operation == "put_if_absent" and "/log/" in key:
                deaf = True
                return "after"
            return "before" if deaf and "/log/" in key else None

        faulty.decide = decide
        assert log.abort(1, 1) == "OUTCOME_UNKNOWN"
        assert answer(lambda: log.stable) == "CLUSTER_AUTHORIZATION_FAILED"
        faulty.decide = None
        assert log.abort(1, 1) == -1
        assert (log.end, log.stable) == (11, 11)
        assert log.log.aborted_transactions(0, 11) == [AbortedTransaction(1, 0, 10, 11)]


@pytest.mark.parametrize("snapshot", [False, True])
def test_log_11_an_aborted_transaction_over_many_entries(
    engine: Engine, url: str, clock: ManualClock, snapshot: bool
) -> None:
    """LOG-11: an abort that spans many entries (and a snapshot) is one index entry from its first offset."""
    log = Partition(engine.partition(TOPIC, 0))
    for number in range(10):
        log.transactional(1, 0, number)
        if snapshot and number == 5:
            engine.admin.snapshot(TOPIC, 0)
    log.abort(1, 1)
    with txn_engine.connect(url, clock=clock) as other:
        again = Partition(other.partition(TOPIC, 0))
        assert again.log.aborted_transactions(0, 5) == [AbortedTransaction(1, 0, 10, 11)]
        assert again.log.aborted_transactions(10, 11) == [AbortedTransaction(1, 0, 10, 11)]
        assert again.log.aborted_transactions(11, 12) == []
        assert again.offsets() == []


def test_log_14_no_reader_sees_an_open_transaction(engine: Engine, url: str, clock: ManualClock) -> None:
    """LOG-14: while one connection opens and aborts transactions of one record, another that follows the log's end as
    fast as it can never reads one of them.
    """
    rounds = 60
    seen: list[list[int]] = []
    stop = threading.Event()

    def follow() -> None:
        with txn_engine.connect(url, clock=clock) as other:
            reader = Partition(other.partition(TOPIC, 0))
            while not stop.is_set():
                seen.append(reader.offsets())

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        log = Partition(engine.partition(TOPIC, 0))
        for epoch in range(rounds):
            opened = log.transactional(1, epoch, 0)
            assert isinstance(opened, tuple)
            assert log.offsets(opened[0]) == []
            assert log.abort(1, epoch + 1) == opened[0] + 1
    finally:
        stop.set()
        follower.join()
    assert len(seen) > 1
    assert not any(seen)


# --- the first write of a transaction ---------------------------------------------------------------------


def test_log_12_a_first_write_needs_its_transaction(clock: ManualClock) -> None:
    """LOG-12: a transaction's first write into a partition is legal only while the coordinator has it there.
    A producer that slept from AddPartitions through the time-out and the marker is refused, and nothing is
    open."""
    store = FaultyStore(MemoryStore(fresh_id("store")))
    with Engine(store, clock=clock) as engine, Engine(store.inner, clock=clock) as sweeper:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        producer = engine.producer(transactional_id="sleeper", transaction_timeout_ms=1_000)
        producer.init_transactions()
        producer.begin_transaction()
        slept = False

        def sleep_before_the_append(operation: Operation, key: str, _: int) -> Fault | None:
            nonlocal slept
            if operation == "put_if_absent" and f"/{TOPIC}/" in key and "/log/" in key and not slept:
                slept = True
                clock.advance(1_001)
                assert sweeper.coordinator.abort_timed_out_transactions().transactional_ids == ("sleeper",)
            return None

        store.decide = sleep_before_the_append
        assert answer(lambda: producer.produce(TOPIC, records(1), partition=0).result()) in (
            "INVALID_PRODUCER_EPOCH",
            "PRODUCER_FENCED",
        )
        log = Partition(engine.partition(TOPIC, 0))
        assert slept
        assert (log.stable, log.end) == (1, 1)
        assert log.offsets() == []


def test_log_12_a_check_from_an_earlier_transaction_is_no_use(clock: ManualClock) -> None:
    """LOG-12: the check belongs to one producer id and epoch. A successor's transaction with the same partition in it
    does not let the sleeper's write through.
    """
    store = FaultyStore(MemoryStore(fresh_id("store")))
    with Engine(store, clock=clock) as engine, Engine(store.inner, clock=clock) as other:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        sleeper = engine.producer(transactional_id="shared")
        sleeper.init_transactions()
        sleeper.begin_transaction()
        slept = False

        def sleep_before_the_append(operation: Operation, key: str, _: int) -> Fault | None:
            nonlocal slept
            if operation == "put_if_absent" and f"/{TOPIC}/" in key and "/log/" in key and not slept:
                slept = True
                successor = other.producer(transactional_id="shared")
                successor.init_transactions()
                successor.begin_transaction()
                successor.produce(TOPIC, records(2), partition=0).result()
            return None

        store.decide = sleep_before_the_append
        found = answer(lambda: sleeper.produce(TOPIC, records(1), partition=0).result())
        assert found in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
        values = other.partition(TOPIC, 0).read(0, isolation_level="read_uncommitted").column("value")
        assert values.to_pylist() == [2]


def test_log_12_a_partition_that_is_not_in_the_transaction(clock: ManualClock) -> None:
    """LOG-12: a producer with an open transaction without this partition cannot write there.

    Its first write is refused, and it can only abort (Kafka's INVALID_TXN_STATE; since KIP-890
    TRANSACTION_ABORTABLE). Nothing is open. The producer's view is older than AddPartitions, and the
    partition has forgotten the producer since.
    """
    store = FaultyStore(MemoryStore(fresh_id("store")))
    with Engine(store, clock=clock) as engine, Engine(store.inner, clock=clock) as other:
        engine.admin.create_topic(TOPIC, partitions=2, schema=SCHEMA)
        producer = engine.producer(transactional_id="shared")
        producer.init_transactions()
        with producer.transaction():
            producer.produce(TOPIC, records(1), partition=0).result()
        producer.begin_transaction()
        pid, epoch = producer.producer_id, producer.producer_epoch
        forgotten = False

        def forget_before_the_append(operation: Operation, key: str, _: int) -> Fault | None:
            nonlocal forgotten
            if operation == "put_if_absent" and f"/{TOPIC}/" in key and "/log/" in key and not forgotten:
                forgotten = True
                put_row(other, "Ongoing", name="shared", pid=pid, epoch=epoch, partitions=[T1])
                clock.advance(1)
                target = other.coordinator.resolve(T0)
                other.logs.of(target).append_one(ExpireProposal((pid,), clock()))
            return None

        store.decide = forget_before_the_append
        with pytest.raises(TransactionAbortableError) as refused:
            producer.produce(TOPIC, records(2), partition=0).result()
        assert refused.value.reason is Reason.NOT_IN_TRANSACTION
        log = Partition(other.partition(TOPIC, 0))
        assert forgotten
        assert log.stable == log.end
        assert log.producer(pid) is None
        assert log.offsets(isolation_level="read_uncommitted") == [0]


def test_log_12_the_partition_alone_asks_nobody(log: Partition) -> None:
    """Without a check at the coordinator, as at `Engine.partition`, any transaction may begin. The tool for
    hanging transactions needs that."""
    assert log.transactional(77, 0, 0) == (0, 0)


# --- the aborted index ------------------------------------------------------------------------------------


def index(log: Partition) -> None:
    """Three aborted transactions, of which two overlap, and a committed one between them.

    offsets: 1 opens @0, 2 opens @1, plain @2, abort 1 @3 (stable 1), commit 2 @4, 3 opens @5, 4 opens @6,
    abort 4 @7 (stable 5), abort 3 @8 (stable 9), plain @9
    """
    log.transactional(1, 0, 0)
    log.transactional(2, 0, 0)
    log.plain()
    log.abort(1, 1)
    log.commit(2, 1)
    log.transactional(3, 0, 0)
    log.transactional(4, 0, 0)
    log.abort(4, 1)
    log.abort(3, 1)
    log.plain()


ONE, FOUR, THREE = (
    AbortedTransaction(1, 0, 3, 1),
    AbortedTransaction(4, 6, 7, 5),
    AbortedTransaction(3, 5, 8, 9),
)


def test_an_entry_names_the_next_open_transaction(log: Partition) -> None:
    """The last stable offset of an index entry is the first offset still open after its marker, else marker +
    1."""
    index(log)
    assert log.log.aborted_transactions(0, 10) == [ONE, FOUR, THREE]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 10, [ONE, FOUR, THREE]),
        (0, 1, [ONE]),  # its stable offset 1 reaches the end: complete
        (0, 2, [ONE]),  # 4 and 3 begin above the end
        (3, 6, [ONE, THREE]),  # the entry's last offset equals the start; 4 begins at the end
        (4, 7, [FOUR, THREE]),  # 1 ended below the start
        (4, 6, [THREE]),
        (8, 10, [THREE]),
        (9, 10, []),
        (7, 5, []),
        (0, 5, [ONE]),
        (5, 6, [THREE]),
    ],
)
def test_the_search_of_the_index(
    log: Partition, start: int, end: int, expected: list[AbortedTransaction]
) -> None:
    """The search finds entries that end at or after the start and begin below the end. It is complete at the
    first entry whose stable offset reaches the end."""
    index(log)
    assert log.log.aborted_transactions(start, end) == expected


def test_the_search_stops_where_it_is_complete(log: Partition) -> None:
    """The stop rule is not only for speed, because an entry after the stop is left out even if it would
    match."""
    log.transactional(1, 0, 0)  # 0
    log.abort(1, 1)  # 1, stable 2
    log.transactional(1, 1, 0)  # 2
    log.transactional(2, 0, 0)  # 3
    log.abort(2, 1)  # 4, stable 2
    log.abort(1, 2)  # 5, stable 6
    assert [each.last_offset for each in log.log.aborted_transactions(0, 2)] == [1]
    assert [each.last_offset for each in log.log.aborted_transactions(0, 3)] == [1, 5]
    assert [each.last_offset for each in log.log.aborted_transactions(0, 6)] == [1, 4, 5]


def test_idx_02_index_entries_only_grow(log: Partition) -> None:
    """IDX-02: an entry has the offset of its marker as its key, so entries only grow. A repeated abort adds
    no entry."""
    index(log)
    lasts = [each.last_offset for each in log.log.aborted_transactions(0, 100)]
    assert lasts == sorted(set(lasts)) == [3, 7, 8]
    assert log.abort(3, 1) == -1
    assert log.abort(9, 4) == 10  # nothing was open: no entry
    assert [each.last_offset for each in log.log.aborted_transactions(0, 100)] == lasts


def test_the_lso_never_falls(log: Partition) -> None:
    """Whatever is opened and ended, and in whichever order, the last stable offset only grows and stays
    within the log.
    """
    before = 0
    epochs = dict.fromkeys(range(1, 5), 0)
    for step in range(24):
        pid = step % 4 + 1
        if step % 3 == 2:
            epochs[pid] += 1
            log.marker(pid, epochs[pid], committed=step % 2 == 0)
        else:
            state = log.producer(pid)
            fresh = state is None or state.last_sequence < 0 or state.producer_epoch != epochs[pid]
            log.transactional(pid, epochs[pid], 0 if fresh else state.last_sequence + 1)  # type: ignore[union-attr]
        assert before <= log.stable <= log.end
        before = log.stable


def test_a_wrap_inside_a_transaction(log: Partition) -> None:
    """Sequences that wrap inside a transaction do not end it."""
    log.client(1, 0, MAX_SEQUENCE - 1)
    assert log.transactional(1, 0, MAX_SEQUENCE) == (1, 1)
    assert log.transactional(1, 0, 0) == (2, 2)
    log.abort(1, 1)
    assert log.log.aborted_transactions(0, 9) == [AbortedTransaction(1, 1, 3, 4)]
    assert log.offsets() == [0]


# --- markers that are rolled forward ----------------------------------------------------------------------


@pytest.fixture
def decided(engine: Engine) -> str:
    """A decision to commit over t-0 and t-1 whose owner died, with data in t-0."""
    engine.partition(TOPIC, 0).append(
        records(7), producer_id=5_010, producer_epoch=4, base_sequence=0, is_transactional=True
    )
    partitions = [T0, TopicPartition(TOPIC, 1)]
    return put_row(engine, "PrepareCommit", pid=5_010, epoch=5, partitions=partitions)


def test_mrk_01_done_everywhere_is_complete(engine: Engine, decided: str) -> None:
    """MRK-01: each partition of the row gets a marker, with or without data, and then the Complete row is
    written."""
    report = engine.coordinator.write_pending_markers()
    assert (report.transactional_ids, report.partitions_marked, report.failures) == ((decided,), 2, ())
    assert [engine.partition(TOPIC, number).high_watermark for number in range(3)] == [2, 1, 0]
    row = row_of(engine, decided)
    assert (row.state, row.partitions) == ("CompleteCommit", ())


@pytest.mark.parametrize("failing", [0, 1])
def test_mrk_01_a_partition_that_fails_is_tried_again(clock: ManualClock, failing: int) -> None:
    """MRK-01: if the store fails, the decision stays pending and the report says why. The next sweep finishes
    it, and writes no second marker."""
    faulty = FaultyStore(MemoryStore(fresh_id("store")))
    with Engine(faulty, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic(TOPIC, partitions=2, schema=SCHEMA)
        name = put_row(engine, "PrepareAbort", partitions=[T0, TopicPartition(TOPIC, 1)])
        prefix = engine.logs.of(engine.coordinator.resolve(TopicPartition(TOPIC, failing))).keys.prefix

        def decide(operation: Operation, key: str, _: int) -> Fault | None:
            return "before" if key.startswith(prefix) else None

        faulty.decide = decide
        report = engine.coordinator.write_pending_markers()
        assert report.transactional_ids == ()
        assert len(report.failures) == 1
        assert report.failures[0].startswith(f"{name}: ")
        assert row_of(engine, name).state == "PrepareAbort"
        faulty.decide = None
        assert engine.coordinator.write_pending_markers().transactional_ids == (name,)
        assert [engine.partition(TOPIC, number).high_watermark for number in range(2)] == [1, 1]


def test_mrk_01_a_partition_that_is_further_on_counts_as_done(engine: Engine, decided: str) -> None:
    """MRK-01, where we differ: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED do not drop the
    decision. The partition has this marker or a later one, and the rest goes on."""
    log = Partition(engine.partition(TOPIC, 0))
    assert (
        log.commit(5_010, 5, coordinator_epoch=0) == 1
    )  # the marker of a writer that died before the Complete row
    second = Partition(engine.partition(TOPIC, 1))
    assert second.abort(5_010, 9, coordinator_epoch=99) == 0  # a later decision was here
    report = engine.coordinator.write_pending_markers()
    assert (report.transactional_ids, report.partitions_marked, report.failures) == ((decided,), 0, ())
    assert (log.end, second.end) == (2, 1)
    assert row_of(engine, decided).state == "CompleteCommit"


def test_mrk_01_a_topic_that_is_gone_counts_as_done(engine: Engine, decided: str) -> None:
    """MRK-01, where we differ: a deleted topic counts as done, so the sweep does not ask for an unknown topic
    again and again."""
    engine.admin.delete_topic(TOPIC)
    assert engine.coordinator.write_pending_markers().transactional_ids == (decided,)
    assert row_of(engine, decided).state == "CompleteCommit"


def test_mrk_02_the_completion_is_written_once(
    engine: Engine, url: str, clock: ManualClock, decided: str
) -> None:
    """MRK-02: any number of concurrent sweepers write one marker for each partition and one Complete row."""
    with txn_engine.connect(url, clock=clock) as other:
        sweepers = [engine, other] * 4
        barrier = threading.Barrier(len(sweepers))
        reports: list[tuple[str, ...]] = []

        def sweep(sweeper: Engine) -> None:
            barrier.wait()
            reports.append(sweeper.coordinator.write_pending_markers().failures)

        threads = [threading.Thread(target=sweep, args=(sweeper,)) for sweeper in sweepers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert reports == [()] * len(sweepers)
    assert [engine.partition(TOPIC, number).high_watermark for number in range(2)] == [2, 1]
    rows = [batch.row for batch in engine.logs.coordinator(decided).batches()]
    assert [str(row.state) for row in rows if row is not None and hasattr(row, "state")] == [
        "PrepareCommit",
        "CompleteCommit",
    ]


def test_mrk_02_a_lost_answer_loses_no_completion(clock: ManualClock) -> None:
    """MRK-02: if a process dies between the markers and the Complete row, the next sweep writes the row, and no second
    marker.
    """
    faulty = FaultyStore(MemoryStore(fresh_id("store")))
    with Engine(faulty, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        name = put_row(engine, "PrepareCommit")
        prefix = engine.logs.coordinator(name).keys.log_prefix

        def decide(operation: Operation, key: str, _: int) -> Fault | None:
            return "before" if operation == "put_if_absent" and key.startswith(prefix) else None

        faulty.decide = decide
        report = engine.coordinator.write_pending_markers()
        assert (report.transactional_ids, report.partitions_marked, len(report.failures)) == ((), 1, 1)
        faulty.decide = None
        report = engine.coordinator.write_pending_markers()
        assert (report.transactional_ids, report.partitions_marked, report.failures) == ((name,), 0, ())
        assert engine.partition(TOPIC, 0).high_watermark == 1
