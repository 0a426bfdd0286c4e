"""The coordinator's decisions (`TransactionCoordinator`, `TransactionMetadata`), for transactions V2
(KIP-890).

Each function gets the id's latest row and a request, and returns what to write and what to answer, or raises
what Kafka's broker would answer. Where Kafka says "pending", here stands a Prepare* row without its Complete
row: there is no process whose memory could hold anything else. One decision is one row: a fence and the abort
that it brings are one row and one bump.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from txn_engine.errors import (
    ConcurrentTransactionsError,
    IllegalStateError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from txn_engine.protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from txn_engine.protocol.log_time import time_of
from txn_engine.protocol.producers import MAX_EPOCH
from txn_engine.protocol.transaction_rows import (
    MAX_RUN_IDS,
    StoredRow,
    TransactionPartition,
    TransactionRow,
    TransactionState,
)
from txn_engine.reasons import Reason
from txn_engine.types import ProducerIdAndEpoch

NOBODY = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
NO_TIMEOUT = 2**31 - 1
RENEWAL_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Decision:
    """The row to write (None: nothing), the answer, and whether the caller must come again once the row is
    completed.
    """

    row: TransactionRow | None
    reply: ProducerIdAndEpoch
    concurrent: bool = False
    used_new_producer_id: bool = False


def check_timeout(transaction_timeout_ms: int, max_transaction_timeout_ms: int) -> None:
    """Raise where a transaction's timeout is not above 0 or is above the store's limit."""
    if not 0 < transaction_timeout_ms <= max_transaction_timeout_ms:
        raise InvalidTransactionTimeoutError(
            f"a transaction timeout of {transaction_timeout_ms} ms",
            expected=f"1 to {max_transaction_timeout_ms} ms",
        )


def is_exhausted(producer_epoch: int) -> bool:
    """Whether no client may be given an epoch after this one: 32767 is kept for the last fence."""
    return producer_epoch >= MAX_EPOCH - 1


# --- InitProducerId ---------------------------------------------------------------------------------------


def init_producer_id(
    current: StoredRow | None,
    *,
    transactional_id: str,
    transaction_timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    """Fence whoever used this id before, and give out the next epoch (KIP-98, KIP-360).

    With an open transaction: decides its abort under a bumped epoch; the answer is then CONCURRENT_TRANSACTIONS.
    """
    if current is None or current.row.state is TransactionState.DEAD:
        return _first_producer_id(current, transactional_id, transaction_timeout_ms, new_producer_id, now_ms)
    row = current.row
    if row.state.is_prepared:
        raise _concurrent(row, "InitProducerId")
    if expected is not None and not _is_valid_producer_id(row, expected):
        raise _fenced(row, expected.producer_id, expected.producer_epoch)
    if row.state is TransactionState.ONGOING:
        return fence_and_abort(row, new_producer_id, now_ms)
    return _next_epoch(row, transaction_timeout_ms, expected, new_producer_id, now_ms)


def _first_producer_id(
    current: StoredRow | None, transactional_id: str, timeout_ms: int, new_producer_id: int, now_ms: int
) -> Decision:
    row = TransactionRow(
        transactional_id,
        TransactionState.EMPTY,
        new_producer_id,
        0,
        transaction_timeout_ms=timeout_ms,
        update_ms=now_ms,
        committed_run_ids=current.row.committed_run_ids if current else (),
        run_ids_complete=current.row.run_ids_complete if current else True,
    )
    return Decision(row, ProducerIdAndEpoch(new_producer_id, 0), used_new_producer_id=True)


def _is_valid_producer_id(row: TransactionRow, expected: ProducerIdAndEpoch) -> bool:
    """Whether the caller may hold this id: the row's, or the one of the row before where its epochs ran out.

    Each row names the producer id of the row before it, as Kafka's does: a rotation may be asked for again, as long as
    no other row has followed it.
    """
    return (
        row.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == row.producer_id
        or (expected.producer_id == row.previous_producer_id and is_exhausted(expected.producer_epoch))
    )


def _next_epoch(
    row: TransactionRow,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    """Bump the epoch, or rotate the producer id where epochs have run out (`prepareIncrementProducerEpoch`)."""
    base = replace(
        row,
        state=TransactionState.EMPTY,
        previous_producer_id=row.producer_id,
        transaction_timeout_ms=timeout_ms,
        start_ms=-1,
        update_ms=now_ms,
        partitions=(),
        run_id=None,
    )
    if _must_rotate(row, expected):
        last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
        rotated = replace(base, producer_id=new_producer_id, producer_epoch=0, last_producer_epoch=last_epoch)
        return Decision(rotated, ProducerIdAndEpoch(new_producer_id, 0), used_new_producer_id=True)
    last_epoch = NO_PRODUCER_EPOCH
    if expected is not None:
        if row.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_epoch == row.producer_epoch:
            last_epoch = row.producer_epoch
        elif expected.producer_epoch == row.last_producer_epoch:
            # Asked again: no second bump, but a beginning.
            return Decision(base, ProducerIdAndEpoch(row.producer_id, row.producer_epoch))
        else:
            raise _fenced(row, expected.producer_id, expected.producer_epoch)
    bumped = replace(base, producer_epoch=row.producer_epoch + 1, last_producer_epoch=last_epoch)
    return Decision(bumped, ProducerIdAndEpoch(bumped.producer_id, bumped.producer_epoch))


def _must_rotate(row: TransactionRow, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether the caller has to go on under another producer id: no epoch is left that a client may hold."""
    is_asked_again = expected is not None and expected.producer_epoch != row.producer_epoch
    return is_exhausted(row.producer_epoch) and not is_asked_again


def fence_and_abort(row: TransactionRow, new_producer_id: int, now_ms: int) -> Decision:
    """The PrepareAbort row that fences an Ongoing transaction's producer: one row, one bump.

    It names the fenced epoch as the last one, as every end of a transaction does: who comes back with it by
    InitProducerId, before anybody else initialises, goes on (KIP-588). No client is ever given epoch 32767, for nothing
    could fence that client: where epochs run out, the row says under which producer id the transactional id goes on
    (KAFKA-20090). Where a row has that epoch all the same, it stays.
    """
    if row.state is not TransactionState.ONGOING:
        raise IllegalStateError(f"a fence in state {row.state}", expected="Ongoing")
    rotates = is_exhausted(row.producer_epoch)
    prepared = replace(
        row,
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=min(row.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=row.producer_epoch,
        previous_producer_id=row.producer_id,
        next_producer_id=new_producer_id if rotates else NO_PRODUCER_ID,
        update_ms=now_ms,
        decision_offset=-1,
    )
    return Decision(prepared, NOBODY, used_new_producer_id=rotates, concurrent=True)


# --- a resumed identity -----------------------------------------------------------------------------------


def resume_identity(current: StoredRow | None, *, producer_id: int, producer_epoch: int) -> TransactionRow:
    """The id's row, where this very identity is its latest and nothing was added under it yet. Else raises."""
    row = _known(current, producer_id)
    if row.state.is_prepared:
        raise _concurrent(row, "a resumed InitProducerId")
    if (row.producer_id, row.producer_epoch) != (producer_id, producer_epoch):
        raise _fenced(row, producer_id, producer_epoch)
    if row.state is TransactionState.ONGOING:
        raise _already_used(row)
    return row


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------


def add_partitions(
    current: StoredRow | None,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TransactionPartition],
    now_ms: int,
    begins: bool = False,
) -> TransactionRow | None:
    """The Ongoing row with these partitions, or None where all of them are in it already.

    `begins`: the caller resumed its identity and adds for the first time: of two that did, one goes on.
    """
    row = _known(current, producer_id)
    if row.state.is_prepared:
        raise _concurrent(row, "AddPartitionsToTxn")
    if row.producer_id != producer_id:
        raise _wrong_mapping(row, producer_id)
    if row.producer_epoch != producer_epoch:
        raise _fenced(row, producer_id, producer_epoch)
    ongoing = row.state is TransactionState.ONGOING
    if ongoing and begins:
        raise _already_used(row)
    added = missing_from(row.partitions, partitions)
    if ongoing and not added:
        return None
    return replace(
        row,
        state=TransactionState.ONGOING,
        previous_producer_id=row.producer_id,
        partitions=merged(row.partitions, added),
        start_ms=row.start_ms if ongoing and row.start_ms >= 0 else now_ms,
        update_ms=now_ms,
        run_id=row.run_id if ongoing else None,
    )


def missing_from(
    held: Sequence[TransactionPartition], partitions: Iterable[TransactionPartition]
) -> list[TransactionPartition]:
    """Those of the partitions that are not held, in order. `held` is in order, so each is searched for by halves."""

    def is_held(partition: TransactionPartition) -> bool:
        place = bisect_left(held, partition)
        return place < len(held) and held[place] == partition

    return sorted({partition for partition in partitions if not is_held(partition)})


def merged(
    held: Sequence[TransactionPartition], added: Sequence[TransactionPartition]
) -> tuple[TransactionPartition, ...]:
    """Both in order, where both are in order and no partition is in both. Compares only for what is added."""
    parts: list[TransactionPartition] = []
    taken = 0
    for partition in added:
        place = bisect_left(held, partition, taken)
        parts += held[taken:place]
        parts.append(partition)
        taken = place
    return (*parts, *held[taken:])


def verify_partition(
    current: StoredRow | None, *, producer_id: int, producer_epoch: int, partition: TransactionPartition
) -> None:
    """Raise unless this very transaction is Ongoing with the partition in it (verify-only AddPartitions, KIP-890)."""
    row = _known(current, producer_id)
    if row.producer_id != producer_id:
        raise _wrong_mapping(row, producer_id)
    if row.producer_epoch != producer_epoch:
        raise _fenced(row, producer_id, producer_epoch)
    if row.state.is_prepared:
        raise _concurrent(row, "a write")
    if row.state is not TransactionState.ONGOING or missing_from(row.partitions, [partition]):
        raise TransactionAbortableError(
            f"{partition.topic}-{partition.partition} is not in the transaction (state {row.state})",
            actor=f"transactional id {row.transactional_id!r}",
            expected="AddPartitions before the first write",
            reason=Reason.NOT_IN_TRANSACTION,
        )


# --- EndTxn -----------------------------------------------------------------------------------------------


def end_transaction(
    current: StoredRow | None,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    run_id: str | None,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    """Decide a transaction, with the epoch bump of transactions V2, by the table in KAFKA.md."""
    row = _known(current, producer_id)
    over = _is_retry_after_rotation(row, producer_id, producer_epoch)
    if row.producer_id != producer_id and not over:
        if row.state.is_prepared:
            raise _concurrent(row, "EndTxn")
        raise _wrong_mapping(row, producer_id)
    is_current = producer_epoch == row.producer_epoch and not over
    is_retry = over or producer_epoch == row.producer_epoch - 1
    if row.state is TransactionState.ONGOING and is_current:
        return _decide(row, committed, run_id, new_producer_id, now_ms)
    if row.state.is_prepared and is_retry:
        if committed == (row.state is TransactionState.PREPARE_COMMIT):
            raise _concurrent(row, "EndTxn")
        raise _invalid_state(row, committed)
    if row.state in (
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    ):
        if is_current:
            if committed:
                raise _invalid_state(row, committed)
            return _decide(row, committed, run_id, new_producer_id, now_ms)
        if is_retry and row.state is not TransactionState.EMPTY:
            if committed == (row.state is TransactionState.COMPLETE_COMMIT):
                return Decision(None, ProducerIdAndEpoch(row.producer_id, row.producer_epoch))
            raise _invalid_state(row, committed)
    raise _fenced(row, producer_id, producer_epoch)


def is_decision_before(row: TransactionRow, producer_id: int, producer_epoch: int) -> bool:
    """Whether this row decides the transaction from which the producer has this epoch, and is not complete."""
    return row.state.is_prepared and (row.producer_id, row.producer_epoch) == (producer_id, producer_epoch)


def _is_retry_after_rotation(row: TransactionRow, producer_id: int, producer_epoch: int) -> bool:
    return (
        row.previous_producer_id == producer_id
        and producer_id >= 0
        and producer_epoch == MAX_EPOCH - 1
        and row.producer_epoch == 0
    )


def _decide(
    row: TransactionRow, committed: bool, run_id: str | None, new_producer_id: int, now_ms: int
) -> Decision:
    rotate = is_exhausted(row.producer_epoch)
    prepared = replace(
        row,
        state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
        producer_epoch=row.producer_epoch + 1 if row.producer_epoch < MAX_EPOCH else MAX_EPOCH,
        last_producer_epoch=row.producer_epoch,
        previous_producer_id=row.producer_id,
        next_producer_id=new_producer_id if rotate else NO_PRODUCER_ID,
        start_ms=row.start_ms if row.state is TransactionState.ONGOING else now_ms,
        update_ms=now_ms,
        partitions=row.partitions if row.state is TransactionState.ONGOING else (),
        run_id=run_id,
        decision_offset=-1,
    )
    if committed and run_id is not None:
        prepared = with_run_id(prepared, run_id)
    reply = (
        ProducerIdAndEpoch(new_producer_id, 0)
        if rotate
        else ProducerIdAndEpoch(row.producer_id, prepared.producer_epoch)
    )
    return Decision(prepared, reply, used_new_producer_id=rotate)


def with_run_id(row: TransactionRow, run_id: str) -> TransactionRow:
    """The row knowing one more committed run, the last 100 kept."""
    ids = (*(kept for kept in row.committed_run_ids if kept != run_id), run_id)
    return replace(
        row,
        committed_run_ids=ids[-MAX_RUN_IDS:],
        run_ids_complete=row.run_ids_complete and len(ids) <= MAX_RUN_IDS,
    )


def complete_transaction(
    current: StoredRow | None, *, decision_offset: int, now_ms: int
) -> TransactionRow | None:
    """The Complete row for the decision at that offset; None where that is not the id's latest row (any more)."""
    if current is None or not current.row.state.is_prepared:
        return None
    if current.offset != decision_offset:
        return None
    row = current.row
    completed = replace(
        row,
        state=TransactionState.COMPLETE_COMMIT
        if row.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT,
        previous_producer_id=row.producer_id,
        partitions=(),
        update_ms=now_ms,
        decision_offset=decision_offset,
    )
    if row.next_producer_id < 0:
        return completed
    return replace(
        completed,
        producer_id=row.next_producer_id,
        producer_epoch=0,
        next_producer_id=-1,
    )


# --- sweeps -----------------------------------------------------------------------------------------------


def start_of(stored: StoredRow, now_ms: int) -> int:
    """When the id's transaction began, by the log's time; -1 where it has none."""
    return time_of(stored.start_append_time, stored.row.start_ms, now_ms)


def has_timed_out(stored: StoredRow, now_ms: int) -> bool:
    """Ongoing for longer than its timeout (strictly), and not one that waits for another system's decision."""
    row = stored.row
    return (
        row.state is TransactionState.ONGOING
        and row.transaction_timeout_ms != NO_TIMEOUT
        and start_of(stored, now_ms) + row.transaction_timeout_ms < now_ms
    )


def time_out(
    current: StoredRow | None, new_producer_id: int, *, producer_id: int, producer_epoch: int, now_ms: int
) -> Decision:
    """Fence and abort a timed-out transaction; no row where it has moved on since the sweep saw it."""
    seen = producer_id, producer_epoch
    if current is None or (current.row.producer_id, current.row.producer_epoch) != seen:
        return Decision(None, NOBODY)
    if not has_timed_out(current, now_ms):
        return Decision(None, NOBODY)
    return fence_and_abort(current.row, new_producer_id, now_ms)


def has_expired(stored: StoredRow, now_ms: int, expiration_ms: int) -> bool:
    """Idle, with nothing open or undecided, for at least the expiration time."""
    return stored.row.state.is_expirable and _idle_ms(stored, now_ms) >= expiration_ms


def _idle_ms(stored: StoredRow, now_ms: int) -> int:
    return now_ms - time_of(stored.append_time, stored.row.update_ms, now_ms)


def expire(current: StoredRow | None, *, now_ms: int, expiration_ms: int) -> TransactionRow | None:
    """The tombstone of an idle id, which keeps its run ids; None where it is in use."""
    if current is None or not has_expired(current, now_ms, expiration_ms):
        return None
    row = current.row
    return TransactionRow(
        row.transactional_id,
        TransactionState.DEAD,
        -1,
        -1,
        update_ms=now_ms,
        transaction_timeout_ms=row.transaction_timeout_ms,
        committed_run_ids=row.committed_run_ids,
        run_ids_complete=row.run_ids_complete,
    )


def is_renewal_due(stored: StoredRow, now_ms: int) -> bool:
    """Whether an id at rest has said nothing for a day. What is open or undecided does not expire."""
    return stored.row.state.is_expirable and _idle_ms(stored, now_ms) >= RENEWAL_MS


def renew(
    current: StoredRow | None, *, producer_id: int, producer_epoch: int, now_ms: int
) -> TransactionRow | None:
    """The same row at another time: how the id of a job that runs for days stays known. None where that is not due.

    Raises where the producer no longer owns the id: expired (InvalidProducerIdMapping) or fenced.
    """
    row = _known(current, producer_id)
    if row.state.is_prepared:
        return None
    if row.producer_id != producer_id:
        raise _wrong_mapping(row, producer_id)
    if row.producer_epoch != producer_epoch:
        raise _fenced(row, producer_id, producer_epoch)
    return replace(row, update_ms=now_ms) if current and is_renewal_due(current, now_ms) else None


# --- answers ----------------------------------------------------------------------------------------------


def _known(current: StoredRow | None, producer_id: int) -> TransactionRow:
    if current is None or current.row.state is TransactionState.DEAD:
        raise InvalidProducerIdMappingError(
            "the coordinator does not know this transactional id (never initialised, or idle too long and expired)",
            actor=f"producer {producer_id}",
            reason=Reason.UNKNOWN_TRANSACTIONAL_ID,
        )
    return current.row


def _actor(row: TransactionRow) -> str:
    return f"transactional id {row.transactional_id!r}"


def _concurrent(row: TransactionRow, request: str) -> ConcurrentTransactionsError:
    return ConcurrentTransactionsError(
        f"{request} while the previous transaction is in {row.state}", actor=_actor(row)
    )


def _wrong_mapping(row: TransactionRow, producer_id: int) -> InvalidProducerIdMappingError:
    return InvalidProducerIdMappingError(
        f"producer id {producer_id}", actor=_actor(row), expected=f"producer id {row.producer_id}"
    )


def _fenced(row: TransactionRow, producer_id: int, producer_epoch: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {producer_id} epoch {producer_epoch} in state {row.state}",
        actor=_actor(row),
        expected=f"producer {row.producer_id} epoch {row.producer_epoch}",
    )


def _already_used(row: TransactionRow) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"producer {row.producer_id} epoch {row.producer_epoch} was resumed in state {row.state}",
        actor=_actor(row),
        expected="an epoch under which nothing was added yet",
        action="initialise anew, without resume=",
    )


def _invalid_state(row: TransactionRow, committed: bool) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"EndTxn({'commit' if committed else 'abort'}) in state {row.state}",
        actor=_actor(row),
        expected="an open transaction of this producer and epoch",
    )
