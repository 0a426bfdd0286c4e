"""The coordinator's decisions on the pure core: the tables of KAFKA.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txn_engine.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    TxnEngineError,
)
from txn_engine.protocol import transactions as tx
from txn_engine.protocol.log_time import time_of
from txn_engine.protocol.transaction_rows import (
    VALID_PREVIOUS_STATES,
    StoredRow,
    TransactionPartition,
    TransactionRow,
    TransactionState,
    stored_row,
)
from txn_engine.types import ProducerIdAndEpoch

PID, EPOCH, NEXT_PID = 10, 5, 77
P0, P1 = TransactionPartition("t", 0, 0), TransactionPartition("t", 0, 1)


def stored(state: str, *, epoch: int = EPOCH, **fields: object) -> StoredRow:
    partitions = (P0,) if state in ("Ongoing", "PrepareCommit", "PrepareAbort") else ()
    values = {"partitions": partitions, "start_ms": 100, "update_ms": 100, **fields}
    return at(40, TransactionRow("id", TransactionState(state), PID, epoch, **values))  # type: ignore[arg-type]


def at(offset: int, row: TransactionRow, append_time: int = 100) -> StoredRow:
    """The first row of an id, as the log stores it."""
    return stored_row(None, row, offset, append_time)


def end(current: StoredRow | None, epoch: int, *, committed: bool, pid: int = PID) -> tx.Decision:
    return tx.end_transaction(
        current,
        producer_id=pid,
        producer_epoch=epoch,
        committed=committed,
        run_id=None,
        new_producer_id=NEXT_PID,
        now_ms=200,
    )


FENCED, INVALID, CONCURRENT = ProducerFencedError, InvalidTxnStateError, ConcurrentTransactionsError
# state: (commit cur, commit retry, abort cur, abort retry)
END_TXN: dict[str, tuple[object, object, object, object]] = {
    "Empty": (INVALID, FENCED, "PrepareAbort", FENCED),
    "Ongoing": ("PrepareCommit", FENCED, "PrepareAbort", FENCED),
    "PrepareCommit": (FENCED, CONCURRENT, FENCED, INVALID),
    "PrepareAbort": (FENCED, INVALID, FENCED, CONCURRENT),
    "CompleteCommit": (INVALID, "OK", "PrepareAbort", INVALID),
    "CompleteAbort": (INVALID, INVALID, "PrepareAbort", "OK"),
}
CELLS = [
    (state, committed, retry, cells[(0 if committed else 2) + retry])
    for state, cells in END_TXN.items()
    for committed in (True, False)
    for retry in (0, 1)
]


@pytest.mark.parametrize(("state", "committed", "retry", "expected"), CELLS)
def test_tc_18_every_cell_of_end_txn(state: str, committed: bool, retry: int, expected: object) -> None:
    """TC-18: EndTxn of transactions V2, state by state, with the current epoch and as a retry of the one before."""
    current = stored(state)
    if isinstance(expected, type):
        with pytest.raises(expected):
            end(current, EPOCH - retry, committed=committed)
        return
    decision = end(current, EPOCH - retry, committed=committed)
    if expected == "OK":
        assert decision.row is None
        assert decision.reply == (PID, EPOCH)
    else:
        assert decision.row is not None
        assert decision.row.state == expected
        assert current.row.state in VALID_PREVIOUS_STATES[decision.row.state]
        assert decision.row.producer_epoch == EPOCH + 1
        assert decision.reply == (PID, EPOCH + 1)


@pytest.mark.parametrize("state", list(END_TXN))
def test_end_txn_of_another_producer(state: str) -> None:
    """A wrong producer id is INVALID_PRODUCER_ID_MAPPING, unless an end is pending. Epochs that are too low
    or too high are fenced."""
    pending = state.startswith("Prepare")
    with pytest.raises(ConcurrentTransactionsError if pending else InvalidProducerIdMappingError):
        end(stored(state), EPOCH, committed=True, pid=PID + 1)
    for epoch in (EPOCH - 2, EPOCH + 1):
        with pytest.raises(ProducerFencedError):
            end(stored(state), epoch, committed=True)


@pytest.mark.parametrize("current", [None, stored("Dead")])
def test_an_unknown_or_expired_id(current: StoredRow | None) -> None:
    """An id that the coordinator does not know, or has forgotten, is INVALID_PRODUCER_ID_MAPPING, never a success."""
    with pytest.raises(InvalidProducerIdMappingError):
        end(current, EPOCH, committed=True)
    with pytest.raises(InvalidProducerIdMappingError):
        tx.add_partitions(current, producer_id=PID, producer_epoch=EPOCH, partitions=[P0], now_ms=1)


def test_epochs_run_out_at_end_txn() -> None:
    """At 32766 the Prepare row keeps the old id at 32767, and the Complete row and the reply carry (next id, 0)."""
    decision = end(stored("Ongoing", epoch=32766), 32766, committed=True)
    row = decision.row
    assert row is not None
    assert (row.producer_id, row.producer_epoch, row.next_producer_id) == (PID, 32767, NEXT_PID)
    assert decision.reply == (NEXT_PID, 0)
    prepared = at(50, row)
    with pytest.raises(ConcurrentTransactionsError):
        end(prepared, 32766, committed=True)
    complete = tx.complete_transaction(prepared, decision_offset=50, now_ms=300)
    assert complete is not None
    assert (complete.producer_id, complete.producer_epoch, complete.previous_producer_id) == (
        NEXT_PID,
        0,
        PID,
    )
    after = at(51, complete)
    assert end(after, 32766, committed=True).reply == (NEXT_PID, 0)
    with pytest.raises(InvalidTxnStateError):
        end(after, 32766, committed=False)


def add(current: StoredRow | None, pid: int = PID, epoch: int = EPOCH) -> TransactionRow | None:
    return tx.add_partitions(current, producer_id=pid, producer_epoch=epoch, partitions=[P0], now_ms=200)


def test_add_partitions_in_kafkas_order() -> None:
    """AddPartitions checks the pending state first, then the producer id, then the epoch. If it has all
    partitions already, it writes nothing."""
    with pytest.raises(ConcurrentTransactionsError):
        add(stored("PrepareCommit"), pid=99)
    with pytest.raises(InvalidProducerIdMappingError):
        add(stored("Ongoing"), pid=99)
    for epoch in (EPOCH - 1, EPOCH + 1):
        with pytest.raises(ProducerFencedError):
            add(stored("Ongoing"), epoch=epoch)
    assert add(stored("Ongoing")) is None
    row = add(stored("Ongoing", partitions=(P1,)))
    assert row is not None
    assert (row.partitions, row.start_ms, row.update_ms) == ((P0, P1), 100, 200)


def test_tm_14_the_clock_may_go_back() -> None:
    """TM-14: a transaction's start is the time of its first AddPartitions, even if a later one has an earlier
    clock."""
    first = tx.add_partitions(
        stored("Empty"), producer_id=PID, producer_epoch=EPOCH, partitions=[P0], now_ms=99
    )
    assert first is not None
    assert (first.start_ms, first.update_ms) == (99, 99)
    again = tx.add_partitions(at(1, first), producer_id=PID, producer_epoch=EPOCH, partitions=[P1], now_ms=98)
    assert again is not None
    assert (again.start_ms, again.update_ms) == (99, 98)


def init(current: StoredRow | None, expected: ProducerIdAndEpoch | None = None) -> tx.Decision:
    return tx.init_producer_id(
        current,
        transactional_id="id",
        transaction_timeout_ms=10,
        expected=expected,
        new_producer_id=NEXT_PID,
        now_ms=200,
    )


def test_tc_02_a_new_id() -> None:
    """TC-02: a new transactional id gets a fresh producer id at epoch 0, whatever the caller says it held."""
    for expected in (None, ProducerIdAndEpoch(3, 4)):
        assert init(None, expected).reply == (NEXT_PID, 0)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_tc_04_a_known_id_is_bumped(state: str) -> None:
    """TC-04, TM-02: a known id keeps its producer id, gets the next epoch and the new time-out, and has no
    last epoch to come back with."""
    decision = init(stored(state))
    assert decision.row is not None
    assert decision.reply == (PID, EPOCH + 1)
    assert (decision.row.state, decision.row.last_producer_epoch) == (TransactionState.EMPTY, -1)
    assert decision.row.transaction_timeout_ms == 10


def test_tm_03_going_on_with_the_current_epoch() -> None:
    """TM-03: a producer that names its epoch is bumped and may repeat that. With any other epoch it is
    fenced."""
    decision = init(stored("Empty"), ProducerIdAndEpoch(PID, EPOCH))
    assert decision.row is not None
    assert decision.row.last_producer_epoch == EPOCH
    again = init(at(41, decision.row), ProducerIdAndEpoch(PID, EPOCH))
    assert again.reply == (PID, EPOCH + 1)
    assert again.row == decision.row
    with pytest.raises(ProducerFencedError):
        init(at(41, decision.row), ProducerIdAndEpoch(PID, EPOCH - 1))
    with pytest.raises(ProducerFencedError):
        init(at(41, decision.row), ProducerIdAndEpoch(PID + 1, EPOCH))


def test_tc_03_exhausted_epochs_rotate_the_id() -> None:
    """TC-03, TM-07: at epoch 32766 an id gets a new producer id at epoch 0."""
    decision = init(stored("Empty", epoch=32766))
    assert decision.row is not None
    assert decision.reply == (NEXT_PID, 0)
    assert decision.row.previous_producer_id == PID


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_tc_05_a_pending_end_has_to_complete_first(state: str) -> None:
    """TC-05: InitProducerId during Prepare* is CONCURRENT_TRANSACTIONS."""
    with pytest.raises(ConcurrentTransactionsError):
        init(stored(state))


@pytest.mark.parametrize(("epoch", "fenced"), [(EPOCH, EPOCH + 1), (32766, 32767), (32767, 32767)])
def test_fence_and_abort_are_one_row_and_one_bump(epoch: int, fenced: int) -> None:
    """An open transaction is fenced and its abort decided in one row (TC-09: exactly once, no overflow)."""
    decision = init(stored("Ongoing", epoch=epoch))
    assert decision.concurrent
    assert decision.row is not None
    assert (decision.row.state, decision.row.producer_epoch) == (TransactionState.PREPARE_ABORT, fenced)
    assert decision.row.last_producer_epoch == epoch


def test_complete_names_its_decision() -> None:
    """A Complete row is refused unless the decision it names is the id's latest row."""
    assert tx.complete_transaction(stored("PrepareCommit"), decision_offset=39, now_ms=1) is None
    assert tx.complete_transaction(stored("Ongoing"), decision_offset=40, now_ms=1) is None
    row = tx.complete_transaction(stored("PrepareCommit"), decision_offset=40, now_ms=50)
    assert row is not None
    assert (row.state, row.decision_offset, row.partitions, row.update_ms) == ("CompleteCommit", 40, (), 50)


def test_tsm_06_only_ongoing_transactions_time_out() -> None:
    """TSM-06: a transaction times out strictly later than its start plus its time-out, and only if it is
    Ongoing."""
    for state in END_TXN:
        assert tx.has_timed_out(stored(state, transaction_timeout_ms=50), 151) == (state == "Ongoing")
    assert not tx.has_timed_out(stored("Ongoing", transaction_timeout_ms=50), 150)
    moved = tx.time_out(stored("Ongoing"), NEXT_PID, producer_id=PID, producer_epoch=EPOCH + 2, now_ms=10**12)
    assert moved.row is None


def test_expiry_keeps_what_was_committed() -> None:
    """An idle id becomes a tombstone that keeps its run ids, and an init after it keeps them too. An open or
    undecided id does not expire."""
    idle = stored("CompleteCommit", committed_run_ids=("a", "b"))
    assert tx.expire(idle, now_ms=149, expiration_ms=50) is None
    tombstone = tx.expire(idle, now_ms=150, expiration_ms=50)
    assert tombstone is not None
    assert (tombstone.state, tombstone.committed_run_ids) == ("Dead", ("a", "b"))
    revived = init(at(60, tombstone)).row
    assert revived is not None
    assert revived.has_committed("a") is True
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        assert tx.expire(stored(state), now_ms=10**12, expiration_ms=50) is None


def test_run_ids_say_unknown_once_one_was_dropped() -> None:
    """The last hundred run ids are kept. The answer to an older one is None, not False."""
    row = stored("Ongoing").row
    for number in range(100):
        row = tx.with_run_id(row, f"r{number}")
    assert row.has_committed("r0") is True
    assert row.has_committed("never") is False
    row = tx.with_run_id(row, "r100")
    assert len(row.committed_run_ids) == 100
    assert row.has_committed("r0") is None
    assert row.has_committed("r100") is True


@pytest.mark.parametrize(
    ("timeout", "good"), [(1, True), (0, False), (-1, False), (900_000, True), (900_001, False)]
)
def test_tsm_01_time_outs(timeout: int, good: bool) -> None:
    """TSM-01: a time-out has to be above 0 and at most the limit."""
    if good:
        tx.check_timeout(timeout, 900_000)
    else:
        with pytest.raises(InvalidTransactionTimeoutError):
            tx.check_timeout(timeout, 900_000)


@pytest.mark.parametrize(
    ("current", "pid", "epoch", "partition", "expected"),
    [
        (stored("Ongoing"), PID + 1, EPOCH, P0, InvalidProducerIdMappingError),
        (stored("Ongoing"), PID, EPOCH + 1, P0, ProducerFencedError),
        (stored("PrepareCommit"), PID, EPOCH, P0, ConcurrentTransactionsError),
        (stored("Ongoing"), PID, EPOCH, P1, TransactionAbortableError),
        (stored("Empty"), PID, EPOCH, P0, TransactionAbortableError),
    ],
)
def test_tc_15_verification(
    current: StoredRow, pid: int, epoch: int, partition: TransactionPartition, expected: type[TxnEngineError]
) -> None:
    """TC-15: a write is verified against producer, epoch, state and partition."""
    tx.verify_partition(stored("Ongoing"), producer_id=PID, producer_epoch=EPOCH, partition=P0)
    with pytest.raises(expected):
        tx.verify_partition(current, producer_id=pid, producer_epoch=epoch, partition=partition)


# --- the log's time ---------------------------------------------------------------------------------------


def following(*rows: tuple[str, int, int, int]) -> list[int]:
    """The start of the transaction after each of these rows, given as (state, epoch, start_ms, append
    time)."""
    latest, starts = None, []
    for offset, (state, epoch, start_ms, append_time) in enumerate(rows):
        row = TransactionRow(
            "id", TransactionState(state), PID, epoch, start_ms=start_ms, update_ms=append_time
        )
        latest = stored_row(latest, row, offset, append_time)
        assert (latest.offset, latest.append_time) == (offset, append_time)
        starts.append(latest.start_append_time)
    return starts


def test_the_start_is_the_append_time_of_the_row_that_began() -> None:
    """A transaction's start is kept from its first Ongoing row to the Complete row and its renewals. An id at
    rest has no start, and each transaction has its own."""
    assert following(
        ("Empty", 0, -1, 10),
        ("Ongoing", 0, 5, 20),
        ("Ongoing", 0, 5, 30),
        ("PrepareCommit", 1, 5, 40),
        ("CompleteCommit", 1, 5, 50),
        ("CompleteCommit", 1, 5, 60),
        ("Ongoing", 1, 6, 70),
        ("PrepareAbort", 2, 6, 80),
        ("CompleteAbort", 2, 6, 90),
        ("PrepareAbort", 3, 7, 100),  # an abort of nothing is a transaction of its own
        ("Dead", -1, -1, 110),
    ) == [-1, 20, 20, 20, 20, 20, 70, 70, 70, 100, -1]
    assert following(("PrepareCommit", 1, 5, 40), ("CompleteCommit", 1, 5, 50)) == [40, 40]
    assert following(("Ongoing", 0, 5, 20), ("Ongoing", 1, 5, 30)) == [20, 30]  # another producer's


@pytest.mark.parametrize(
    ("append_time", "writer_ms", "now_ms", "expected"),
    [
        (100, 100, 200, 100),
        (100, 20, 200, 100),  # the writer's clock was behind
        (100, 150, 200, 100),  # the row was made before a race that it lost
        (300, 300, 200, 300),  # ahead, and only that is known
        (300, 120, 200, 120),  # an honest writer after one that was ahead
        (300, -1, 200, 300),
        (200, 100, 200, 200),
    ],
)
def test_what_time_a_row_is_of(append_time: int, writer_ms: int, now_ms: int, expected: int) -> None:
    """A row's time is the log's time, unless that is in the future. Then it is its writer's time, unless that
    is in the future too."""
    assert time_of(append_time, writer_ms, now_ms) == expected


def renew(
    current: StoredRow | None, now_ms: int, pid: int = PID, epoch: int = EPOCH
) -> TransactionRow | None:
    return tx.renew(current, producer_id=pid, producer_epoch=epoch, now_ms=now_ms)


@pytest.mark.parametrize("state", list(END_TXN))
def test_renewal(state: str) -> None:
    """A renewal writes the row of an id that has been at rest for a day again, unchanged. It leaves open and
    undecided ids alone."""
    current = stored(state)
    assert renew(current, 100 + tx.RENEWAL_MS - 1) is None
    row = renew(current, 100 + tx.RENEWAL_MS)
    if not current.row.state.is_expirable:
        assert row is None
        return
    assert row == replace(current.row, update_ms=100 + tx.RENEWAL_MS)
    assert current.row.state in VALID_PREVIOUS_STATES[row.state]
    with pytest.raises(InvalidProducerIdMappingError):
        renew(current, 10**12, pid=PID + 1)
    for epoch in (EPOCH - 1, EPOCH + 1):
        with pytest.raises(ProducerFencedError):
            renew(current, 10**12, epoch=epoch)


@pytest.mark.parametrize("current", [None, stored("Dead")])
def test_a_forgotten_id_is_not_renewed(current: StoredRow | None) -> None:
    """A renewal that comes too late is refused. Only an initialisation brings the id back."""
    with pytest.raises(InvalidProducerIdMappingError):
        renew(current, 10**12)
