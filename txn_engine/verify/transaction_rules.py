"""The coordinator's rows: how one follows another (KAFKA.md, "Which state may come before which"; invariant 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from txn_engine.verify.audited_partition import AuditedPartition, StoredTransaction
from txn_engine.verify.decisions import MAX_EPOCH
from txn_engine.verify.descriptors import Batch, TransactionRow
from txn_engine.verify.hashing import home_partition
from txn_engine.verify.judged_entry import JudgedEntry

RUN_IDS_KEPT: Final = 100

_RESTING: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})
VALID_PREVIOUS: Final[Mapping[str, frozenset[str]]] = {
    "Empty": _RESTING | {"Dead"},  # an id that expired starts again, with the run ids its tombstone kept
    "Ongoing": _RESTING | {"Ongoing"},
    "PrepareCommit": frozenset({"Ongoing"}),
    "PrepareAbort": _RESTING | {"Ongoing"},
    "CompleteCommit": frozenset({"PrepareCommit"}),
    "CompleteAbort": frozenset({"PrepareAbort"}),
    "Dead": _RESTING,
}


class TransactionRule:
    """Rows of an id follow one another as the coordinator may write them.

    The first row of an id may say anything: the rows before it may be sealed, or a test may have written it.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def judge(self, state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Note where the row is not one that could follow its id's latest."""
        row = batch.row
        if not isinstance(row, TransactionRow):
            return
        home = home_partition(row.transactional_id, self._partitions)
        if home != entry.place.partition:
            entry.note("wrong-partition", batch, _named(row), f"__transaction_state-{home}")
        if row.state not in VALID_PREVIOUS:
            entry.note(
                "state-move",
                batch,
                f"{_named(row)} in state {row.state!r}",
                "a state of Kafka's transactions",
            )
            return
        if row.state == "Dead" and (row.producer_id, row.producer_epoch) != (-1, -1):
            seen = f"{_named(row)}: Dead as producer {row.producer_id} epoch {row.producer_epoch}"
            entry.note("descriptor-malformed", batch, seen, "a tombstone without a producer")
        before = state.transactions.get(row.transactional_id)
        if before is None or not entry.sound:
            return
        _judge_move(before, row, batch, entry)


def is_renewal(before: TransactionRow, row: TransactionRow) -> bool:
    """Whether the row only says again, at another time, what an id at rest was: the daily renewal of a long job."""
    return row.state in _RESTING and before._replace(update_ms=row.update_ms) == row


def _judge_move(before: StoredTransaction, row: TransactionRow, batch: Batch, entry: JudgedEntry) -> None:
    if is_renewal(before.row, row):
        return
    if before.row.state not in VALID_PREVIOUS[row.state]:
        after = ", ".join(sorted(VALID_PREVIOUS[row.state]))
        seen = f"{_named(row)}: {row.state} after {before.row.state} (row {before.offset})"
        entry.note("state-move", batch, seen, f"{row.state} after {after}")
        return
    _judge_identity(before.row, row, batch, entry)
    _judge_partitions(before.row, row, batch, entry)
    if row.state in ("CompleteCommit", "CompleteAbort") and row.decision_offset != before.offset:
        seen = f"{_named(row)}: {row.state} of the decision at row {row.decision_offset}"
        entry.note("decision-offset", batch, seen, f"row {before.offset}, the id's latest")
    elif row.state in ("Empty", "Ongoing") and row.decision_offset not in (-1, before.row.decision_offset):
        seen = f"{_named(row)}: {row.state} after the decision at row {row.decision_offset}"
        entry.note("decision-offset", batch, seen, f"row {before.row.decision_offset}, as in the row before")
    _judge_run_ids(before.row, row, batch, entry)


def _judge_identity(before: TransactionRow, row: TransactionRow, batch: Batch, entry: JudgedEntry) -> None:
    """Which producer id and epoch may follow which (KIP-890: a bump at every end, a new id where epochs run out)."""
    seen = f"{_named(row)}: {row.state} of producer {row.producer_id} epoch {row.producer_epoch}"
    if row.state == "Dead" or before.state == "Dead":
        return
    if row.state.startswith("Complete"):
        rotated = before.next_producer_id >= 0
        wanted = (before.next_producer_id, 0) if rotated else (before.producer_id, before.producer_epoch)
        if (row.producer_id, row.producer_epoch) != wanted:
            entry.note(
                "transaction-producer",
                batch,
                seen,
                f"producer {wanted[0]} epoch {wanted[1]}, as it was prepared",
            )
        return
    if row.producer_id != before.producer_id:
        if row.state != "Empty":
            entry.note(
                "transaction-producer", batch, seen, f"producer {before.producer_id} of the row before"
            )
        return
    if row.state.startswith("Prepare"):
        wanted_epoch = min(before.producer_epoch + 1, MAX_EPOCH)
        if row.producer_epoch != wanted_epoch:
            entry.note("transaction-epoch", batch, seen, f"epoch {wanted_epoch}: every end bumps it once")
    elif before.state == row.state == "Ongoing" and row.producer_epoch != before.producer_epoch:
        entry.note(
            "transaction-epoch", batch, seen, f"epoch {before.producer_epoch}, that of the open transaction"
        )
    elif row.producer_epoch < before.producer_epoch:
        entry.note("transaction-epoch", batch, seen, f"epoch {before.producer_epoch} or later")


def _judge_partitions(before: TransactionRow, row: TransactionRow, batch: Batch, entry: JudgedEntry) -> None:
    """A transaction's list only grows until it is decided: a partition dropped from it is never decided."""
    if before.state != "Ongoing":
        return
    lost = sorted(set(before.partitions) - set(row.partitions))
    added = sorted(set(row.partitions) - set(before.partitions))
    if lost:
        names = ", ".join(f"{topic}-{partition}" for topic, _, partition in lost[:5])
        entry.note(
            "transaction-partitions",
            batch,
            f"{_named(row)}: {row.state} without {names}",
            "every partition added",
        )
    elif added and row.state != "Ongoing":
        names = ", ".join(f"{topic}-{partition}" for topic, _, partition in added[:5])
        entry.note(
            "transaction-partitions",
            batch,
            f"{_named(row)}: {row.state} with {names}",
            "only partitions added",
        )


def _judge_run_ids(before: TransactionRow, row: TransactionRow, batch: Batch, entry: JudgedEntry) -> None:
    """Committed run ids are carried on: the last hundred, and a flag once one was dropped (PROTOCOL.md, section 4)."""
    kept = set(row.committed_run_ids)
    owed = set(before.committed_run_ids)
    if before.state == "PrepareCommit" and before.run_id is not None:
        owed.add(before.run_id)
    lost = sorted(owed - kept)
    dropped_for_room = len(row.committed_run_ids) >= RUN_IDS_KEPT and not row.run_ids_complete
    if lost and not dropped_for_room:
        entry.note(
            "run-id-lost",
            batch,
            f"{_named(row)}: {row.state} without run id {lost[0]!r}",
            "it to be carried on",
        )
    if row.run_ids_complete and not before.run_ids_complete:
        seen = f"{_named(row)}: run ids called complete"
        entry.note("run-id-lost", batch, seen, "not complete: one was dropped before")
    new = kept - owed - ({row.run_id} if row.state == "PrepareCommit" and row.run_id is not None else set())
    if new:
        entry.note(
            "run-id-lost",
            batch,
            f"{_named(row)}: run id {min(new)!r}",
            "only run ids of commits decided here",
        )


def _named(row: TransactionRow) -> str:
    return f"transactional id {row.transactional_id!r}"
