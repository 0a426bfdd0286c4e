"""Cases that broke an earlier version, found by attack: each lost, tore, doubled or hung something."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count

import pyarrow as pa
import pytest

import txn_engine.producer.sender as sender_module
from storage import MemoryStore, StoreUnreachableError
from tests.engine.conftest import SCHEMA, at_rest, payments
from tests.support.faults import Fault, FaultyStore, Operation, no_pause, raising
from tests.support.kills import in_a_child
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from tests.support.waiting import LIMIT_S, wait_for
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidRequestError,
    OutcomeUnknownError,
    ProducerFencedError,
    StoreAccessError,
    StoreUnavailableError,
    TopicExistsError,
    TransactionAbortableError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.own_process import OwnLock
from txn_engine.log.uploads import upload_records
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.producer import Producer
from txn_engine.protocol.batches import FileRef
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock, write_transaction_state

P0 = TopicPartition("payments", 0)
_NAMES = count()


def started(engine: Engine, transactional_id: str = "job") -> Producer:
    """A producer in the middle of an empty transaction."""
    producer = engine.producer(transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def within(seconds: float, work: threading.Thread) -> bool:
    """Whether a thread ends within this time."""
    work.start()
    work.join(seconds)
    return not work.is_alive()


def foreign_file(engine: Engine) -> tuple[int, object]:
    """A data file that another epoch uploaded. A batch that names it is refused."""
    from txn_engine.log.data_files import EncodedFile

    name = f"data/{0:020d}-p999-e7-{'ab' * 16}.parquet"
    return 0, EncodedFile(FileRef(name, 10, "0" * 32), 1, 0, 0)


def test_a_refused_batch_cannot_slip_past_the_commit(engine: Engine) -> None:
    """A producer learns of a refusal before anybody who waits for the batch, so the commit fails and nothing
    is torn."""
    producer = started(engine)
    producer.produce("payments", payments(1), partition=1)
    topic = engine.logs.topics.look_up("payments")
    sent = producer.produce_files(topic, [foreign_file(engine)])  # type: ignore[list-item]
    sent.add_done_callback(lambda _: time.sleep(0.3))
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    assert accounts_in(engine) == []


def test_a_file_belongs_to_one_batch(engine: Engine) -> None:
    """A batch that names a data file that the log already has is refused, in whatever way it is sent."""
    producer = started(engine)
    producer.produce("payments", payments(1, 2), partition=0).result()
    (log_file,) = engine.partition("payments", 0).state.undecided.values()
    from txn_engine.log.data_files import EncodedFile

    again = EncodedFile(
        log_file.file, log_file.record_count, log_file.first_timestamp, log_file.max_timestamp
    )
    with refused(InvalidRequestError, Reason.FILE_NAMED_BEFORE):
        producer.produce_files(engine.logs.topics.look_up("payments"), [(0, again)]).result()


class GatedStore(MemoryStore):
    """A store that fails partition 1's data file once the test says so, and delays partition 2's until the
    test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.failing, self.slow = threading.Event(), threading.Event()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if "/1/data/" in key:
            assert self.failing.wait(LIMIT_S)
            raise StoreUnreachableError("no answer", actor="store", place=key)
        if "/2/data/" in key:
            assert self.slow.wait(LIMIT_S)
        return super().put_if_absent(key, data)


@pytest.mark.parametrize("call", ["produce", "begin_transaction", "commit_transaction", "close", "flush"])
def test_a_second_thread_does_not_move_what_a_commit_goes_by(clock: ManualClock, call: str) -> None:
    """A commit that waits for its writes fails if one of them fails, even if another thread calls the
    producer meanwhile."""
    store = GatedStore()
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("payments", partitions=3, schema=SCHEMA, key="account_id")
        producer = started(engine)
        sent = [producer.produce("payments", payments(number), partition=number) for number in range(3)]
        sent[0].result()
        outcome: Future[None] = Future()

        def commit() -> None:
            try:
                outcome.set_result(producer.commit_transaction())
            except TxnEngineError as error:
                outcome.set_exception(error)

        def interfere() -> None:
            arguments = ("payments", payments(9)) if call == "produce" else ()
            with contextlib.suppress(TxnEngineError):
                getattr(producer, call)(*arguments)

        committing = threading.Thread(target=commit)
        committing.start()
        wait_for(lambda: producer._cell.ender, what="the commit to begin")
        store.failing.set()
        wait_for(lambda: producer._cell.now.error, what="the failure of partition 1's file")
        other = threading.Thread(target=interfere)
        other.start()
        other.join(0.2)
        store.slow.set()
        committing.join(LIMIT_S)
        other.join(LIMIT_S)
        with pytest.raises(TransactionAbortableError):
            outcome.result(0)
        assert accounts_in(engine) == []
        producer.abort_transaction()


def test_files_are_not_named_in_a_later_topic_of_the_name(engine: Engine) -> None:
    """Files that were uploaded before their topic was deleted and created again are refused, because they lie
    in the old topic's folders."""
    producer = started(engine)
    topic = engine.logs.topics.look_up("payments")
    tools, log = engine.logs.tools, engine.logs.get("payments", topic.incarnation, 0)
    encoded = upload_records(
        tools.objects,
        tools.new_id,
        log.keys.prefix,
        payments(1, 2),
        topic.schemas.layout,
        log_end=0,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        timestamp_ms=1,
    )
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
        producer.produce_files(topic, [(0, encoded)]).result()
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    assert accounts_in(engine) == []
    assert engine.admin.verify().ok


def test_a_failed_read_moves_no_position(clock: ManualClock) -> None:
    """A poll that fails half-way returns everything the next time."""
    inner = MemoryStore(f"hard-{next(_NAMES)}")
    with Engine(inner, clock=clock) as healthy:
        healthy.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        for turn in range(3):
            healthy.partition("payments", 0).append(payments(turn, turn + 10))
    failing = {"on": False}

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        return "before" if failing["on"] and "data/00000000000000000002" in key else None

    store = FaultyStore(inner, decide=decide, error=raising(StoreUnreachableError))
    with Engine(store, clock=clock, pause=no_pause) as engine:
        consumer = engine.consumer()
        consumer.assign([P0])
        failing["on"] = True
        with pytest.raises(StoreUnavailableError):
            consumer.poll()
        failing["on"] = False
        batch = consumer.poll()
        assert batch is not None
        assert batch["account_id"].to_pylist() == [0, 10, 1, 11, 2, 12]


def test_a_commit_stays_open_until_the_log_has_answered(clock: ManualClock) -> None:
    """If a producer is fenced after a lost reply while the log cannot be read, the same call learns later
    that it committed."""
    inner = MemoryStore(f"hard-{next(_NAMES)}")
    mode = {"now": "well"}

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if "__transaction_state" not in key or mode["now"] == "well":
            return None
        if mode["now"] == "lost reply" and operation == "put_if_absent":
            mode["now"] = "deaf"
            return "after"
        if mode["now"] == "no history" and not key.endswith("00000.parquet"):
            return None
        return "before"

    with (
        Engine(inner, clock=clock) as other,
        Engine(FaultyStore(inner, decide=decide), clock=clock, pause=no_pause) as engine,
    ):
        other.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        producer = engine.producer(transactional_id="job")
        producer.init_transactions()
        producer.begin_transaction("r1")
        producer.produce("payments", payments(1)).result()
        mode["now"] = "lost reply"
        with pytest.raises(TxnEngineError):
            producer.commit_transaction()
        other.producer(transactional_id="job").init_transactions()
        mode["now"] = "no history"
        with pytest.raises(StoreAccessError):
            producer.commit_transaction()
        mode["now"] = "well"
        producer.commit_transaction()
        assert producer.has_committed("r1") is True
        assert accounts_in(other) == [1]
        with pytest.raises(ProducerFencedError):
            producer.begin_transaction()


def test_a_reader_that_breaks_takes_the_transaction_with_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a stream of records fails after its first part, no half of it can be committed."""
    monkeypatch.setattr(sender_module, "READER_PART_BYTES", 1)

    def batches():  # type: ignore[no-untyped-def]
        yield from payments(1).to_batches()
        raise ValueError("the source broke")

    producer = started(engine)
    with pytest.raises(ValueError, match="the source broke"):
        producer.produce("payments", pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    assert accounts_in(engine) == []


def test_more_than_the_buffer_holds(engine: Engine) -> None:
    """A transaction's first call may be larger than the buffer, and does not wait for itself to free it."""
    producer = engine.producer(transactional_id="job", buffer_memory=200)
    producer.init_transactions()
    producer.begin_transaction()
    assert within(20, threading.Thread(target=lambda: producer.produce("payments", payments(*range(200)))))
    producer.commit_transaction()
    assert accounts_in(engine) == list(range(200))


def test_interrupted_between_queue_and_join(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Ctrl-C comes after a batch is queued and before its partition joins the transaction, close aborts
    and returns."""
    producer = started(engine)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("txn_engine.producer.intake.Intake.want", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.produce("payments", payments(1))
    monkeypatch.undo()
    assert within(20, threading.Thread(target=producer.close))
    assert accounts_in(engine) == []


def test_an_engine_that_was_closed(url: str, clock: ManualClock) -> None:
    """Producing with a closed engine fails at once, and closing the producer does not hang."""
    engine = txn_engine_on(url, clock)
    producer = engine.producer()
    producer.produce("payments", payments(1)).result()
    engine.close()
    with pytest.raises(IllegalStateError):
        producer.produce("payments", payments(2))
    told: list[BaseException] = []

    def close() -> None:
        try:
            producer.close()
        except TxnEngineError as error:
            told.append(error)

    assert within(20, threading.Thread(target=close))
    assert [error.reason for error in told] == [Reason.ENGINE_CLOSED]


def txn_engine_on(url: str, clock: ManualClock) -> Engine:
    engine = Engine(MemoryStore(url.removeprefix("memory://")), clock=clock)
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    return engine


def test_producing_from_a_callback(engine: Engine) -> None:
    """A future's callback can send the next batch while another thread flushes."""
    with engine.producer() as producer:
        chained: Future[object] = Future()

        def send_more(_: object) -> None:
            chained.set_result(producer.produce("payments", payments(2), partition=0).result)

        producer.produce("payments", payments(1), partition=0).add_done_callback(send_more)
        assert within(20, threading.Thread(target=producer.flush))
        assert callable(chained.result(timeout=LIMIT_S))
    assert accounts_in(engine) == [1, 2]


def test_a_forked_child_does_not_hang(engine: Engine) -> None:
    """In a forked child every call is refused, and close only lets go."""
    producer = started(engine)
    producer.produce("payments", payments(1)).result()
    assert refused_in_a_child(producer.flush, then=producer.close) == 0
    producer.commit_transaction()
    assert accounts_in(engine) == [1]


def test_a_forked_child_is_refused_by_an_engine_whose_locks_were_held(engine: Engine) -> None:
    """No call of an inherited engine waits for a lock that a thread of the parent held at the fork."""
    consumer = engine.consumer()
    consumer.assign([TopicPartition("payments", 0)])
    log = engine.logs.get("payments", 0, 0)
    for lock in (
        log._lock,
        engine.logs._lock,
        engine.logs.topics._lock,
        engine.coordinator._producer_ids._lock,
    ):
        held, let_go = threading.Event(), threading.Event()

        def hold(
            lock: OwnLock = lock, held: threading.Event = held, let_go: threading.Event = let_go
        ) -> None:
            with lock.here():
                held.set()
                let_go.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(LIMIT_S)
        calls: tuple[Callable[[], object], ...] = (
            lambda: consumer.poll(timeout_ms=0),
            lambda: engine.coordinator.init_producer_id(None),
            lambda: engine.coordinator.init_producer_id("job"),
            lambda: engine.partition("payments", 0).append(payments(1)),
            lambda: engine.scan("payments").to_table(),
            lambda: engine.producer().produce("payments", payments(1)).result(timeout=LIMIT_S),
            engine.admin.list_transactions,
        )
        try:
            for call in calls:
                assert refused_in_a_child(call, then=engine.close) == 0, f"{lock} {call}"
        finally:
            let_go.set()
            holder.join()


def refused_in_a_child(call: Callable[[], object], *, then: Callable[[], None]) -> int:
    """The exit status of a forked child: 0 if the call is refused there and `then` returns."""

    def try_it() -> None:
        with pytest.raises(IllegalStateError):
            call()
        then()

    return in_a_child(try_it)


def test_an_idempotent_producer_tells_of_what_it_lost(engine: Engine) -> None:
    """An idempotent producer raises the error of a failed batch at flush, at later calls, and at the end of
    the with block."""
    producer = engine.producer()
    producer.produce("payments", payments(1), partition=0).result()
    log = engine.partition("payments", 0)
    log.append_marker(
        producer_id=producer.producer_id, producer_epoch=9, committed=False, coordinator_epoch=0
    )
    producer.produce("payments", payments(2), partition=0)
    with pytest.raises(InvalidProducerEpochError):
        producer.flush()
    with pytest.raises(InvalidProducerEpochError):
        producer.produce("payments", payments(3))


def test_who_was_fenced_at_the_last_epoch_goes_on_under_another_id(
    engine: Engine, clock: ManualClock
) -> None:
    """A producer that was fenced at epoch 32766 would get 32767, which nothing could fence. Its abort rotates
    the producer id instead, however often it is sent, and the next time-out ends the next transaction too."""
    write_transaction_state(engine, "job", state="CompleteCommit", producer_id=777, producer_epoch=32765)
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    assert (producer.producer_id, producer.producer_epoch) == (777, 32766)
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    time_out(engine, clock)
    producer.abort_transaction()
    assert producer.producer_id != 777
    assert producer.producer_epoch == 0
    at_rest(producer)
    again = engine.coordinator.end_transaction("job", 777, 32766, committed=False)
    assert again == (producer.producer_id, 0)
    assert engine.coordinator.init_producer_id("job", producer_id=777, producer_epoch=32766) == again
    producer.begin_transaction()
    producer.produce("payments", payments(2), partition=0).result()
    time_out(engine, clock)
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        producer.produce("payments", payments(3), partition=1).result()
    with pytest.raises(TxnEngineError):
        producer.commit_transaction()
    assert accounts_in(engine) == []
    log = engine.partition("payments", 0)
    assert log.last_stable_offset == log.high_watermark
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == ()


def time_out(engine: Engine, clock: ManualClock) -> None:
    clock.advance(100_000)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == ("job",)


@pytest.mark.parametrize("succeeded", [False, True], ids=["by nobody", "by another, who let the id expire"])
def test_a_producer_id_is_never_given_out_twice(engine: Engine, clock: ManualClock, succeeded: bool) -> None:
    """A producer id is not given out twice, even if the reply to an id's first row was lost and its slot was
    sealed before the coordinator looked again."""
    other, used = "job-of-another", set()

    def days_pass() -> None:
        if succeeded:
            used.add(engine.coordinator.init_producer_id("job").producer_id)
            clock.advance(8 * DAY_MS)
            assert engine.coordinator.expire_transactional_ids().transactional_ids == ("job",)
        for _ in range(4):
            engine.coordinator.init_producer_id(other)
            engine.admin.snapshot("__transaction_state")
            clock.advance(DAY_MS)
        everything = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1)
        partition = engine.admin.coordinator_partition("job")
        engine.maintenance.retain("__transaction_state", partition, policy=everything)
        assert engine.maintenance.seal("__transaction_state", partition).partitions[0].seals > 0

    def fault(operation: Operation, key: str, _: int) -> Fault | None:
        is_row = operation == "put_if_absent" and "__transaction_state" in key and "/log/" in key
        return "after" if is_row and not lost else None

    def reply_is_lost(_: Operation, key: str) -> StoreUnreachableError:
        lost.append(key)
        days_pass()
        return StoreUnreachableError("no answer", actor="store", place=key)

    lost: list[str] = []
    while engine.admin.coordinator_partition(other) != engine.admin.coordinator_partition("job"):
        other += "s"
    store = FaultyStore(engine.store, decide=fault, error=reply_is_lost)
    with Engine(store, clock=clock, pause=no_pause) as sleeper:
        mine = sleeper.coordinator.init_producer_id("job").producer_id
        theirs = sleeper.coordinator.init_producer_id("somebody's").producer_id
    assert lost
    assert mine != theirs
    assert not used & {mine, theirs}


def test_a_partition_without_the_marker_is_not_done(engine: Engine) -> None:
    """A decision stays pending, and the sweep reports it, if a partition refuses its marker because the
    transaction is open at that very epoch."""
    log = engine.partition("payments", 0)
    log.append(payments(1), producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True)
    write_transaction_state(
        engine, "odd", state="PrepareCommit", producer_id=9, producer_epoch=1, partitions=[P0]
    )
    assert engine.coordinator.write_pending_markers().failures != ()
    assert engine.admin.describe_transaction("odd").state == "PrepareCommit"


def test_asking_for_the_offset_pins_nothing(engine: Engine) -> None:
    """A poll's commit names the row that the poll found, not the one that committed() found before it."""
    engine.partition("payments", 0).append(payments(1, 2, 3))
    first, second = engine.consumer(group_id="g"), engine.consumer(group_id="g")
    for consumer in (first, second):
        consumer.assign([P0])
    assert first.committed([P0]) == {}
    assert second.poll(1) is not None
    second.commit()
    batch = first.poll()
    assert batch is not None
    assert batch["account_id"].to_pylist() == [2, 3]
    first.commit()


def test_a_commit_without_an_answer_is_the_members_own(clock: ManualClock) -> None:
    """A plain commit that was stored without an answer is recognised when the member commits again."""
    inner = MemoryStore(f"hard-{next(_NAMES)}")
    deaf = {"on": False, "armed": False}

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if deaf["armed"] and operation == "put_if_absent" and "__consumer_offsets" in key:
            deaf.update(on=True, armed=False)
            return "after"
        return "before" if deaf["on"] else None

    with Engine(FaultyStore(inner, decide=decide), clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        engine.partition("payments", 0).append(payments(1, 2, 3))
        consumer = engine.consumer(group_id="g")
        consumer.assign([P0])
        consumer.poll(1)
        deaf["armed"] = True
        with pytest.raises(OutcomeUnknownError):
            consumer.commit()
        deaf["on"] = False
        consumer.poll(1)
        consumer.commit()
        assert consumer.committed([P0])[P0].offset == 2


def test_two_makers_of_a_topic(url: str, clock: ManualClock) -> None:
    """Two engines create the same topic at the same time, and exactly one of them succeeds."""
    store = MemoryStore(f"hard-{next(_NAMES)}")
    outcomes: list[str] = []
    with Engine(store, clock=clock) as first, Engine(store, clock=clock) as second:
        barrier = threading.Barrier(2)

        def make(engine: Engine) -> None:
            barrier.wait()
            try:
                engine.admin.create_topic("t", partitions=1, schema=SCHEMA)
                outcomes.append("made")
            except TopicExistsError:
                outcomes.append("exists")

        threads = [threading.Thread(target=make, args=(engine,)) for engine in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(outcomes) == ["exists", "made"]


def test_a_topic_made_again_during_a_transaction(url: str, clock: ManualClock) -> None:
    """A transaction that wrote into a topic's earlier incarnation cannot commit as if nothing had happened."""
    store = MemoryStore(f"hard-{next(_NAMES)}")
    with Engine(store, clock=clock) as engine, Engine(store, clock=clock) as other:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        producer = engine.producer(transactional_id="job")
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", payments(1))
        other.admin.delete_topic("payments")
        other.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        producer.begin_transaction()
        sent = producer.produce("payments", payments(2))
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
            sent.result()
        producer.abort_transaction()
        with producer.transaction():
            producer.produce("payments", payments(3))
        assert accounts_in(other) == [3]


def test_a_run_that_had_nothing_to_write(engine: Engine) -> None:
    """An empty transaction with a run id is remembered, so the run need not be repeated."""
    with engine.producer(transactional_id="job") as producer:
        producer.init_transactions()
        with producer.transaction(run_id="sunday"):
            pass
    again = engine.producer(transactional_id="job")
    again.init_transactions()
    assert again.has_committed("sunday") is True
    assert engine.admin.verify().ok
