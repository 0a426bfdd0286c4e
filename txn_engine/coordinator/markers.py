"""Rolling decided transactions forward: markers in every partition, then the Complete row (PROTOCOL.md, section 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from storage.reasons import StoreReason
from txn_engine.clock import Clock
from txn_engine.errors import (
    CorruptObjectError,
    IllegalStateError,
    StoreFaultError,
    TxnEngineError,
    UnexpectedError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.logs import Logs
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.protocol.producers import ProducerEntry
from txn_engine.protocol.proposals import Appended, MarkerProposal, Refused, TransactionProposal, Verdict
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionState
from txn_engine.protocol.transactions import complete_transaction
from txn_engine.types import SweepReport
from txn_engine.unreadable import one_place


@dataclass(frozen=True, slots=True)
class _PartitionOutcome:
    """What became of one partition's markers: the decisions that are not done there, and why; entries written."""

    failed: dict[StoredRow, TxnEngineError]
    written: int
    marked: int


class MarkerWriter:
    """Finishes decisions, whoever made them. Repeating it is harmless, and nothing is acknowledged by it."""

    def __init__(self, logs: Logs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock

    def finish(self, decisions: Sequence[StoredRow], *, raises_faults: bool = False) -> SweepReport:
        """Write all markers of these Prepare rows, many to an entry, and the Complete rows of those that got
        everywhere.

        A decision with a partition that failed stays pending, for the next who meets it; the report says why.

        raises_faults: Raise `StoreFaultError` instead where the disk is full or has failed, after everything was tried.
        A caller that would ask again in a moment would get the same answer.
        """
        outcomes = self._mark_all(decisions)
        failures = {decision: why for outcome in outcomes for decision, why in outcome.failed.items()}
        completed, objects, more = self._complete(
            [decision for decision in decisions if decision not in failures]
        )
        failures |= more
        if (
            raises_faults
            and (fault := next(filter(_is_fault_of_a_disk, failures.values()), None)) is not None
        ):
            raise fault
        return SweepReport(
            transactional_ids=tuple(sorted(completed)),
            partitions_marked=sum(outcome.marked for outcome in outcomes),
            objects_written=objects + sum(outcome.written for outcome in outcomes),
            failures=tuple(_told(decision, why) for decision, why in failures.items()),
        )

    def mark_alone(self, decision: StoredRow) -> tuple[str, ...]:
        """The markers of one decision, and why they are not everywhere; nothing is raised."""
        try:
            outcomes = self._mark_all([decision])
        except IllegalStateError as closed:  # the engine is
            return (_told(decision, closed),)
        return tuple(_told(at, why) for outcome in outcomes for at, why in outcome.failed.items())

    def complete_alone(self, decision: StoredRow) -> tuple[str, ...]:
        """The Complete row of one decision whose markers are everywhere, and why it is not there; nothing is raised."""
        _, _, failures = self._complete([decision])
        return tuple(_told(decision, why) for decision, why in failures.items())

    def _mark_all(self, decisions: Sequence[StoredRow]) -> list[_PartitionOutcome]:
        by_partition = decisions_by_partition(decisions)
        return list(self._logs.workers.map(self._mark_one, by_partition.keys(), by_partition.values()))

    def _mark_one(self, partition: TransactionPartition, decisions: Sequence[StoredRow]) -> _PartitionOutcome:
        """As `_mark`; what nobody foresaw is this partition's failure too."""
        try:
            with one_place(partition.topic, partition.partition):
                return self._mark(partition, decisions)
        except UnexpectedError as error:
            return _PartitionOutcome(dict.fromkeys(decisions, error), 0, 0)

    def _mark(self, partition: TransactionPartition, decisions: Sequence[StoredRow]) -> _PartitionOutcome:
        """Put one entry with the markers of all these decisions. A deleted topic's incarnation counts as done."""
        try:
            if not self._exists(partition):
                return _PartitionOutcome({}, 0, 0)
            log = self._logs.of(partition)
            verdicts = log.append([_marker(decision) for decision in decisions], confirm=False)
            producers = log.view().producers
        except TxnEngineError as error:
            return _PartitionOutcome(dict.fromkeys(decisions, error), 0, 0)
        failed: dict[StoredRow, TxnEngineError] = {}
        for decision, verdict in zip(decisions, verdicts, strict=True):
            if isinstance(verdict, Refused) and not _is_marked(
                producers.get(decision.row.producer_id), decision
            ):
                failed[decision] = verdict.error
        marked = sum(isinstance(verdict, Appended) for verdict in verdicts)
        return _PartitionOutcome(failed, int(marked > 0), marked)

    def _exists(self, at: TransactionPartition) -> bool:
        """Whether the partition's incarnation is in use. Raises `CorruptObjectError` for a partition that it lacks."""
        topics = self._logs.topics
        try:
            if at.topic == CONSUMER_OFFSETS_TOPIC:
                self._logs.check_internal(at.topic, at.partition)
            elif self._is_known(at) or topics.exists(at.topic, at.incarnation):
                topics.having(at.topic, at.partition)
            else:
                return False
        except UnknownTopicOrPartitionError as error:
            if at.topic != CONSUMER_OFFSETS_TOPIC and not topics.exists(at.topic, at.incarnation):
                return False  # deleted between two looks, and made anew with fewer partitions perhaps
            raise CorruptObjectError(
                f"a decision that names {error.seen}",
                expected=error.expected or "partitions that the topic has",
                action="run `txn-engine verify`, and find out who wrote it",
            ) from error
        return True

    def _is_known(self, at: TransactionPartition) -> bool:
        try:
            return self._logs.topics.get(at.topic).incarnation == at.incarnation
        except TxnEngineError:
            return False  # the store is asked then

    def _complete(
        self, decisions: Sequence[StoredRow]
    ) -> tuple[list[str], int, dict[StoredRow, TxnEngineError]]:
        by_log: dict[int, list[StoredRow]] = defaultdict(list)
        for decision in decisions:
            by_log[self._logs.coordinator_partition(decision.row.transactional_id)].append(decision)
        completed: list[str] = []
        failures: dict[StoredRow, TxnEngineError] = {}
        objects = 0
        for number, group in by_log.items():
            try:
                with one_place(TRANSACTION_STATE_TOPIC, number):
                    verdicts = self._complete_in_one_log(group)
            except TxnEngineError as error:
                failures |= dict.fromkeys(group, error)
                continue
            completed += [decision.row.transactional_id for decision in group]
            objects += any(isinstance(verdict, Appended) for verdict in verdicts)
        return completed, objects, failures

    def _complete_in_one_log(self, decisions: Sequence[StoredRow]) -> tuple[Verdict, ...]:
        now_ms = self._clock()
        proposals = [
            TransactionProposal(
                decision.row.transactional_id,
                partial(complete_transaction, decision_offset=decision.offset, now_ms=now_ms),
            )
            for decision in decisions
        ]
        return self._logs.coordinator(decisions[0].row.transactional_id).append(proposals, confirm=False)


def decisions_by_partition(
    decisions: Sequence[StoredRow],
) -> dict[TransactionPartition, list[StoredRow]]:
    """The decisions whose markers each partition gets: in every partition of a transaction, data or not."""
    found: dict[TransactionPartition, list[StoredRow]] = defaultdict(list)
    for decision in decisions:
        for partition in decision.row.partitions:
            found[partition].append(decision)
    return found


def _is_fault_of_a_disk(error: TxnEngineError) -> bool:
    return isinstance(error, StoreFaultError) and error.reason in (
        StoreReason.NO_ROOM,
        StoreReason.DISK_FAILED,
    )


def _told(decision: StoredRow, why: TxnEngineError) -> str:
    return f"{decision.row.transactional_id}: {why}"


def _is_marked(stored: ProducerEntry | None, decision: StoredRow) -> bool:
    """Whether the partition has this decision's marker, or one of a later decision."""
    if stored is None or stored.producer_epoch < decision.row.producer_epoch:
        return False
    if stored.producer_epoch > decision.row.producer_epoch:
        return True
    return not stored.is_open or stored.coordinator_epoch >= decision.offset


def _marker(decision: StoredRow) -> MarkerProposal:
    row = decision.row
    committed = row.state is TransactionState.PREPARE_COMMIT
    return MarkerProposal(row.producer_id, row.producer_epoch, committed, coordinator_epoch=decision.offset)
