"""The client's own states follow what TransactionManagerTest asks of Kafka's producer.

The first tests pin which call is legal in which state, for all of them. The others pin, for each error and
the call that meets it, what the caller gets, the producer's state, and what the next calls do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from storage import MemoryStore, ObjectStore, StoreUnreachableError
from tests.kafka_rules.driver import SCHEMA, T1, T3, TOPIC, answer, fresh_id, put_row, records
from tests.support.faults import Fault, FaultyStore, Operation, no_pause, raising
from txn_engine import Engine, OffsetAndMetadata
from txn_engine.clock import Waiting
from txn_engine.errors import InvalidTransactionTimeoutError, ProducerFencedError, TransactionAbortableError
from txn_engine.producer import Producer
from txn_engine.testing import ManualClock
from txn_engine.types import ConsumerGroupMetadata, FetchedRow

NAME, OTHER_PID = "load", 5_999
ILLEGAL, ABORTABLE, FENCED = "ILLEGAL_STATE", "TRANSACTION_ABORTABLE", "PRODUCER_FENCED"
GROUP = ConsumerGroupMetadata("g", "member", {T3: FetchedRow(-1, 0)})  # who had fetched "no offset"


@dataclass
class World:
    """A store that can be made to fail, the engine of the producer under test on it, and another engine."""

    clock: ManualClock
    inner: ObjectStore = field(default_factory=lambda: MemoryStore(fresh_id("store")))

    def __post_init__(self) -> None:
        self.store = FaultyStore(self.inner, error=raising(StoreUnreachableError))
        self.other = Engine(self.inner, clock=self.clock)
        self.other.admin.create_topic(TOPIC, partitions=4, schema=SCHEMA)
        self.other.partition(TOPIC, 3).append(records(count=10))
        self.engine = Engine(self.store, clock=self.clock, pause=no_pause)
        self.producer = self.engine.producer(transactional_id=NAME)

    def fail(self, part: str, fault: Fault = "before", operation: Operation | None = None) -> None:
        """From now on every operation (or this one) on keys with `part` in them fails. The first failing put
        may take effect."""

        def decide(called: Operation, key: str, _: int) -> Fault | None:
            if part not in key or (operation is not None and called != operation):
                return None
            first = fault == "after" and called == "put_if_absent" and not self._deaf
            self._deaf = self._deaf or called == "put_if_absent"
            return "after" if first else "before"

        self._deaf = False
        self.store.decide = decide

    def mend(self) -> None:
        self.store.decide = None

    def close(self) -> None:
        self.mend()
        self.engine.close()
        self.other.close()

    # --- what happens behind the producer's back ------------------------------------------------------------

    def successor(self) -> None:
        """Another instance with the same transactional id takes over."""
        self.other.producer(transactional_id=NAME).init_transactions()

    def remapped(self) -> None:
        put_row(self.other, "Empty", name=NAME, pid=OTHER_PID, epoch=0)

    def expired(self) -> None:
        put_row(self.other, "Dead", name=NAME, pid=-1, epoch=-1)

    def swept(self) -> None:
        """Abort the transaction because it was open too long, and complete the abort."""
        self.clock.advance(60_001)
        assert self.other.coordinator.abort_timed_out_transactions().transactional_ids == (NAME,)

    def half_swept(self) -> None:
        """Abort the transaction as in `swept`, but the sweeper dies before the markers."""
        held = self.other.admin.describe_transaction(NAME)
        put_row(
            self.other,
            "PrepareAbort",
            name=NAME,
            pid=held.producer_id,
            epoch=held.producer_epoch + 1,
            partitions=held.partitions,
        )

    def marked(self) -> None:
        """Append a marker, so that the partition has seen a later epoch of the producer than the
        coordinator."""
        held = self.producer
        self.other.partition(TOPIC, 0).append_marker(
            producer_id=held.producer_id,
            producer_epoch=held.producer_epoch + 1,
            committed=False,
            coordinator_epoch=0,
        )

    def overtaken(self) -> None:
        """Write under the producer's identity, so that the producer's own next sequence does not follow."""
        held = self.producer
        self.other.partition(TOPIC, 0).append(
            records(1, 2, 3),
            producer_id=held.producer_id,
            producer_epoch=held.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )

    def moved(self) -> None:
        """Commit the group's offset, as another member would."""
        self.other.admin.reset_offsets("g", {T3: 1}, execute=True)

    def pending(self) -> None:
        """Leave another producer's commit for the group undecided."""
        producer = self.other.producer(transactional_id="another")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T3: OffsetAndMetadata(2)}, GROUP)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(ManualClock())
    yield made
    made.close()


# --- calls ------------------------------------------------------------------------------------------------


def produce(producer: Producer, partition: int = 0) -> Any:
    return producer.produce(TOPIC, records(count=1), partition=partition).result()


def send_offsets(producer: Producer) -> None:
    producer.send_offsets_to_transaction({T3: OffsetAndMetadata(5)}, GROUP)


CALLS: dict[str, Callable[[Producer], Any]] = {
    "init": Producer.init_transactions,
    "begin": Producer.begin_transaction,
    "produce": produce,
    "flush": Producer.flush,
    "send offsets": send_offsets,
    "commit": Producer.commit_transaction,
    "abort": Producer.abort_transaction,
    "close": Producer.close,
}


def in_state(world: World, state: str) -> Producer:
    """A producer in this state."""
    producer = world.producer
    if state == "UNINITIALIZED":
        return producer
    if state == "INITIALIZING":
        world.fail("__transaction_state")
        assert answer(producer.init_transactions) in ("OUTCOME_UNKNOWN", "NETWORK_EXCEPTION")
        world.mend()
        return producer
    producer.init_transactions()
    if state == "READY":
        return producer
    producer.begin_transaction()
    if state == "ABORTABLE_ERROR":
        world.overtaken()
        assert answer(lambda: produce(producer)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    elif state == "FATAL_ERROR":
        world.successor()
        assert answer(lambda: produce(producer)) == FENCED
    elif state in ("COMMITTING_TRANSACTION", "ABORTING_TRANSACTION"):
        produce(producer)
        world.fail("__transaction_state")
        end = producer.commit_transaction if state == "COMMITTING_TRANSACTION" else producer.abort_transaction
        assert answer(end) == "OUTCOME_UNKNOWN"
        world.mend()
    elif state == "CLOSED":
        producer.close()
    return producer


# state: the calls that are legal, and the state after; all others are refused and leave the state as it was
LEGAL = {
    "UNINITIALIZED": {"init": "READY"},
    "INITIALIZING": {"init": "READY"},
    "READY": {"init": "READY", "begin": "IN_TRANSACTION"},
    "IN_TRANSACTION": {
        "produce": "IN_TRANSACTION",
        "send offsets": "IN_TRANSACTION",
        "commit": "READY",
        "abort": "READY",
    },
    "ABORTABLE_ERROR": {"abort": "READY"},
    "FATAL_ERROR": {},
    "COMMITTING_TRANSACTION": {"commit": "READY"},
    "ABORTING_TRANSACTION": {"abort": "READY"},
    "CLOSED": {},
}
REFUSAL = {"ABORTABLE_ERROR": ABORTABLE, "FATAL_ERROR": FENCED}


@pytest.mark.parametrize(("state", "call"), list(product(LEGAL, CALLS)))
def test_every_call_in_every_state(world: World, state: str, call: str) -> None:
    """A legal call moves the producer as the table says. Any other is refused and writes nothing. A call out
    of order is ILLEGAL_STATE (and recoverable), in an abortable state it is TRANSACTION_ABORTABLE, and in a
    fatal one it is the first error again."""
    producer = in_state(world, state)
    found = answer(lambda: CALLS[call](producer))
    if call == "close":
        assert (found, producer.state) == (None, "CLOSED")
    elif call == "flush":
        assert found == (FENCED if state == "FATAL_ERROR" else None)
        assert producer.state == state
    elif call in LEGAL[state]:
        assert not isinstance(found, str)
        assert producer.state == LEGAL[state][call]
    else:
        assert found == REFUSAL.get(state, ILLEGAL)
        assert producer.state == state


def test_a_recoverable_mistake_harms_nothing(world: World) -> None:
    """testForegroundInvalidStateTransitionIsRecoverable: after calls out of order the transaction commits as
    if they had not been made.
    """
    producer = in_state(world, "IN_TRANSACTION")
    produce(producer)
    assert answer(producer.begin_transaction) == ILLEGAL
    assert answer(producer.init_transactions) == ILLEGAL
    assert answer(lambda: producer.produce("nowhere", records(1))) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert answer(lambda: producer.produce(TOPIC, records(1), partition=9)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (
        answer(lambda: producer.produce(TOPIC, SCHEMA.empty_table().drop_columns(["value"])))
        == "INVALID_RECORD"
    )
    produce(producer)
    producer.commit_transaction()
    assert world.other.partition(TOPIC, 0).read(0).num_rows == 2


# --- errors -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An error: its cause, the call that meets it, what the caller gets, and the producer's state after
    it."""

    cause: Callable[[World], object]
    call: str
    code: str
    state: str
    open_before: bool = False


def store_fails(part: str, fault: Fault = "before") -> Callable[[World], None]:
    return lambda world: world.fail(part, fault)


def coordinator_fails(fault: Fault) -> Callable[[World], None]:
    """The coordinator's log fails once the partitions' logs were looked at: empty ones are asked for there."""

    def fail(world: World) -> None:
        world.engine.scan(TOPIC)
        world.fail("__transaction_state", fault)

    return fail


EPOCH, SEQUENCE, STATE = "INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_TXN_STATE"
UNMAPPED, UNKNOWN = "INVALID_PRODUCER_ID_MAPPING", "OUTCOME_UNKNOWN"
DATA = f"topics/{TOPIC}/"
CASES = {
    # AddPartitionsToTxn
    "add: a successor took over": Case(World.successor, "produce", FENCED, "FATAL_ERROR"),
    "add: another producer id": Case(World.remapped, "produce", UNMAPPED, "FATAL_ERROR"),
    "add: the id has expired": Case(World.expired, "produce", UNMAPPED, "FATAL_ERROR"),
    "add: the coordinator's log fails": Case(
        coordinator_fails("before"), "produce", UNKNOWN, "ABORTABLE_ERROR"
    ),
    "add: its answer is lost": Case(coordinator_fails("after"), "produce", UNKNOWN, "ABORTABLE_ERROR"),
    # Produce
    "produce: fenced at the partition": Case(World.marked, "produce", EPOCH, "ABORTABLE_ERROR"),
    "produce: a successor took over": Case(
        World.successor, "produce", EPOCH, "ABORTABLE_ERROR", open_before=True
    ),
    "produce: timed out meanwhile": Case(World.swept, "produce", EPOCH, "ABORTABLE_ERROR", open_before=True),
    "produce: out of order": Case(World.overtaken, "produce", SEQUENCE, "ABORTABLE_ERROR"),
    "produce: the partition's log fails": Case(
        store_fails(DATA), "produce", "NETWORK_EXCEPTION", "ABORTABLE_ERROR"
    ),
    "produce: its answer is lost": Case(
        lambda world: world.fail(f"{DATA}0/0/log/", "after"),
        "produce",
        UNKNOWN,
        "ABORTABLE_ERROR",
        open_before=True,
    ),
    # AddOffsetsToTxn and TxnOffsetCommit
    "offsets: a successor took over": Case(World.successor, "send offsets", FENCED, "FATAL_ERROR"),
    "offsets: another producer id": Case(World.remapped, "send offsets", UNMAPPED, "FATAL_ERROR"),
    "offsets: the group moved on": Case(World.moved, "send offsets", "OFFSETS_MOVED", "ABORTABLE_ERROR"),
    "offsets: another's are pending": Case(
        World.pending, "send offsets", "OFFSETS_PENDING", "ABORTABLE_ERROR"
    ),
    "offsets: the group's log fails": Case(
        lambda world: world.fail("__consumer_offsets", "before", "put_if_absent"),
        "send offsets",
        UNKNOWN,
        "ABORTABLE_ERROR",
    ),
    # EndTxn
    "commit: a successor took over": Case(World.successor, "commit", FENCED, "FATAL_ERROR", open_before=True),
    "commit: another producer id": Case(World.remapped, "commit", UNMAPPED, "FATAL_ERROR", open_before=True),
    "commit: the id has expired": Case(World.expired, "commit", UNMAPPED, "FATAL_ERROR", open_before=True),
    "commit: timed out": Case(World.swept, "commit", STATE, "FATAL_ERROR", open_before=True),
    "commit: being timed out": Case(World.half_swept, "commit", STATE, "FATAL_ERROR", open_before=True),
    "commit: the coordinator's log fails": Case(
        store_fails("__transaction_state"), "commit", UNKNOWN, "COMMITTING_TRANSACTION", open_before=True
    ),
    "commit: its answer is lost": Case(
        store_fails("__transaction_state", "after"),
        "commit",
        UNKNOWN,
        "COMMITTING_TRANSACTION",
        open_before=True,
    ),
    "abort: a successor took over": Case(World.successor, "abort", FENCED, "FATAL_ERROR", open_before=True),
    "abort: another producer id": Case(World.remapped, "abort", UNMAPPED, "FATAL_ERROR", open_before=True),
    "abort: the coordinator's log fails": Case(
        store_fails("__transaction_state"), "abort", UNKNOWN, "ABORTING_TRANSACTION", open_before=True
    ),
    "abort: its answer is lost": Case(
        store_fails("__transaction_state", "after"),
        "abort",
        UNKNOWN,
        "ABORTING_TRANSACTION",
        open_before=True,
    ),
}


def meet(world: World, case: Case) -> tuple[Producer, object]:
    """Return a producer that has just met the error, and what the caller got."""
    producer = in_state(world, "IN_TRANSACTION")
    if case.open_before:
        produce(producer)
    case.cause(world)
    found = answer(lambda: CALLS[case.call](producer))
    world.mend()
    return producer, found


@pytest.mark.parametrize("name", CASES)
def test_what_an_error_does_to_the_producer(world: World, name: str) -> None:
    """The call that met the error raises it, and the producer's state follows at once."""
    case = CASES[name]
    producer, found = meet(world, case)
    assert found == case.code
    assert producer.state == case.state
    answer(producer.begin_transaction)  # refused, as in any of these states
    assert producer.state == case.state


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.state == "FATAL_ERROR"])
def test_after_a_fatal_error_nothing_but_closing(world: World, name: str) -> None:
    """testFailIfNotReadyForSendAfterFatalError and similar ones: every later call raises the first error
    again. Closing is allowed, and a new producer under the id starts afresh."""
    case = CASES[name]
    producer, _ = meet(world, case)
    for call in CALLS.values():
        if call is not Producer.close:
            assert answer(lambda call=call: call(producer)) == case.code  # type: ignore[misc]
    producer.close()
    fresh = world.engine.producer(transactional_id=NAME)
    fresh.init_transactions()
    with fresh.transaction():
        produce(fresh, 1)
    assert world.other.partition(TOPIC, 1).read(0).num_rows == 1
    assert world.other.partition(TOPIC, 0).read(0).num_rows == 0


ABORTED_AND_ON = [
    name for name, case in CASES.items() if case.state == "ABORTABLE_ERROR" and "successor" not in name
]


@pytest.mark.parametrize("name", ABORTED_AND_ON)
def test_after_an_abortable_error_abort_and_go_on(world: World, name: str) -> None:
    """testAllowAbortOnProduceFailure, testRecoveryFromAbortableError*: only an abort is accepted. Then the
    same producer goes on under a new epoch, and no reader sees a record of the failed transaction."""
    producer, _ = meet(world, CASES[name])
    for call in ("begin", "produce", "send offsets", "commit", "init"):
        assert answer(lambda call=call: CALLS[call](producer)) == ABORTABLE  # type: ignore[misc]
    epoch = producer.producer_epoch
    reached = world.other.admin.describe_transaction(NAME).state != "Empty"
    producer.abort_transaction()
    assert producer.state == "READY"
    assert producer.producer_epoch - epoch in (
        [1] if reached else [0, 1]
    )  # an unknown AddPartitions may have landed
    producer.begin_transaction()
    produce(producer, 1)
    producer.commit_transaction()
    assert world.other.partition(TOPIC, 1).read(0).num_rows == 1
    assert world.other.partition(TOPIC, 0).read(0).num_rows == 0
    log = world.other.partition(TOPIC, 0)
    assert log.last_stable_offset == log.high_watermark


def test_an_abort_that_finds_a_successor_is_fatal(world: World) -> None:
    """testInvalidProducerEpochFromProduce: the partition's INVALID_PRODUCER_EPOCH is abortable. The abort
    then learns from the coordinator that it was fenced."""
    producer, found = meet(world, CASES["produce: a successor took over"])
    assert found == EPOCH
    assert answer(producer.commit_transaction) == ABORTABLE
    assert answer(producer.abort_transaction) == FENCED
    assert producer.state == "FATAL_ERROR"
    assert answer(producer.begin_transaction) == FENCED


@pytest.mark.parametrize("cause", [World.swept, World.half_swept])
def test_a_timed_out_transaction_can_be_aborted(world: World, cause: Callable[[World], None]) -> None:
    """An abort after the sweep's abort is a retry of that abort. It is answered with the bumped epoch, and
    the producer goes on."""
    producer = in_state(world, "IN_TRANSACTION")
    produce(producer)
    cause(world)
    epoch = producer.producer_epoch
    producer.abort_transaction()
    assert (producer.state, producer.producer_epoch) == ("READY", epoch + 1)
    with producer.transaction():
        produce(producer)
    assert world.other.partition(TOPIC, 0).read(0).num_rows == 1


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("fault", ["before", "after"])
def test_an_end_without_an_answer_is_asked_again(world: World, end: str, fault: Fault) -> None:
    """testRetryCommitTransactionAfterTimeout, testRetryAbortTransactionAfterTimeout, and their opposites: the
    same call again learns the outcome. The other call is out of order and changes nothing, and the epoch
    grows once."""
    case = Case(store_fails("__transaction_state", fault), end, UNKNOWN, "", open_before=True)
    producer, _ = meet(world, case)
    epoch = producer.producer_epoch
    other = "abort" if end == "commit" else "commit"
    for call in (other, "begin", "produce", "send offsets", "init"):
        assert answer(lambda call=call: CALLS[call](producer)) == ILLEGAL  # type: ignore[misc]
    CALLS[end](producer)
    assert (producer.state, producer.producer_epoch) == ("READY", epoch + 1)
    log = world.other.partition(TOPIC, 0)
    assert log.read(0).num_rows == (1 if end == "commit" else 0)
    assert log.high_watermark == 2


@pytest.mark.parametrize("fault", ["before", "after"])
def test_init_without_an_answer_is_asked_again(world: World, fault: Fault) -> None:
    """testRetryInitTransactionsAfterTimeout: no other call is allowed, and the same call again
    initialises."""
    world.fail("__transaction_state", fault)
    assert answer(world.producer.init_transactions) in (UNKNOWN, "NETWORK_EXCEPTION")
    assert world.producer.state == "INITIALIZING"
    assert answer(world.producer.begin_transaction) == ILLEGAL
    world.mend()
    world.producer.init_transactions()
    assert world.producer.state == "READY"


def test_a_timeout_that_is_not_allowed_is_fatal(world: World) -> None:
    """INVALID_TRANSACTION_TIMEOUT finishes the producer, and every later call raises it again."""
    producer = world.engine.producer(transactional_id="slow", transaction_timeout_ms=900_001)
    with pytest.raises(InvalidTransactionTimeoutError) as refused:
        producer.init_transactions()
    assert producer.state == "FATAL_ERROR"
    for call in ("init", "begin", "produce", "commit"):
        with pytest.raises(InvalidTransactionTimeoutError) as again:
            CALLS[call](producer)
        assert again.value is refused.value
    producer.close()


def test_init_again_after_a_successor(world: World) -> None:
    """testProducerFencedExceptionInInitProducerId: a producer that initialises again with an identity that was taken
    over is fenced for good, and does not fence its successor.
    """
    world.producer.init_transactions()
    world.successor()
    held = world.other.admin.describe_transaction(NAME)
    with pytest.raises(ProducerFencedError):
        world.producer.init_transactions()
    assert world.producer.state == "FATAL_ERROR"
    assert answer(world.producer.begin_transaction) == FENCED
    assert world.other.admin.describe_transaction(NAME) == held


# --- what the producer does by itself ---------------------------------------------------------------------


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
@pytest.mark.parametrize("call", ["init", "produce", "send offsets"])
def test_a_decided_transaction_is_finished_by_the_way(world: World, state: str, call: str) -> None:
    """The producer handles CONCURRENT_TRANSACTIONS itself. It finishes the markers of its id and asks
    again."""
    producer = world.producer
    if call != "init":
        producer.init_transactions()
        producer.begin_transaction()
    pid, epoch = (5_010, 4) if call == "init" else (producer.producer_id, producer.producer_epoch)
    put_row(world.other, state, name=NAME, pid=pid, epoch=epoch, partitions=[T1])
    CALLS[call](producer)
    assert world.other.partition(TOPIC, 1).high_watermark == 1
    assert world.other.admin.describe_transaction(NAME).state == ("Empty" if call == "init" else "Ongoing")


def test_a_decision_that_cannot_be_finished_ends_the_patience(world: World) -> None:
    """If the markers cannot be written for longer than the limit, REQUEST_TIMED_OUT says why, and the call
    may be made again."""
    now_ms = 0

    def pause(ms: int) -> None:
        nonlocal now_ms
        now_ms += ms

    waiting = Waiting(lambda: now_ms, pause)
    put_row(world.other, "PrepareAbort", name=NAME, partitions=[T1])
    with Engine(world.store, clock=world.clock, pause=no_pause, waiting=waiting) as engine:
        producer = engine.producer(transactional_id=NAME, request_timeout_ms=30_000)
        world.fail(f"{DATA}0/1/log/")
        assert answer(producer.init_transactions) == "REQUEST_TIMED_OUT"
        assert now_ms > 30_000
        assert producer.state == "INITIALIZING"
        world.mend()
        producer.init_transactions()
        assert producer.state == "READY"


def test_partitions_are_added_once(world: World) -> None:
    """testMaybeAddPartitionToTransaction: the first write to a partition adds it, and later ones ask
    nobody."""
    producer = in_state(world, "IN_TRANSACTION")
    rows = lambda: sum(  # noqa: E731
        1
        for operation, key, _ in world.store.calls
        if operation == "put_if_absent" and "topics/__transaction_state" in key
    )
    before = rows()
    for partition in (0, 0, 1, 0, 1):
        produce(producer, partition)
    assert rows() - before == 2
    producer.commit_transaction()
    producer.close()
    assert rows() - before == 4


def test_nothing_sent_is_nothing_asked(world: World) -> None:
    """A test like shouldNotSendAbortTxnRequestWhenOnlyAddPartitionsRequestFailed: the end of an empty
    transaction writes no row and keeps the epoch."""
    producer = in_state(world, "READY")
    epoch, calls = producer.producer_epoch, len(world.store.calls)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        end()
    assert (producer.producer_epoch, len(world.store.calls)) == (epoch, calls)


def test_a_commit_waits_for_what_is_under_way(world: World) -> None:
    """testCommitTransactionWithInFlightProduceRequest: a commit contains every record that was handed over
    before it."""
    producer = in_state(world, "IN_TRANSACTION")
    sent = [producer.produce(TOPIC, records(count=1), partition=number % 4) for number in range(40)]
    producer.commit_transaction()
    assert all(future.done() for future in sent)
    assert sum(world.other.partition(TOPIC, number).read(0).num_rows for number in range(4)) == 50


def test_nothing_overtakes_a_failed_write(world: World) -> None:
    """testAbortTransactionAndReuseSequenceNumberOnError: after a failure nothing overtakes. Writes that are
    queued after it in the partition fail too, or are no longer accepted, and the next transaction begins at
    sequence 0."""
    producer = in_state(world, "IN_TRANSACTION")
    world.overtaken()
    sent = [answer(lambda: producer.produce(TOPIC, records(count=1), partition=0)) for _ in range(3)]
    codes = [each if isinstance(each, str) else answer(each.result) for each in sent]
    assert codes[0] == SEQUENCE
    assert set(codes[1:]) <= {SEQUENCE, ABORTABLE}
    producer.abort_transaction()
    with producer.transaction():
        assert produce(producer)[0].base_offset == 4
    (state,) = world.other.partition(TOPIC, 0).producers()
    assert state.last_sequence == -1  # the commit's marker is of the next epoch


def test_sequences_go_on_in_an_epoch_and_begin_anew_in_the_next(world: World) -> None:
    """testDefaultSequenceNumber, testSequenceNumber*: sequences are 0, 1, 2 in one transaction, and start
    again from 0 in the next one."""
    producer = in_state(world, "READY")
    for _ in range(2):
        producer.begin_transaction()
        for expected in range(3):
            produce(producer)
            (state,) = world.other.partition(TOPIC, 0).producers()
            assert (state.producer_epoch, state.last_sequence) == (producer.producer_epoch, expected)
        producer.commit_transaction()


def test_the_block_aborts_what_cannot_commit(world: World) -> None:
    """A `with producer.transaction()` whose write failed raises, and leaves the producer ready for the next try."""
    producer = in_state(world, "READY")
    world.overtaken()
    with pytest.raises(TransactionAbortableError), producer.transaction():
        producer.produce(TOPIC, records(count=1), partition=0)
    assert producer.state == "READY"
    with producer.transaction():
        produce(producer)
    assert world.other.partition(TOPIC, 0).read(0).num_rows == 1


def test_closing_aborts_what_is_open(world: World) -> None:
    """testSenderShutdownWithPendingTransactions: close aborts the open transaction, so nobody waits for the
    time-out."""
    producer = in_state(world, "IN_TRANSACTION")
    produce(producer)
    producer.close()
    assert world.other.admin.describe_transaction(NAME).state == "CompleteAbort"
    log = world.other.partition(TOPIC, 0)
    assert log.last_stable_offset == log.high_watermark == 2


# --- without a transactional id ---------------------------------------------------------------------------


@pytest.mark.parametrize("call", [name for name in CALLS if name not in ("produce", "flush", "close")])
def test_an_idempotent_producer_has_no_transactions(world: World, call: str) -> None:
    """A transactional call without a transactional id is a mistake in the program, and the producer goes
    on."""
    producer = world.engine.producer()
    assert answer(lambda: CALLS[call](producer)) == ILLEGAL
    produce(producer)
    assert world.other.partition(TOPIC, 0).read(0).num_rows == 1


@pytest.mark.parametrize("fault", ["before", "after"])
def test_an_idempotent_producer_says_what_it_lost(world: World, fault: Fault) -> None:
    """Where we differ from Kafka's client, which bumps its epoch and goes on: a refused or unknown batch ends
    the producer. Later calls say so, and a new one starts afresh."""
    producer = world.engine.producer()
    produce(producer)
    world.fail(f"{DATA}0/0/log/", fault)
    assert answer(lambda: produce(producer)) == UNKNOWN
    world.mend()
    for call in (lambda: produce(producer), producer.flush):
        assert answer(call) == UNKNOWN
    producer.close()
    fresh = world.engine.producer()
    produce(fresh)
    assert fresh.producer_id != producer.producer_id
