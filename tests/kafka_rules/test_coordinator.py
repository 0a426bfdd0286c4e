"""`Engine.coordinator` answers the coordinator's requests as Kafka does (TransactionCoordinatorTest,
TransactionMetadataTest)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import txn_engine
from storage import MemoryStore, StoreUnreachableError
from tests.kafka_rules.driver import (
    MAX_EPOCH,
    SCHEMA,
    T0,
    T1,
    T2,
    TOPIC,
    answer,
    fresh_id,
    put_row,
    row_of,
    state_of,
)
from tests.support.faults import Fault, FaultyStore, Operation, no_pause, raising
from txn_engine import Engine
from txn_engine.errors import ConcurrentTransactionsError, IllegalStateError, TxnEngineError
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionRow, TransactionState
from txn_engine.protocol.transactions import fence_and_abort
from txn_engine.testing import ManualClock
from txn_engine.types import TransactionDescription

PID, EPOCH, OTHER_PID, LAST = 5_010, 5, 5_999, MAX_EPOCH - 1
FENCED, INVALID = "PRODUCER_FENCED", "INVALID_TXN_STATE"
CONCURRENT, UNMAPPED = "CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_ID_MAPPING"
TIMEOUT, REQUEST = "INVALID_TRANSACTION_TIMEOUT", "INVALID_REQUEST"
STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]
AT_REST = ["Empty", "CompleteCommit", "CompleteAbort"]


def init(engine: Engine, name: str | None, pid: int = -1, epoch: int = -1, **more: Any) -> Any:
    return answer(
        lambda: engine.coordinator.init_producer_id(name, producer_id=pid, producer_epoch=epoch, **more)
    )


# --- InitProducerId ---------------------------------------------------------------------------------------


def test_tc_01_without_an_id_and_with_an_empty_one(engine: Engine) -> None:
    """TC-01: without a transactional id every call gets a new producer id at epoch 0 and writes no row. An
    empty id is refused."""
    first, second = init(engine, None), init(engine, None)
    assert (first.producer_epoch, second.producer_epoch) == (0, 0)
    assert second.producer_id == first.producer_id + 1
    assert init(engine, "") == REQUEST
    assert engine.admin.list_transactions() == []


def test_tc_02_a_new_id(engine: Engine) -> None:
    """TC-02: a new id gets a new producer id at epoch 0, whatever producer id and epoch the caller brings."""
    assert init(engine, "a").producer_epoch == 0
    brought = init(engine, "b", 7, 3)
    assert brought.producer_id not in (7, init(engine, "a").producer_id)
    assert brought.producer_epoch == 0
    assert state_of(engine, "b") == ("Empty", *brought)


@pytest.mark.parametrize("state", AT_REST)
def test_tc_03_exhausted_epochs_give_a_new_id(table_engine: Engine, state: str) -> None:
    """TC-03: at epoch 32766 the next initialisation has another producer id, at epoch 0."""
    name = put_row(table_engine, state, pid=PID, epoch=LAST)
    found = init(table_engine, name)
    assert found.producer_epoch == 0
    assert found.producer_id != PID
    assert row_of(table_engine, name).previous_producer_id == PID


@pytest.mark.parametrize("state", AT_REST)
def test_tc_04_a_known_id_is_bumped(table_engine: Engine, state: str) -> None:
    """TC-04: at rest the epoch grows by one, the new timeout counts, and the state is Empty."""
    name = put_row(table_engine, state, pid=PID, epoch=1)
    assert init(table_engine, name, transaction_timeout_ms=10) == (PID, 2)
    found = table_engine.admin.describe_transaction(name)
    assert (found.state, found.transaction_timeout_ms, found.partitions) == ("Empty", 10, ())


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_tc_05_a_decided_transaction_comes_first(engine: Engine, state: str) -> None:
    """TC-05: while a decision is not complete, the answer is CONCURRENT_TRANSACTIONS and nothing is written.
    After that the caller gets the next epoch."""
    name = put_row(engine, state, pid=PID, epoch=EPOCH)
    before = engine.coordinator.current(name)
    assert init(engine, name) == CONCURRENT
    assert engine.coordinator.current(name) == before
    engine.coordinator.write_pending_markers()
    assert init(engine, name) == (PID, EPOCH + 1)


def test_an_open_transaction_is_fenced_and_aborted(engine: Engine) -> None:
    """TC-06: an Ongoing transaction is fenced and decided to abort in one row with one bump. The caller comes
    again when it is complete."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH, last_producer_epoch=EPOCH - 1)
    assert init(engine, name) == CONCURRENT
    assert state_of(engine, name) == ("PrepareAbort", PID, EPOCH + 1)
    assert row_of(engine, name).last_producer_epoch == EPOCH
    assert answer(lambda: engine.coordinator.end_transaction(name, PID, EPOCH, committed=True)) == INVALID
    assert init(engine, name) == CONCURRENT
    engine.coordinator.finish(name)
    assert answer(lambda: engine.coordinator.end_transaction(name, PID, EPOCH, committed=True)) == INVALID
    assert init(engine, name) == (PID, EPOCH + 2)
    assert answer(lambda: engine.coordinator.end_transaction(name, PID, EPOCH, committed=True)) == FENCED


def first_race(engine: Engine, clock: ManualClock, name: str, other: Callable[[Engine], object]) -> Engine:
    """An engine on the same store whose next row for the id comes second, because `other` runs right before
    its put."""
    prefix = engine.logs.coordinator(name).keys.log_prefix
    raced = False

    def decide(operation: Operation, key: str, _: int) -> Fault | None:
        nonlocal raced
        if operation == "put_if_absent" and key.startswith(prefix) and not raced:
            raced = True
            other(engine)
        return None

    return Engine(FaultyStore(engine.store, decide=decide), clock=clock, pause=no_pause)


def test_tc_07_the_epoch_moved_between_look_and_row(engine: Engine, clock: ManualClock) -> None:
    """TC-07: a fence that finds at its put that another one was first does not bump the epoch again. Its caller has to
    wait, and a caller with the old epoch is fenced once that is complete.
    """
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)

    def another(first: Engine) -> None:
        assert init(first, name) == CONCURRENT
        first.coordinator.finish(name)
        assert init(first, name) == (PID, EPOCH + 2)

    second = first_race(engine, clock, name, another)
    assert init(second, name, PID, EPOCH) == FENCED
    assert state_of(engine, name) == ("Empty", PID, EPOCH + 2)


@pytest.mark.parametrize("fault", ["before", "after"])
def test_tc_08_a_fence_that_has_no_answer_bumps_once(clock: ManualClock, fault: Fault) -> None:
    """TC-08: if the row of a fence fails, before or after it was stored, the epoch grows by one for the
    fence, however often the call is made again."""
    inner = MemoryStore(fresh_id("store"))
    faulty = FaultyStore(inner, error=raising(StoreUnreachableError))
    with Engine(faulty, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
        prefix = engine.logs.coordinator(name).keys.prefix
        down = True

        def decide(operation: Operation, key: str, _: int) -> Fault | None:
            if down and key.startswith(prefix):
                return fault if operation == "put_if_absent" else "before"
            return None

        faulty.decide = decide
        for _ in range(2):
            assert init(engine, name) in ("OUTCOME_UNKNOWN", "NETWORK_EXCEPTION")
        down = False
        assert init(engine, name) == CONCURRENT
        assert state_of(engine, name) == ("PrepareAbort", PID, EPOCH + 1)
        engine.coordinator.finish(name)
        assert init(engine, name) == (PID, EPOCH + 2)


def test_tc_09_a_fence_at_the_last_epoch(engine: Engine) -> None:
    """TC-09, TM-08, KAFKA-20090: an Ongoing id at 32766 is fenced and aborted at 32767, once and without overflow, and
    goes on under another producer id."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=LAST)
    for _ in range(3):
        assert init(engine, name) == CONCURRENT
        assert state_of(engine, name) == ("PrepareAbort", PID, MAX_EPOCH)
    following = row_of(engine, name).next_producer_id
    assert following not in (-1, PID)
    engine.coordinator.finish(name)
    assert state_of(engine, name) == ("CompleteAbort", following, 0)
    assert init(engine, name) == (following, 1)


def test_tc_19_a_time_out_at_the_last_epoch(engine: Engine, clock: ManualClock) -> None:
    """TC-19, KAFKA-20090: a sweep's abort at 32766 allots the next producer id, as EndTxn does. The producer's own
    abort is told it, and its commit is refused."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=LAST)
    clock.advance(10**9)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == (name,)
    state, following, epoch = state_of(engine, name)
    assert (state, epoch) == ("CompleteAbort", 0)
    assert following != PID
    end = engine.coordinator.end_transaction
    assert end(name, PID, LAST, committed=False) == (following, 0)
    assert answer(lambda: end(name, PID, LAST, committed=True)) == "INVALID_TXN_STATE"


def test_tc_14_a_decided_end_is_not_bumped(engine: Engine) -> None:
    """TC-14: an initialisation between the decision and its markers writes nothing, so the markers' epoch
    stays right.
    """
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
    engine.coordinator.end_transaction(name, PID, EPOCH, committed=True, markers="deferred")
    for _ in range(3):
        assert init(engine, name) == CONCURRENT
    assert state_of(engine, name) == ("PrepareCommit", PID, EPOCH + 1)


@pytest.mark.parametrize(
    ("timeout", "good"), [(0, False), (-1, False), (1, True), (900_000, True), (900_001, False)]
)
@pytest.mark.parametrize("state", [*STATES, "unknown"])
def test_tsm_01_the_timeout_is_checked_before_the_state(
    table_engine: Engine, state: str, timeout: int, good: bool
) -> None:
    """TSM-01: the timeout may be 1 ms to `transaction.max.timeout.ms` (900 000). Another one is refused in
    every state, and nothing is written."""
    name = fresh_id() if state == "unknown" else put_row(table_engine, state)
    before = table_engine.coordinator.current(name)
    found = init(table_engine, name, transaction_timeout_ms=timeout)
    if good:
        assert found != TIMEOUT
    else:
        assert found == TIMEOUT
        assert table_engine.coordinator.current(name) == before


def test_the_order_of_checks(table_engine: Engine) -> None:
    """The coordinator checks the id first, then the timeout, then a pending transaction, then the expected
    producer. Without an id it does not check the timeout."""
    assert init(table_engine, None, transaction_timeout_ms=0).producer_epoch == 0
    assert init(table_engine, "", transaction_timeout_ms=0) == REQUEST
    pending = put_row(table_engine, "PrepareCommit", pid=PID, epoch=EPOCH)
    assert init(table_engine, pending, OTHER_PID, 0, transaction_timeout_ms=0) == TIMEOUT
    assert init(table_engine, pending, OTHER_PID, 0) == CONCURRENT
    ongoing = put_row(table_engine, "Ongoing", pid=PID, epoch=EPOCH)
    assert init(table_engine, ongoing, OTHER_PID, 0) == FENCED
    assert state_of(table_engine, ongoing) == ("Ongoing", PID, EPOCH)


@pytest.mark.parametrize("half", [(PID, -1), (-1, EPOCH)])
def test_half_an_identity(table_engine: Engine, half: tuple[int, int]) -> None:
    """A producer id without an epoch, or an epoch without a producer id, is a wrong call."""
    assert init(table_engine, put_row(table_engine, "Empty"), *half) == REQUEST


# what the caller holds -> the answer at rest; the stored row is PID, epoch 5, last epoch 3, previous id 8
EXPECTED = {
    "nothing": ((-1, -1), EPOCH + 1),
    "the current epoch": ((PID, EPOCH), EPOCH + 1),
    "the last epoch": ((PID, 3), EPOCH),
    "an epoch in between": ((PID, 4), FENCED),
    "an older epoch": ((PID, 2), FENCED),
    "a newer epoch": ((PID, EPOCH + 1), FENCED),
    "another id": ((OTHER_PID, EPOCH), FENCED),
}


@pytest.mark.parametrize(("state", "held"), list(product(STATES, EXPECTED)))
def test_init_with_what_the_caller_holds(table_engine: Engine, state: str, held: str) -> None:
    """KIP-360 holds in every state. At rest the epoch decides. An Ongoing transaction is fenced for every
    caller with a valid id, whatever the epoch. In Prepare* the caller waits. After a tombstone every caller
    begins from the start."""
    name = put_row(table_engine, state, pid=PID, epoch=EPOCH, last_producer_epoch=3)
    (pid, epoch), at_rest = EXPECTED[held]
    found = init(table_engine, name, pid, epoch)
    if state == "Dead":
        assert found.producer_epoch == 0
        assert found.producer_id != PID
    elif state.startswith("Prepare"):
        assert found == CONCURRENT
    elif state == "Ongoing":
        assert found == (FENCED if held == "another id" else CONCURRENT)
    else:
        assert found == (at_rest if at_rest == FENCED else (PID, at_rest))


def test_a_lost_reply_of_init_is_answered_again(engine: Engine) -> None:
    """testInitProducerIdWithCurrentEpochProvided: a client that brings its epoch gets the next one, and the
    same one again if it asks again. It is fenced once a new bump came in between."""
    name = put_row(engine, "Empty", pid=PID, epoch=EPOCH)
    assert init(engine, name, PID, EPOCH) == (PID, EPOCH + 1)
    assert init(engine, name, PID, EPOCH) == (PID, EPOCH + 1)
    assert init(engine, name) == (PID, EPOCH + 2)
    assert init(engine, name, PID, EPOCH) == FENCED
    assert init(engine, name, PID, EPOCH + 1) == FENCED  # the bump in between named no epoch


def test_a_lost_reply_of_a_rotation_is_answered_again(engine: Engine) -> None:
    """testRetryInitProducerIdAfterProducerIdRotation: the old id at its last epoch is a retry. At another
    epoch, or once the new id moved on, it is fenced."""
    name = put_row(engine, "Empty", pid=PID, epoch=LAST)
    new = init(engine, name, PID, LAST)
    assert new.producer_epoch == 0
    assert init(engine, name, PID, LAST) == new
    for epoch in (LAST - 1, 3, MAX_EPOCH):
        assert init(engine, name, PID, epoch) == FENCED
    assert init(engine, name) == (new.producer_id, 1)
    assert init(engine, name, PID, LAST) == FENCED


def test_a_rotation_nobody_asked_for_has_no_retry(engine: Engine) -> None:
    """A rotation without an expected epoch records no earlier pair, so the old pair is fenced."""
    name = put_row(engine, "CompleteCommit", pid=PID, epoch=LAST)
    assert init(engine, name).producer_epoch == 0
    assert init(engine, name, PID, LAST) == FENCED


def test_an_end_and_then_init_with_the_epoch_before(engine: Engine) -> None:
    """A client that got no answer to its EndTxn may initialise with the epoch that it holds. That is the last
    epoch, so it gets the stored one."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
    held = engine.coordinator.end_transaction(name, PID, EPOCH, committed=True)
    assert init(engine, name, PID, EPOCH) == held
    assert init(engine, name, *held) == (PID, EPOCH + 2)


# --- TransactionMetadata ----------------------------------------------------------------------------------


def test_tm_01_the_first_epoch(engine: Engine) -> None:
    """TM-01: a row that never had an epoch (-1) gets 0, and has no last epoch."""
    name = put_row(engine, "Empty", pid=PID, epoch=-1)
    assert init(engine, name) == (PID, 0)
    assert row_of(engine, name).last_producer_epoch == -1


def test_tm_02_a_bump_of_nobodys(engine: Engine) -> None:
    """TM-02: without an expected epoch 735 becomes 736, and the row keeps no last epoch."""
    name = put_row(engine, "Empty", pid=PID, epoch=735)
    assert init(engine, name) == (PID, 736)
    assert row_of(engine, name).last_producer_epoch == -1


def test_tm_03_a_bump_by_the_holder(engine: Engine) -> None:
    """TM-03: with the current epoch expected 735 becomes 736, and 735 is the last epoch."""
    name = put_row(engine, "Empty", pid=PID, epoch=735)
    assert init(engine, name, PID, 735) == (PID, 736)
    assert row_of(engine, name).last_producer_epoch == 735


def test_tm_06_a_new_row_takes_any_holder(engine: Engine) -> None:
    """TM-06: a row without an epoch takes any pair that the caller brings, and gets epoch 0 and no last
    epoch."""
    name = put_row(engine, "Empty", pid=PID, epoch=-1)
    assert init(engine, name, OTHER_PID, 735) == (PID, 0)
    assert row_of(engine, name).last_producer_epoch == -1


def test_tm_07_an_exhausted_epoch_is_never_bumped(engine: Engine) -> None:
    """TM-07: at 32766 the id rotates to epoch 0, and the row remembers the old id and its last epoch. No
    client gets 32767."""
    name = put_row(engine, "Empty", pid=PID, epoch=LAST)
    new = init(engine, name, PID, LAST)
    row = row_of(engine, name)
    assert (row.producer_id, row.producer_epoch) == new
    assert (row.previous_producer_id, row.last_producer_epoch) == (PID, LAST)
    below = put_row(engine, "Empty", pid=PID, epoch=LAST - 1)
    assert init(engine, below) == (PID, LAST)


def test_tm_08_a_fence_takes_the_last_epoch(engine: Engine) -> None:
    """TM-08: the fence of an Ongoing row at 32766 is at 32767, names 32766 as the last epoch, and is the
    abort's row.
    """
    name = put_row(engine, "Ongoing", pid=PID, epoch=LAST, last_producer_epoch=LAST - 1)
    assert init(engine, name) == CONCURRENT
    row = row_of(engine, name)
    assert (row.state, row.producer_epoch, row.last_producer_epoch) == ("PrepareAbort", MAX_EPOCH, LAST)


def test_tm_09_a_fence_beyond_the_last_epoch(engine: Engine) -> None:
    """TM-09: an Ongoing id at 32767 is fenced at 32767, aborted, and rotated."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=MAX_EPOCH)
    log = engine.partition(TOPIC, 0)
    log.append(
        SCHEMA.empty_table().from_pydict({"value": [1]}, schema=SCHEMA),
        producer_id=PID,
        producer_epoch=MAX_EPOCH,
        base_sequence=0,
        is_transactional=True,
    )
    assert init(engine, name) == CONCURRENT
    assert state_of(engine, name) == ("PrepareAbort", PID, MAX_EPOCH)
    following = row_of(engine, name).next_producer_id
    assert engine.coordinator.finish(name).failures == ()
    assert state_of(engine, name) == ("CompleteAbort", following, 0)
    assert log.last_stable_offset == log.high_watermark == 2
    assert init(engine, name) == (following, 1)


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort"])
def test_tm_10_no_rotation_with_something_open(table_engine: Engine, state: str) -> None:
    """TM-10: while a transaction is open or undecided, an exhausted id is not rotated, and the producer id
    stays until it ends."""
    name = put_row(table_engine, state, pid=PID, epoch=LAST)
    assert init(table_engine, name) == CONCURRENT
    assert state_of(table_engine, name)[1] == PID


@pytest.mark.parametrize("state", [state for state in STATES if state != "Ongoing"])
def test_tm_10_only_an_open_transaction_is_fenced(state: str) -> None:
    """TM-10 on the pure core: a fence from any state but Ongoing is an illegal state, and gives no row."""
    row = TransactionRow("id", TransactionState(state), PID, EPOCH)
    with pytest.raises(IllegalStateError):
        fence_and_abort(row, PID + 1, 1_000)


def test_tm_11_every_end_bumps_the_epoch(engine: Engine) -> None:
    """TM-11: at epoch 10 the decision is at 11 under the same producer id, and the completion leaves it
    there."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=10)
    engine.coordinator.end_transaction(name, PID, 10, committed=True, markers="deferred")
    assert state_of(engine, name) == ("PrepareCommit", PID, 11)
    engine.coordinator.write_pending_markers()
    assert state_of(engine, name) == ("CompleteCommit", PID, 11)


def test_tm_14_the_clock_may_go_back_while_adding(engine: Engine, clock: ManualClock) -> None:
    """TM-14: the start is the time of the first AddPartitions, even one before the row's. Later ones leave it
    and add their partitions."""
    name = put_row(engine, "Empty", pid=PID, epoch=EPOCH)
    begun = clock.advance(-1)
    engine.coordinator.add_partitions(name, PID, EPOCH, [T0])
    assert (row_of(engine, name).start_ms, row_of(engine, name).update_ms) == (begun, begun)
    clock.advance(-1)
    engine.coordinator.add_partitions(name, PID, EPOCH, [T1])
    assert (row_of(engine, name).start_ms, row_of(engine, name).update_ms) == (begun, begun - 1)
    assert engine.admin.describe_transaction(name).partitions == (T0, T1)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_tm_15_the_clock_may_go_back_while_ending(
    engine: Engine, clock: ManualClock, committed: bool
) -> None:
    """TM-15: decision and completion at earlier times are accepted. The start stays, and the update has the
    given time."""
    begun = clock()
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
    for step in (
        lambda: engine.coordinator.end_transaction(name, PID, EPOCH, committed=committed, markers="deferred"),
        engine.coordinator.write_pending_markers,
    ):
        now = clock.advance(-1_000)
        step()
        assert (row_of(engine, name).start_ms, row_of(engine, name).update_ms) == (begun, now)


@pytest.mark.parametrize("epoch", [3, LAST])
def test_the_clock_may_go_back_while_initialising(engine: Engine, clock: ManualClock, epoch: int) -> None:
    """testTolerateUpdateTime*: a bump or a rotation at an earlier time is accepted. There is no start,
    because no transaction is open."""
    name = put_row(engine, "CompleteCommit", pid=PID, epoch=epoch)
    now = clock.advance(-5_000)
    init(engine, name)
    assert (row_of(engine, name).start_ms, row_of(engine, name).update_ms) == (-1, now)


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------

HOLDERS = {
    "the producer": (PID, EPOCH),
    "an older epoch": (PID, EPOCH - 1),
    "a newer epoch": (PID, EPOCH + 1),
    "another id": (OTHER_PID, EPOCH),
    "another id, older": (OTHER_PID, EPOCH - 1),
}


@pytest.mark.parametrize(("state", "holder"), list(product([*STATES, "unknown"], HOLDERS)))
def test_add_partitions_in_every_state(table_engine: Engine, state: str, holder: str) -> None:
    """AddPartitionsToTxn checks whether the id is known, then whether it is pending, then the producer id,
    then the epoch (either way), then the row."""
    name = fresh_id() if state == "unknown" else put_row(table_engine, state, pid=PID, epoch=EPOCH)
    before = table_engine.coordinator.current(name)
    found = answer(lambda: table_engine.coordinator.add_partitions(name, *HOLDERS[holder], [T1]))
    if state in ("unknown", "Dead"):
        expected: str | None = UNMAPPED
    elif state.startswith("Prepare"):
        expected = CONCURRENT
    elif holder.startswith("another id"):
        expected = UNMAPPED
    else:
        expected = None if holder == "the producer" else FENCED
    assert found == expected
    if expected is None:
        assert state_of(table_engine, name) == ("Ongoing", PID, EPOCH)
        kept = (T0, T1) if state == "Ongoing" else (T1,)
        assert table_engine.admin.describe_transaction(name).partitions == kept
    else:
        assert table_engine.coordinator.current(name) == before


def test_partitions_that_are_in_already(engine: Engine) -> None:
    """If an Ongoing row has all partitions, the call succeeds and writes no row. With one more it writes a
    row with all of them. An empty id is refused."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH, partitions=[T0, T1])
    before = engine.coordinator.current(name)
    for again in ([T0], [T1, T0], [T0, T0], []):
        engine.coordinator.add_partitions(name, PID, EPOCH, again)
    assert engine.coordinator.current(name) == before
    engine.coordinator.add_partitions(name, PID, EPOCH, [T2, T0])
    assert engine.admin.describe_transaction(name).partitions == (T0, T1, T2)
    assert answer(lambda: engine.coordinator.add_partitions("", PID, EPOCH, [T0])) == REQUEST
    missing = answer(lambda: engine.coordinator.add_partitions(name, PID, EPOCH, [T0._replace(partition=9)]))
    assert missing == "UNKNOWN_TOPIC_OR_PARTITION"


def test_the_start_is_that_of_the_first_partition(engine: Engine, clock: ManualClock) -> None:
    """A new transaction has its own start. The start does not move when partitions are added or when the
    transaction ends."""
    name = put_row(engine, "CompleteCommit", pid=PID, epoch=EPOCH)
    begun = clock.advance(500)
    engine.coordinator.add_partitions(name, PID, EPOCH, [T0])
    clock.advance(500)
    engine.coordinator.add_partitions(name, PID, EPOCH, [T1])
    assert engine.admin.describe_transaction(name).transaction_start_ms == begun


# --- verify-only AddPartitions ----------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "holder"), list(product([*STATES, "unknown"], HOLDERS)))
def test_tc_15_verification_in_every_state(table_engine: Engine, state: str, holder: str) -> None:
    """TC-15: the check looks at the producer id, the epoch, then Prepare*, then whether it is Ongoing with
    the partition. It writes nothing."""
    name = fresh_id() if state == "unknown" else put_row(table_engine, state, pid=PID, epoch=EPOCH)
    before = table_engine.coordinator.current(name)

    def verify(number: int) -> Any:
        partition = TransactionPartition(TOPIC, 0, number)
        return answer(lambda: table_engine.coordinator.verify(name, *HOLDERS[holder], partition))

    if state in ("unknown", "Dead") or holder.startswith("another id"):
        expected = (UNMAPPED, UNMAPPED)
    elif holder != "the producer":
        expected = (FENCED, FENCED)
    elif state.startswith("Prepare"):
        expected = (CONCURRENT, CONCURRENT)
    elif state == "Ongoing":
        expected = (None, "TRANSACTION_ABORTABLE")
    else:
        expected = ("TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE")
    assert (verify(0), verify(1)) == expected
    assert table_engine.coordinator.current(name) == before


# --- the time-out sweep -----------------------------------------------------------------------------------


def test_tc_19_a_timed_out_transaction_is_aborted(engine: Engine, clock: ManualClock) -> None:
    """TC-19: a transaction that is Ongoing beyond its timeout is aborted and completed. The epoch is bumped
    once, and the fenced epoch is the last one."""
    name = put_row(
        engine, "Ongoing", pid=PID, epoch=EPOCH, last_producer_epoch=4, transaction_timeout_ms=1_000
    )
    clock.advance(1_001)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == (name,)
    assert state_of(engine, name) == ("CompleteAbort", PID, EPOCH + 1)
    assert row_of(engine, name).last_producer_epoch == EPOCH
    (marked,) = engine.partition(TOPIC, 0).producers()
    assert (marked.producer_id, marked.producer_epoch) == (PID, EPOCH + 1)


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_tc_19_a_decided_one_is_skipped(engine: Engine, clock: ManualClock, state: str) -> None:
    """TC-19: a decided transaction does not time out, however old it is. Its decision and its epoch stay."""
    name = put_row(engine, state, pid=PID, epoch=EPOCH, transaction_timeout_ms=1)
    clock.advance(10_000_000)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == ()
    assert state_of(engine, name) == (state, PID, EPOCH)


@pytest.mark.parametrize("move", ["fenced", "ended and begun again", "ended"])
def test_tc_19_it_moved_on_meanwhile(engine: Engine, clock: ManualClock, move: str) -> None:
    """TC-19: the sweep writes nothing for an id that has another epoch by the time of its put."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH, transaction_timeout_ms=1_000)
    clock.advance(1_001)

    def another(first: Engine) -> None:
        if move == "fenced":
            assert init(first, name) == CONCURRENT
            first.coordinator.finish(name)
            assert init(first, name) == (PID, EPOCH + 2)
        else:
            held = first.coordinator.end_transaction(name, PID, EPOCH, committed=True)
            if move == "ended and begun again":
                first.coordinator.add_partitions(name, *held, [T0])

    with first_race(engine, clock, name, another) as sweeper:
        assert sweeper.coordinator.abort_timed_out_transactions().transactional_ids == ()
    wanted = {"fenced": ("Empty", 7), "ended": ("CompleteCommit", 6), "ended and begun again": ("Ongoing", 6)}
    assert state_of(engine, name) == (wanted[move][0], PID, wanted[move][1])


@pytest.mark.parametrize("fault", ["before", "after"])
def test_tc_19_a_sweep_that_has_no_answer_bumps_once(clock: ManualClock, fault: Fault) -> None:
    """TC-19: if the sweep's row fails, before or after it was stored, the report says so, and the next sweeps
    end the transaction with one bump."""
    inner = MemoryStore(fresh_id("store"))
    faulty = FaultyStore(inner, error=raising(StoreUnreachableError))
    with Engine(faulty, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH, transaction_timeout_ms=1_000)
        prefix = engine.logs.coordinator(name).keys.prefix
        clock.advance(1_001)
        puts = 0

        def decide(operation: Operation, key: str, _: int) -> Fault | None:
            nonlocal puts
            if not key.startswith(prefix) or (operation != "put_if_absent" and not puts):
                return None
            if operation == "put_if_absent":
                puts += 1
                return fault
            return "before"

        faulty.decide = decide
        report = engine.coordinator.abort_timed_out_transactions()
        assert report.transactional_ids == ()
        assert len(report.failures) == 1
        faulty.decide = None
        engine.coordinator.abort_timed_out_transactions()
        engine.coordinator.write_pending_markers()
        assert state_of(engine, name) == ("CompleteAbort", PID, EPOCH + 1)


def test_two_sweeps_at_once_bump_once(engine: Engine, clock: ManualClock) -> None:
    """If two sweepers saw the same transaction, one writes, and the other finds it done."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH, transaction_timeout_ms=1_000)
    clock.advance(1_001)
    with first_race(
        engine, clock, name, lambda first: first.coordinator.abort_timed_out_transactions()
    ) as second:
        second.coordinator.abort_timed_out_transactions()
    assert state_of(engine, name) == ("CompleteAbort", PID, EPOCH + 1)
    assert engine.partition(TOPIC, 0).high_watermark == 1


# --- describe ---------------------------------------------------------------------------------------------


def test_tc_21_describe(engine: Engine, clock: ManualClock) -> None:
    """TC-21: an empty id is refused, unknown and expired ids are not found, and an open one is described in full."""
    assert answer(lambda: engine.admin.describe_transaction("")) == REQUEST
    assert answer(lambda: engine.admin.describe_transaction("nobody")) == "TRANSACTIONAL_ID_NOT_FOUND"
    dead = put_row(engine, "Dead", pid=-1, epoch=-1)
    assert answer(lambda: engine.admin.describe_transaction(dead)) == "TRANSACTIONAL_ID_NOT_FOUND"
    begun = clock()
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH, partitions=[T0, T2], transaction_timeout_ms=777)
    clock.advance(100)
    assert engine.admin.describe_transaction(name) == TransactionDescription(
        name, "Ongoing", PID, EPOCH, 777, begun, (T0, T2)
    )


@pytest.mark.parametrize("state", [state for state in STATES if state != "Dead"])
def test_tc_21_describe_in_every_state(table_engine: Engine, state: str) -> None:
    """TC-21: every state but Dead is described under Kafka's name."""
    name = put_row(table_engine, state, pid=PID, epoch=EPOCH)
    assert state_of(table_engine, name) == (state, PID, EPOCH)


def test_fencing_from_outside(engine: Engine) -> None:
    """KIP-664: fencing an id bumps its epoch and ends its open transaction, as an initialisation does. The
    earlier holder is fenced."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
    assert engine.admin.fence_producers([name]) == {name: (PID, EPOCH + 2)}
    assert answer(lambda: engine.coordinator.add_partitions(name, PID, EPOCH, [T0])) == FENCED
    assert state_of(engine, name) == ("Empty", PID, EPOCH + 2)


def test_requests_of_two_engines_agree(url: str, engine: Engine, clock: ManualClock) -> None:
    """No coordinator owns an id, so each request, on any connection, is answered from the log's end."""
    with txn_engine.connect(url, clock=clock) as other:
        held = engine.coordinator.init_producer_id("shared")
        other.coordinator.add_partitions("shared", *held, [T0])
        assert state_of(engine, "shared")[0] == "Ongoing"
        with pytest.raises(ConcurrentTransactionsError):
            engine.coordinator.init_producer_id("shared")
        with pytest.raises(TxnEngineError):
            other.coordinator.add_partitions("shared", *held, [T1])
        other.coordinator.finish("shared")
        assert state_of(engine, "shared")[0] == "CompleteAbort"


def test_producer_ids_are_nobody_elses(engine: Engine, url: str, clock: ManualClock) -> None:
    """ProducerIdManagerTest: connections take blocks of ids. No id is given out twice, whether it is
    requested in turn, fresh or by a rotation, and an id that a lost race did not use is not lost."""
    with txn_engine.connect(url, clock=clock) as other:
        taken = [init(asked, None).producer_id for asked in (engine, other) * 10]
        taken += [
            init(asked, f"new-{number}").producer_id for number, asked in enumerate((engine, other) * 10)
        ]
        for number, asked in enumerate((engine, other) * 10):
            name = put_row(asked, "Empty", pid=PID + number, epoch=LAST)
            taken.append(init(asked, name).producer_id)
    assert len(taken) == len(set(taken)) == 60
    assert {producer_id // 1_000 for producer_id in taken} == {0, 2}
    mine = sorted(producer_id for producer_id in taken if producer_id < 1_000)
    assert mine == list(range(mine[0], mine[0] + 30))
