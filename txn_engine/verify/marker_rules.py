"""Markers against the partition's state and against the decision that authorised them (invariants 3 and 7)."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from txn_engine.verify.audited_partition import AuditedPartition, Producer
from txn_engine.verify.decisions import MAX_EPOCH, Decision, DecisionTable
from txn_engine.verify.descriptors import Batch
from txn_engine.verify.findings import Place
from txn_engine.verify.judged_entry import JudgedEntry

_DEFERRED_MAX: Final = 1_000


class Decider(Protocol):
    """What a marker is judged by: the coordinator's log as far as it was read."""

    decisions: DecisionTable

    def is_blind(self, producer_id: int, offset: int) -> bool:
        """Whether damage or sealing hides what stands at that offset for that producer."""
        ...

    def is_behind(self, producer_id: int, offset: int) -> bool:
        """Whether the row at that offset may have been written since the coordinator's log was read."""
        ...

    def locate(self, producer_id: int, offset: int) -> str:
        """The row in words: partition of the log, transactional id."""
        ...


@dataclass(slots=True)
class MarkerRule:
    """Each marker carries out one decision, at that decision's epoch, in a partition of its list.

    A marker newer than what was read of the coordinator's log waits in `deferred` for `judge_deferred`;
    at most 1,000 of them do, the rest goes unjudged (a store in use; nothing waits in one at rest).
    """

    decider: Decider
    deferred: list[tuple[JudgedEntry, Batch]] = field(default_factory=list)

    def judge(self, state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Note where the marker is fenced, repeated, or not what the coordinator decided."""
        if not batch.is_marker:
            return
        producer = state.producers.get(batch.producer_id)
        if entry.sound and _is_operator_abort(producer, batch):
            self._judge_operator_abort(batch, entry)
            return
        if entry.sound and producer is not None:
            _judge_epoch(producer, batch, entry)
        decision = self.decider.decisions.find(batch.producer_id, batch.coordinator_epoch)
        if decision is not None:
            self._judge_decision(decision, batch, entry)
        elif not entry.sound and batch.control == "abort":
            return  # it may be an operator's: only the state before the damage could tell
        elif not self.decider.is_behind(batch.producer_id, batch.coordinator_epoch):
            self._note_undecided(batch, entry)
        elif len(self.deferred) < _DEFERRED_MAX:
            self.deferred.append((replace(entry, slots=array("q")), batch))

    def judge_deferred(self) -> None:
        """Judge what had to wait until the rest of the coordinator's log was read."""
        for entry, batch in self.deferred:
            decision = self.decider.decisions.find(batch.producer_id, batch.coordinator_epoch)
            if decision is None:
                self._note_undecided(batch, entry)
            else:
                self._judge_decision(decision, batch, entry)
        self.deferred.clear()

    def _judge_decision(self, decision: Decision, batch: Batch, entry: JudgedEntry) -> None:
        by = self.decider.locate(batch.producer_id, decision.offset)
        listed = entry.place in decision.partitions
        if decision.committed != (batch.control == "commit"):
            if entry.sound or batch.control == "commit":
                expected = f"{decision.kind}, decided by {by}"
                entry.note("marker-against-decision", batch, f"a marker that says {batch.control}", expected)
        elif decision.producer_epoch != batch.producer_epoch:
            seen = f"a marker at epoch {batch.producer_epoch}"
            entry.note(
                "marker-of-another-epoch", batch, seen, f"epoch {decision.producer_epoch}, decided by {by}"
            )
        elif not listed:
            names = ", ".join(str(place) for place in decision.partitions[:5]) or "none"
            expected = f"one of its partitions ({names})"
            entry.note("marker-outside-decision", batch, f"a marker of {by} in {entry.place}", expected)
        if listed:
            self.decider.decisions.show(decision, entry.place)

    def _note_undecided(self, batch: Batch, entry: JudgedEntry) -> None:
        if self.decider.is_blind(batch.producer_id, batch.coordinator_epoch):
            return
        entry.note(
            "marker-without-decision",
            batch,
            f"a marker that says {batch.control}, by authority of row {batch.coordinator_epoch}",
            f"a Prepare row of producer {batch.producer_id} at that offset of __transaction_state",
        )

    def _judge_operator_abort(self, batch: Batch, entry: JudgedEntry) -> None:
        decision = self.decider.decisions.of_epoch(batch.producer_id, batch.producer_epoch, entry.place)
        if decision is not None and decision.committed and entry.place in decision.partitions:
            expected = f"commit, decided by {self.decider.locate(batch.producer_id, decision.offset)}"
            entry.note("decision-overridden", batch, "an operator's abort of a decided transaction", expected)


def _is_operator_abort(producer: Producer | None, batch: Batch) -> bool:
    """An abort of a hanging transaction repeats the stored epochs; the first coordinator epoch is 0 (CMD-04)."""
    if producer is None or producer.open_first_offset < 0 or batch.control != "abort":
        return False
    stored = producer.coordinator_epoch
    repeats = batch.coordinator_epoch == stored or (stored == -1 and batch.coordinator_epoch == 0)
    return repeats and batch.producer_epoch == producer.producer_epoch


def _judge_epoch(producer: Producer, batch: Batch, entry: JudgedEntry) -> None:
    stored, is_open = producer.producer_epoch, producer.open_first_offset >= 0
    seen = f"a marker at epoch {batch.producer_epoch}"
    if batch.producer_epoch < stored:
        entry.note("marker-epoch", batch, seen, f"an epoch above {stored}")
    elif batch.producer_epoch == stored and not is_open:
        expected = (
            f"nothing: epoch {stored} is stored and no transaction is open, so the marker was here before"
        )
        entry.note("marker-repeated", batch, seen, expected)
    elif is_open and batch.producer_epoch != stored + 1 and not batch.producer_epoch == stored == MAX_EPOCH:
        expected = f"epoch {stored + 1}, which decides the transaction of epoch {stored}"
        entry.note(
            "marker-epoch", batch, f"{seen} for the one open since {producer.open_first_offset}", expected
        )
    if batch.coordinator_epoch < producer.coordinator_epoch:
        seen = f"coordinator epoch {batch.coordinator_epoch}"
        entry.note(
            "marker-fenced", batch, seen, f"at least {producer.coordinator_epoch}, that of a later decision"
        )


def places_of(partitions: tuple[tuple[str, int, int], ...]) -> tuple[Place, ...]:
    """A row's partitions, each once."""
    return tuple(dict.fromkeys(Place(*partition) for partition in partitions))
