"""Each request of the protocol can be sent again safely after a lost reply, whether or not it was done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count

import pytest

from storage import MemoryStore
from tests.engine.conftest import SCHEMA, at_rest, payments
from tests.engine.sealing import seal_below_end
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    ConcurrentTransactionsError,
    IllegalStateError,
    InvalidTxnStateError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortableError,
    TxnEngineError,
)
from txn_engine.producer import Producer
from txn_engine.testing import ManualClock, write_transaction_state

P0 = TopicPartition("payments", 0)
COORDINATOR, OFFSETS = "topics/__transaction_state", "topics/__consumer_offsets"
DATA_LOG = "topics/payments/0/0/log"
_NAMES = count()


class Cable:
    """The line between one client and the store. It breaks right before or right after a put that the test
    names."""

    def __init__(self, inner: MemoryStore) -> None:
        self.store = FaultyStore(inner, decide=self._decide)
        self.is_cut = False
        self._breaks_at: tuple[str, Fault] | None = None

    def break_at(self, key: str, *, done: bool) -> None:
        """Break the line at the next put-if-absent to a key that contains this text. `done` says whether the
        put takes effect."""
        self._breaks_at = (key, "after" if done else "before")

    def mend(self) -> None:
        self.is_cut = False

    def _decide(self, operation: Operation, key: str, number: int) -> Fault | None:
        if self.is_cut:
            return "before"
        if self._breaks_at is not None and operation == "put_if_absent" and self._breaks_at[0] in key:
            fault = self._breaks_at[1]
            self._breaks_at, self.is_cut = None, True
            return fault
        return None


@pytest.fixture
def inner(clock: ManualClock) -> MemoryStore:
    store = MemoryStore(f"lost-{next(_NAMES)}")
    with Engine(store, clock=clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    return store


@pytest.fixture
def other(inner: MemoryStore, clock: ManualClock) -> Iterator[Engine]:
    """A client whose line does not break."""
    with Engine(inner, clock=clock) as engine:
        yield engine


@pytest.fixture
def cable(inner: MemoryStore) -> Cable:
    return Cable(inner)


@pytest.fixture
def engine(cable: Cable, clock: ManualClock) -> Iterator[Engine]:
    with Engine(cable.store, clock=clock, pause=no_pause) as connected:
        yield connected


@pytest.fixture(params=[True, False], ids=["done", "not done"])
def done(request: pytest.FixtureRequest) -> bool:
    """Whether the request was carried out before its reply was lost."""
    return bool(request.param)


def ready(engine: Engine) -> Producer:
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    return producer


def checked(other: Engine, *accounts: int) -> None:
    """Check the final store: exactly these accounts are committed, once each, and nothing is open or
    undecided."""
    assert other.coordinator.write_pending_markers().failures == ()
    assert accounts_in(other) == sorted(accounts)
    for offsets in other.admin.list_offsets("payments").values():
        assert offsets.last_stable_offset == offsets.high_watermark
    report = other.admin.verify()
    assert report.ok, [str(finding) for finding in report.findings]


def test_init_producer_id(cable: Cable, engine: Engine, other: Engine, done: bool) -> None:
    """A repeated InitProducerId succeeds, and the id then has an owner at an epoch that no other caller
    got."""
    producer = engine.producer(transactional_id="job")
    cable.break_at(COORDINATOR, done=done)
    with pytest.raises(OutcomeUnknownError):
        producer.init_transactions()
    with pytest.raises(TxnEngineError):
        producer.begin_transaction()
    cable.mend()
    producer.init_transactions()
    assert producer.producer_epoch == 1  # the first row is settled before anything else is put
    with producer.transaction():
        producer.produce("payments", payments(1), partition=0)
    checked(other, 1)


def test_the_fence_of_an_open_transaction(cable: Cable, engine: Engine, other: Engine, done: bool) -> None:
    """TC-08: a fence whose reply was lost bumps the epoch once, however often it is sent."""
    left = ready(other)
    left.begin_transaction()
    left.produce("payments", payments(9), partition=0).result()
    epoch = left.producer_epoch
    successor = engine.producer(transactional_id="job")
    cable.break_at(COORDINATOR, done=done)
    with pytest.raises(OutcomeUnknownError):
        successor.init_transactions()
    cable.mend()
    successor.init_transactions()
    assert successor.producer_epoch == epoch + 2  # the fence, and the initialisation after it
    with pytest.raises(ProducerFencedError):
        left.commit_transaction()
    checked(other)


def test_init_with_the_epoch_it_holds(cable: Cable, engine: Engine, other: Engine, done: bool) -> None:
    """KIP-360: a producer that names its epoch gets the same answer when it asks again, not a second bump."""
    held = engine.coordinator.init_producer_id("job")
    request = {"producer_id": held.producer_id, "producer_epoch": held.producer_epoch}
    cable.break_at(COORDINATOR, done=done)
    with pytest.raises(OutcomeUnknownError):
        engine.coordinator.init_producer_id("job", **request)
    cable.mend()
    assert engine.coordinator.init_producer_id("job", **request) == (
        held.producer_id,
        held.producer_epoch + 1,
    )
    assert other.coordinator.init_producer_id("job", **request) == (held.producer_id, held.producer_epoch + 1)


def test_add_partitions(cable: Cable, engine: Engine, other: Engine, done: bool) -> None:
    """After an AddPartitions with an unknown outcome the transaction can only abort, and the next one
    succeeds."""
    producer = ready(engine)
    producer.begin_transaction()
    cable.break_at(COORDINATOR, done=done)
    with pytest.raises(OutcomeUnknownError):
        producer.produce("payments", payments(1), partition=0).result()
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    cable.mend()
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("payments", payments(2), partition=0)
    checked(other, 2)


def test_add_partitions_asked_of_the_coordinator(
    cable: Cable, engine: Engine, other: Engine, done: bool
) -> None:
    """A repeated AddPartitions succeeds, and there is one row of it."""
    held = engine.coordinator.init_producer_id("job")
    cable.break_at(COORDINATOR, done=done)
    with pytest.raises(OutcomeUnknownError):
        engine.coordinator.add_partitions("job", *held, [P0])
    cable.mend()
    engine.coordinator.add_partitions("job", *held, [P0])
    stored = other.coordinator.current("job")
    assert stored is not None
    assert (stored.offset, stored.row.state) == (1, "Ongoing")


@pytest.mark.parametrize("part", [DATA_LOG, "topics/payments/0/0/data"])
def test_produce(cable: Cable, engine: Engine, other: Engine, done: bool, part: str) -> None:
    """A batch whose entry or file has an unknown outcome is not acknowledged, and its transaction can only
    abort."""
    producer = ready(engine)
    with producer.transaction():
        producer.produce("payments", payments(1), partition=0)
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    cable.break_at(part, done=done)
    sent = producer.produce("payments", payments(2), partition=0)
    assert isinstance(sent.exception(), TxnEngineError)
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    cable.mend()
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("payments", payments(3), partition=0)
    checked(other, 1, 3)


def test_produce_by_an_idempotent_producer(cable: Cable, engine: Engine, other: Engine, done: bool) -> None:
    """Without a transaction an unknown outcome cannot be undone: the producer is finished, and its batch is
    in the log once or not at all."""
    producer = engine.producer()
    producer.produce("payments", payments(1), partition=0).result()
    cable.break_at(DATA_LOG, done=done)
    with pytest.raises(OutcomeUnknownError):
        producer.produce("payments", payments(2), partition=0).result()
    cable.mend()
    with pytest.raises(OutcomeUnknownError):
        producer.produce("payments", payments(2), partition=0)
    with engine.producer() as fresh:  # the log settles what it was left with before it puts anything else
        fresh.produce("payments", payments(3), partition=0).result()
    checked(other, 1, 2, 3)


def test_a_plain_append_with_a_sequence(cable: Cable, engine: Engine, other: Engine, done: bool) -> None:
    """A batch that is sent again with its sequence is written once and answered with its offsets."""
    log = engine.partition("payments", 0)
    batch = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    cable.break_at(DATA_LOG, done=done)
    with pytest.raises(OutcomeUnknownError):
        log.append(payments(1), **batch)
    cable.mend()
    again = log.append(payments(1), **batch)
    assert (again.base_offset, again.is_duplicate) == (0, True)
    checked(other, 1)


def test_offsets_in_a_transaction(cable: Cable, engine: Engine, other: Engine, done: bool) -> None:
    """After a TxnOffsetCommit with an unknown outcome the transaction can only abort, and the same offsets
    are committed once by the next one."""
    other.partition("payments", 0).append(payments(1, 2, 3))
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    consumer.poll()
    producer = ready(engine)
    producer.begin_transaction()
    cable.break_at(OFFSETS, done=done)
    with pytest.raises(OutcomeUnknownError):
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    cable.mend()
    producer.abort_transaction()
    with producer.transaction():
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    assert other.admin.describe_group("g").partitions[0].committed_offset == 3
    checked(other, 1, 2, 3)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("slot_taken", [False, True])
def test_end_txn(
    cable: Cable, engine: Engine, other: Engine, done: bool, committed: bool, slot_taken: bool
) -> None:
    """After an EndTxn with an unknown outcome, the producer accepts only the same call again, which finds out
    what happened even if another id's row has taken the slot."""
    producer = ready(engine)
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    end = producer.commit_transaction if committed else producer.abort_transaction
    opposite = producer.abort_transaction if committed else producer.commit_transaction
    cable.break_at(COORDINATOR, done=done)
    with pytest.raises(OutcomeUnknownError):
        end()
    for _ in range(2):  # still no line
        with pytest.raises(TxnEngineError):
            end()
    with pytest.raises(IllegalStateError):
        opposite()
    if slot_taken:
        home = engine.admin.coordinator_partition("job")
        neighbour = next(f"n{n}" for n in range(1_000) if engine.admin.coordinator_partition(f"n{n}") == home)
        write_transaction_state(other, neighbour, state="Empty", producer_id=999, producer_epoch=0)
    cable.mend()
    end()
    with producer.transaction():
        producer.produce("payments", payments(2), partition=0)
    checked(other, *([1, 2] if committed else [2]))


def test_end_txn_whose_transaction_was_swept_meanwhile(
    cable: Cable, engine: Engine, other: Engine, clock: ManualClock, done: bool
) -> None:
    """If a transaction is swept before its commit is sent again, the commit succeeds if the first one was
    carried out, and is refused if it was not."""
    producer = ready(engine)
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    cable.break_at(COORDINATOR, done=done)
    with pytest.raises(OutcomeUnknownError):
        producer.commit_transaction()
    clock.advance(60_001)
    other.coordinator.abort_timed_out_transactions()
    other.coordinator.write_pending_markers()
    cable.mend()
    if done:
        producer.commit_transaction()
        checked(other, 1)
    else:
        with pytest.raises(InvalidTxnStateError):
            producer.commit_transaction()
        checked(other)


@pytest.mark.parametrize("part", [DATA_LOG, COORDINATOR], ids=["marker", "complete"])
def test_markers_and_completion(
    cable: Cable, engine: Engine, other: Engine, done: bool, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After the decision nothing fails the commit. The producer logs which markers are missing, and the next
    writer or sweep finishes them."""
    producer = ready(engine)
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    if part == DATA_LOG:
        cable.break_at(DATA_LOG, done=done)
        with caplog.at_level(logging.WARNING):
            producer.commit_transaction()
        assert "decided, but not visible everywhere yet" in caplog.text
    else:
        producer.abort_transaction()
        at_rest(producer)
        identity = (producer.producer_id, producer.producer_epoch)
        engine.coordinator.add_partitions("job", *identity, [P0])
        engine.coordinator.end_transaction("job", *identity, committed=True, markers="deferred")
        cable.break_at(COORDINATOR, done=done)
        assert engine.coordinator.finish("job").failures != ()
    cable.mend()
    if part == DATA_LOG:
        with producer.transaction():  # the producer finishes its own id's markers
            producer.produce("payments", payments(2), partition=0)
        checked(other, 1, 2)
    else:
        assert engine.coordinator.write_pending_markers().failures == ()
        assert other.admin.describe_transaction("job").state == "CompleteCommit"
        checked(other)


def test_a_sweeps_fence(cable: Cable, engine: Engine, other: Engine, clock: ManualClock, done: bool) -> None:
    """A sweep reports the id whose fence had no reply. The next sweep ends the transaction, and the epoch is
    bumped once."""
    left = ready(other)
    left.begin_transaction()
    left.produce("payments", payments(1), partition=0).result()
    clock.advance(60_001)
    cable.break_at(COORDINATOR, done=done)
    assert engine.coordinator.abort_timed_out_transactions().failures != ()
    cable.mend()
    engine.coordinator.abort_timed_out_transactions()
    engine.coordinator.write_pending_markers()
    described = other.admin.describe_transaction("job")
    assert (described.state, described.producer_epoch) == ("CompleteAbort", left.producer_epoch + 1)
    checked(other)


def test_expiry_and_renewal(
    cable: Cable, engine: Engine, other: Engine, clock: ManualClock, done: bool
) -> None:
    """A renewal without a reply does not stop its producer, which has days to try again. The next sweep
    finishes an expiry without a reply."""
    producer = ready(engine)
    clock.advance(86_400_000)
    cable.break_at(COORDINATOR, done=done)
    producer.begin_transaction()
    assert cable.is_cut
    cable.mend()
    producer.produce("payments", payments(1), partition=0)
    producer.commit_transaction()
    at_rest(producer)
    clock.advance(7 * 86_400_000)
    cable.break_at(COORDINATOR, done=done)
    assert engine.coordinator.expire_transactional_ids().failures != ()
    cable.mend()
    engine.coordinator.expire_transactional_ids()
    stored = other.coordinator.current("job")
    assert stored is not None
    assert stored.row.state == "Dead"
    checked(other, 1)


def test_a_block_of_producer_ids(cable: Cable, engine: Engine, other: Engine, done: bool) -> None:
    """If a claim for a block of producer ids had no reply, no two clients use the block: ids are never given
    out twice."""
    cable.break_at("producer_ids/", done=done)
    with pytest.raises(OutcomeUnknownError):
        engine.coordinator.init_producer_id(None)
    cable.mend()
    mine = {engine.coordinator.init_producer_id(None).producer_id for _ in range(3)}
    others = {other.coordinator.init_producer_id(None).producer_id for _ in range(3)}
    assert len(mine | others) == 6


def test_concurrent_is_answered_until_the_end_is_complete(engine: Engine, other: Engine) -> None:
    """A delayed EndTxn never decides the transaction after the one that it was meant for (KAFKA-17754)."""
    producer = ready(engine)
    identity = (producer.producer_id, producer.producer_epoch)
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    other.coordinator.end_transaction("job", *identity, committed=True, markers="deferred")
    with pytest.raises(ConcurrentTransactionsError):
        other.coordinator.end_transaction("job", *identity, committed=True)
    other.coordinator.finish("job")
    producer.commit_transaction()  # the retry: answered from the decision
    producer.begin_transaction()
    producer.produce("payments", payments(2), partition=0).result()
    with pytest.raises(ProducerFencedError):  # delivered late, while the next transaction is open
        other.coordinator.end_transaction("job", *identity, committed=True)
    producer.abort_transaction()
    checked(other, 1)


@pytest.mark.parametrize(
    ("run_id", "expected"),
    [(None, "OUTCOME_UNKNOWN"), ("mine", "PRODUCER_FENCED"), ("both", "OUTCOME_UNKNOWN")],
)
def test_a_sealed_decision_is_unknown_unless_the_run_is_known(
    cable: Cable, engine: Engine, other: Engine, run_id: str | None, expected: str
) -> None:
    """If a producer is fenced and the slot of its decision is sealed, the outcome is unknown, unless the id's
    row shows that its run was not committed. The producer is finished either way."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction(run_id)
    producer.produce("payments", payments(1), partition=0).result()
    cable.break_at(COORDINATOR, done=False)
    with pytest.raises(OutcomeUnknownError):
        producer.commit_transaction()
    successor = ready(other)
    with successor.transaction(run_id="both"):
        successor.produce("payments", payments(2), partition=0)
    seal_below_end(other, other.logs.coordinator("job"))
    cable.mend()
    for call in (producer.commit_transaction, producer.commit_transaction, producer.begin_transaction):
        with pytest.raises(TxnEngineError, check=lambda error: error.code == expected):
            call()
    checked(other, 2)
