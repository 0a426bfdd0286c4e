"""A row of `__transaction_state`, and the table of states it may move through (`TransactionState.java`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

MAX_RUN_IDS = 100


class TransactionState(StrEnum):
    """Kafka's transaction states, under Kafka's names."""

    EMPTY = "Empty"  # initialised, nothing added: AddPartitions leads out, or an abort of nothing
    ONGOING = "Ongoing"  # partitions added: EndTxn, a time-out or a fence leads out
    PREPARE_COMMIT = "PrepareCommit"  # decided: only completion leads out
    PREPARE_ABORT = "PrepareAbort"  # decided: only completion leads out
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"  # a tombstone: the id was idle too long. InitProducerId starts afresh

    @property
    def is_prepared(self) -> bool:
        """Decided and not complete: what Kafka calls pending."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_expirable(self) -> bool:
        """At rest, so that an idle id may be forgotten."""
        return self in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )


_AT_REST = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)

_WITHOUT_TRANSACTION = frozenset({TransactionState.EMPTY, TransactionState.DEAD})

VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _AT_REST | {TransactionState.DEAD},
    TransactionState.ONGOING: _AT_REST | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _AT_REST | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.DEAD: _AT_REST,
}
"""Which states may come before a state. Two moves are ours (PROTOCOL.md, section 4): `Dead` to `Empty`, since a
tombstone keeps its run ids, and a Complete* row to itself, the daily renewal of an id whose job runs for days.
"""


class TransactionPartition(NamedTuple):
    """A partition in a transaction. The incarnation tells a deleted topic from its namesake."""

    topic: str
    incarnation: int
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """The whole state of one transactional id, as one row keeps it; -1 for "none" in every number.

    partitions: In ascending order, each once. decision_offset: of the last decision that is complete, from its Complete
    row until the next decision, so that what it wrote can be asked for.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    last_producer_epoch: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1
    transaction_timeout_ms: int = 60_000
    start_ms: int = -1
    update_ms: int = -1
    partitions: tuple[TransactionPartition, ...] = ()
    run_id: str | None = None
    committed_run_ids: tuple[str, ...] = ()
    run_ids_complete: bool = True
    decision_offset: int = -1

    def has_committed(self, run_id: str) -> bool | None:
        """Whether that run's transaction was decided to commit; None where the row no longer knows."""
        if run_id in self.committed_run_ids:
            return True
        return False if self.run_ids_complete else None


@dataclass(frozen=True, slots=True)
class StoredRow:
    """An id's latest row: the offset it stands at, and what the log's time was there and when its transaction began.

    `start_append_time` is the append time of the row that began the transaction: the first Ongoing row (for an abort of
    nothing, the PrepareAbort row) after the id was at rest; -1 where there is none, in `Empty` and `Dead`. Writers'
    clocks may differ by hours; the log's time never falls, and a transaction is judged by one log's (ARCHITECTURE,
    "Time").
    """

    offset: int
    row: TransactionRow
    append_time: int
    start_append_time: int = -1


def stored_row(previous: StoredRow | None, row: TransactionRow, offset: int, append_time: int) -> StoredRow:
    """What the log says of an id once this row follows its latest one."""
    if row.state in _WITHOUT_TRANSACTION and row.start_ms < 0:
        return StoredRow(offset, row, append_time)
    goes_on = (
        previous is not None and previous.start_append_time >= 0 and _same_transaction(previous.row, row)
    )
    start = previous.start_append_time if previous is not None and goes_on else append_time
    return StoredRow(offset, row, append_time, start)


def _same_transaction(before: TransactionRow, after: TransactionRow) -> bool:
    if after.state is TransactionState.ONGOING:
        identity = (after.producer_id, after.producer_epoch)
        return before.state is TransactionState.ONGOING and identity == (
            before.producer_id,
            before.producer_epoch,
        )
    began = after.state.is_prepared and before.state.is_expirable
    return not began and after.state not in _WITHOUT_TRANSACTION
