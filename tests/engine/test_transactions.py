"""Producers, coordinator and readers together, on a store in memory."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import txn_engine
from tests.engine.conftest import SCHEMA, at_rest, payments
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    ConcurrentTransactionsError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock, write_transaction_state

DAY_MS = 86_400_000


def test_a_transaction_is_seen_whole_or_not_at_all(engine: Engine) -> None:
    """read_committed sees nothing of an open transaction and all of a committed one; read_uncommitted sees both."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", payments(*range(20)))
        producer.flush()
        assert accounts_in(engine) == []
        assert accounts_in(engine, isolation_level="read_uncommitted") == list(range(20))
        producer.commit_transaction()
    assert accounts_in(engine) == list(range(20))
    assert engine.admin.describe_transaction("load").state == "CompleteCommit"


def test_an_aborted_transaction_is_never_seen(engine: Engine) -> None:
    """A read_committed reader never sees aborted records. The aborted index of their partitions lists the
    transaction."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", payments(*range(20)))
        producer.flush()
        producer.abort_transaction()
        with producer.transaction():
            producer.produce("payments", payments(100))
    assert accounts_in(engine) == [100]
    for number in range(2):
        log = engine.partition("payments", number)
        (aborted,) = log.aborted_transactions(0, log.high_watermark)
        assert (aborted.first_offset, aborted.producer_id) == (0, producer.producer_id)
        assert log.last_stable_offset == log.high_watermark


def test_every_end_bumps_the_epoch(engine: Engine) -> None:
    """In transactions V2, the epoch grows with each commit and abort, and sequences begin at 0 again."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        first = producer.producer_epoch
        for turn in range(3):
            with producer.transaction():
                producer.produce("payments", payments(turn))
        producer.begin_transaction()
        producer.produce("payments", payments(9))
        producer.abort_transaction()
        assert producer.producer_epoch == first + 4


def test_a_successor_fences_the_zombie(engine: Engine, url: str, clock: ManualClock) -> None:
    """The second producer of an id aborts what the first left open; the first can then neither write nor commit."""
    zombie = engine.producer(transactional_id="load")
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.produce("payments", payments(1, 2, 3)).result()
    with txn_engine.connect(url, clock=clock) as other, other.producer(transactional_id="load") as successor:
        successor.init_transactions()
        with successor.transaction():
            successor.produce("payments", payments(7))
    with pytest.raises(ProducerFencedError):
        zombie.commit_transaction()
    with pytest.raises(ProducerFencedError):
        zombie.begin_transaction()
    assert accounts_in(engine) == [7]
    assert engine.admin.verify().ok


def test_a_zombies_late_write_is_refused(engine: Engine, url: str, clock: ManualClock) -> None:
    """A write by a fenced producer fails; its transaction can only abort, and that fails for good."""
    zombie = engine.producer(transactional_id="load")
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.produce("payments", payments(1), partition=0).result()
    with txn_engine.connect(url, clock=clock) as other, other.producer(transactional_id="load") as successor:
        successor.init_transactions()
    with pytest.raises(InvalidProducerEpochError):
        zombie.produce("payments", payments(2), partition=0).result()
    with pytest.raises(TransactionAbortableError):
        zombie.commit_transaction()
    with pytest.raises(ProducerFencedError):
        zombie.abort_transaction()
    assert accounts_in(engine) == []


def test_a_timed_out_transaction_is_swept(engine: Engine, clock: ManualClock) -> None:
    """The sweep fences and aborts what is open longer than its time-out, strictly; the producer's commit then fails."""
    producer = engine.producer(transactional_id="load", transaction_timeout_ms=1_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(1, 2)).result()
    clock.advance(1_000)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == ()
    clock.advance(1)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == ("load",)
    with pytest.raises(InvalidTxnStateError):
        producer.commit_transaction()
    assert accounts_in(engine) == []
    assert engine.admin.describe_transaction("load").state == "CompleteAbort"
    assert engine.admin.verify().ok


def test_deferred_markers_are_written_by_the_sweep(engine: Engine) -> None:
    """With deferred markers the commit is decided and invisible until the marker sweep; then it is visible."""
    with engine.producer(transactional_id="load", markers="deferred") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", payments(1, 2, 3))
    assert accounts_in(engine) == []
    assert engine.admin.describe_transaction("load").state == "PrepareCommit"
    report = engine.coordinator.write_pending_markers()
    assert (report.transactional_ids, report.failures) == (("load",), ())
    assert accounts_in(engine) == [1, 2, 3]
    assert engine.coordinator.write_pending_markers().transactional_ids == ()


def test_a_producer_finishes_its_own_pending_markers(engine: Engine) -> None:
    """A producer with deferred markers goes on: its next transaction completes the one before."""
    with engine.producer(transactional_id="load", markers="deferred") as producer:
        producer.init_transactions()
        for turn in range(3):
            with producer.transaction():
                producer.produce("payments", payments(turn), partition=0)
    assert accounts_in(engine) == [0, 1]


def test_many_transactions_share_an_entry_of_markers(engine: Engine) -> None:
    """The marker sweep writes one entry a partition, however many transactions it finishes."""
    for number in range(10):
        with engine.producer(transactional_id=f"load-{number}", markers="deferred") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("payments", payments(number), partition=0)
    report = engine.coordinator.write_pending_markers()
    coordinators = {engine.admin.coordinator_partition(f"load-{number}") for number in range(10)}
    assert len(report.transactional_ids) == report.partitions_marked == 10
    assert report.objects_written == 1 + len(coordinators)


def test_run_ids_answer_whether_the_first_try_committed(engine: Engine) -> None:
    """A load that is run again learns from the log whether its first try was committed."""
    for run in ("monday", "tuesday"):
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            with producer.transaction(run_id=run):
                producer.produce("payments", payments(1))
    producer = engine.producer(transactional_id="load")
    producer.init_transactions()
    producer.begin_transaction("wednesday")
    producer.produce("payments", payments(2)).result()
    producer.abort_transaction()
    again = engine.producer(transactional_id="load")
    again.init_transactions()
    assert (again.has_committed("monday"), again.has_committed("wednesday")) == (True, False)
    assert again.last_committed_run_id == "tuesday"


def test_an_expired_id_never_commits(engine: Engine, clock: ManualClock) -> None:
    """After seven idle days an id is forgotten: the old producer's next transaction fails, and a new producer
    starts from the beginning."""
    with engine.producer(transactional_id="load") as first:
        first.init_transactions()
        with first.transaction(run_id="r1"):
            first.produce("payments", payments(1))
        at_rest(first)
        clock.advance(7 * DAY_MS)
        assert engine.coordinator.expire_transactional_ids().transactional_ids == ("load",)
        with pytest.raises(TransactionalIdNotFoundError):
            engine.admin.describe_transaction("load")
        first.begin_transaction()
        with pytest.raises(InvalidProducerIdMappingError):
            first.produce("payments", payments(2)).result()
    with engine.producer(transactional_id="load") as second:
        second.init_transactions()
        assert second.has_committed("r1") is True
        assert second.producer_id != first.producer_id
        with second.transaction():
            second.produce("payments", payments(3))
    assert accounts_in(engine) == [1, 3]


def test_a_dead_coordinators_decision_rolls_forward(engine: Engine) -> None:
    """A PrepareCommit row that a dead coordinator left is completed by the next engine that meets it."""
    log = engine.partition("payments", 0)
    log.append(payments(5), producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    write_transaction_state(
        engine, "left", state="PrepareCommit", producer_id=9, producer_epoch=1, last_producer_epoch=0,
        partitions=[TopicPartition("payments", 0)],
    )  # fmt: skip
    with pytest.raises(ConcurrentTransactionsError):
        engine.coordinator.init_producer_id("left")
    engine.coordinator.write_pending_markers()
    assert accounts_in(engine) == [5]
    assert engine.coordinator.init_producer_id("left") == (9, 2)


def test_idempotent_producer_drops_what_was_sent_twice(engine: Engine) -> None:
    """A batch that is sent again returns the first one's offsets and writes nothing."""
    log = engine.partition("payments", 0)
    first = log.append(payments(1, 2), producer_id=4, producer_epoch=0, base_sequence=0)
    again = log.append(payments(1, 2), producer_id=4, producer_epoch=0, base_sequence=0)
    assert (first.is_duplicate, again.is_duplicate) == (False, True)
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert accounts_in(engine) == [1, 2]


def test_a_deleted_topics_transaction_completes(engine: Engine, clock: ManualClock) -> None:
    """A marker for a deleted topic's incarnation counts as done, and the namesake topic has nothing of it."""
    producer = engine.producer(transactional_id="load", markers="deferred")
    producer.init_transactions()
    with producer.transaction():
        producer.produce("payments", payments(1))
    engine.admin.delete_topic("payments")
    clock.advance(60_000)
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    assert engine.coordinator.write_pending_markers().failures == ()
    assert engine.admin.describe_transaction("load").state == "CompleteCommit"
    assert accounts_in(engine) == []
    assert engine.partition("payments", 0).high_watermark == 0


def test_bad_records_leave_nothing(engine: Engine) -> None:
    """Records with a wrong column, type or partition are refused, and nothing of the call is written."""
    with engine.producer() as producer:
        for bad in (
            payments(1).rename_columns(["account", "amount"]),
            payments(1).set_column(0, "account_id", pa.array(["1"])),
            payments(1).append_column("_mine", pa.array([1])),
        ):
            with pytest.raises(InvalidRecordError):
                producer.produce("payments", bad)
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.produce("payments", payments(1), partition=2)
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.produce("nowhere", payments(1))
    assert (
        engine.partition("payments", 0).high_watermark == engine.partition("payments", 1).high_watermark == 0
    )


def test_calls_out_of_order(engine: Engine) -> None:
    """A call that does not fit the producer's state is refused, and the producer can still be used."""
    producer = engine.producer(transactional_id="load")
    with pytest.raises(IllegalStateError):
        producer.begin_transaction()
    producer.init_transactions()
    with pytest.raises(IllegalStateError):
        producer.commit_transaction()
    with pytest.raises(IllegalStateError):
        producer.produce("payments", payments(1))
    with pytest.raises(IllegalStateError):
        pickle.dumps(producer)
    with producer.transaction():
        producer.produce("payments", payments(1))
    assert accounts_in(engine) == [1]
    with pytest.raises(IllegalStateError):
        engine.producer().begin_transaction()


def test_the_block_decides(engine: Engine) -> None:
    """`with producer.transaction()` commits at its end, and aborts on an exception, which reaches the
    caller."""
    producer = engine.producer(transactional_id="load")
    producer.init_transactions()

    def failing() -> None:
        with producer.transaction():
            producer.produce("payments", payments(1)).result()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert accounts_in(engine) == []
    with producer.transaction():
        producer.produce("payments", payments(2))
    assert accounts_in(engine) == [2]


def test_operators_abort_of_a_hanging_transaction(engine: Engine, clock: ManualClock) -> None:
    """Open data without a coordinator is found after the time limit and ended. A transaction with a coordinator is
    refused.
    """
    log = engine.partition("payments", 0)
    log.append(payments(1), producer_id=900, producer_epoch=0, base_sequence=0, is_transactional=True)
    producer = engine.producer(transactional_id="owned")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(2), partition=0).result()
    assert engine.admin.find_hanging_transactions("payments") == []
    clock.advance(900_001)
    (hanging,) = engine.admin.find_hanging_transactions()
    assert (hanging.producer_id, hanging.start_offset, hanging.partition) == (900, 0, 0)
    with refused(InvalidTxnStateError, Reason.HAS_COORDINATOR):
        engine.admin.abort_transaction("payments", 0, 1)
    with pytest.raises(InvalidTxnStateError):
        engine.admin.abort_transaction("payments", 0, 7)
    engine.admin.abort_transaction("payments", 0, 0)
    assert engine.admin.find_hanging_transactions() == []
    producer.commit_transaction()
    assert accounts_in(engine) == [2]


def test_readers_beyond_the_log(engine: Engine) -> None:
    """A negative or future offset is OFFSET_OUT_OF_RANGE, naming the range."""
    log = engine.partition("payments", 0)
    log.append(payments(1))
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRangeError) as beyond:
            log.read(offset)
        assert beyond.value.expected == "0 to 1"
    with pytest.raises(OffsetOutOfRangeError):
        engine.scan("payments", start={TopicPartition("payments", 0): 5})
    assert log.read(1).num_rows == 0


def test_a_reader_larger_than_memory_is_sent_in_parts(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RecordBatchReader is sent in parts; a bad part fails the whole transaction."""
    monkeypatch.setattr("txn_engine.producer.sender.READER_PART_BYTES", 100)
    producer = engine.producer(transactional_id="load")
    producer.init_transactions()
    batches = [batch for n in range(10) for batch in payments(n, n + 100).to_batches()]
    with producer.transaction():
        sent = producer.produce("payments", pa.RecordBatchReader.from_batches(SCHEMA, batches)).result()
    assert sum(m.last_offset - m.base_offset + 1 for m in sent) == 20
    assert len(accounts_in(engine)) == 20


def test_a_snapshot_spares_the_replay(engine: Engine, url: str) -> None:
    """A reader that starts from a snapshot and one that replays all see the same; a second snapshot is not written."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        for turn in range(5):
            with producer.transaction():
                producer.produce("payments", payments(turn))
    before = {tp: engine.partition(*tp).state for tp in engine.admin.list_offsets("payments")}
    written = engine.admin.snapshot()
    assert TopicPartition("payments", 0) in written
    assert engine.admin.snapshot() == {}
    with txn_engine.connect(url) as fresh:
        assert {tp: fresh.partition(*tp).state for tp in before} == before
        assert fresh.coordinator.current("load") == engine.coordinator.current("load")
    assert engine.admin.verify().ok
