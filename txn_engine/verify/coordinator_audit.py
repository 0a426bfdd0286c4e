"""The coordinator's log: replayed first, asked by every marker, and read again at last (invariants 3 and 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from txn_engine.verify.audited_partition import AuditedPartition, StoredTransaction
from txn_engine.verify.control_rules import ControlRule
from txn_engine.verify.decisions import DecisionTable
from txn_engine.verify.descriptor_rules import DescriptorRule
from txn_engine.verify.descriptors import Batch, TransactionRow
from txn_engine.verify.findings import Place, Witness
from txn_engine.verify.judged_entry import JudgedEntry, Rule
from txn_engine.verify.layout import Layout, LayoutAudit
from txn_engine.verify.lost_logs import LostLogs
from txn_engine.verify.marker_rules import places_of
from txn_engine.verify.partition_audit import Audit, PartitionAudit
from txn_engine.verify.transaction_rules import TransactionRule, is_renewal

TOPIC = "__transaction_state"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a partition has not seen decided."""

    place: Place
    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int


class CoordinatorAudit:
    """All partitions of `__transaction_state`.

    A marker's Prepare row is written before it, and a Complete row after all markers. So this log is read before the
    partitions (what is complete by then must show in them) and again after them (what they show must stand in it):
    a store in use gives no false findings.
    """

    def __init__(self, audit: Audit, partitions: int, layouts: LayoutAudit) -> None:
        self.decisions = DecisionTable()
        self._audit = audit
        self._owners: dict[int, tuple[str, int]] = {}  # producer id -> transactional id, its partition
        self._shared: set[tuple[int, str]] = set()
        self._reread = False
        self._overtaken: set[int] = set()  # partitions sealed beyond what the first reading saw
        self._partitions = partitions
        self._layouts = layouts
        self._rules: list[Rule] = [
            DescriptorRule(),
            ControlRule(Layout({})),
            TransactionRule(partitions),
            Recorder(self),
        ]
        self._audits: dict[int, PartitionAudit] = {}

    @property
    def audits(self) -> list[PartitionAudit]:
        """The partitions, by number."""
        return [self._audits[number] for number in sorted(self._audits)]

    def advance(self, lost: LostLogs) -> None:
        """Read all that is there; the second time, all that came meanwhile. `lost`: knows what was begun before this is
        read for the first time.
        """
        named = {place.partition for place in lost.named(TOPIC) if place.partition < self._partitions}
        for number in sorted({*self._layouts.existing(TOPIC, self._partitions), *named}):
            if number not in self._audits:
                self._audits[number] = PartitionAudit(self._audit, Place(TOPIC, 0, number), self._rules)
        for audit in self.audits:
            seen = audit.state.log_end_offset
            audit.advance()
            if audit.starts_at > 0:
                self._recall(audit)
            is_empty = audit.sound and not audit.state.log_end_offset
            if is_empty and not self._reread and lost.note_if_lost(audit.place):
                audit.note_lost()
            if self._reread and audit.starts_at > seen:
                self._overtaken.add(audit.place.partition)
        self._reread = True

    def is_as_it_was(self) -> bool:
        """Whether all that an earlier audit read of this log is there, unchanged."""
        return all(audit.is_as_it_was() for audit in self.audits)

    def continues(self, before: CoordinatorAudit) -> bool:
        """Whether this log says what it said in an earlier audit, of all that is not sealed by now."""
        for number, known in before._audits.items():
            held = self._audits.get(number)
            if held is None or not held.sound or held.state.log_end_offset < known.state.log_end_offset:
                return False
        return all(
            self.is_blind(decision.producer_id, decision.offset)
            or self.decisions.find(decision.producer_id, decision.offset) == decision
            for decision in before.decisions
        )

    def begin_again(self) -> None:
        """Go on in another audit: what comes next is its first reading."""
        self._reread = False
        self._overtaken.clear()
        self.decisions.become_due()
        for audit in self.audits:
            audit.count_again()

    def _recall(self, audit: PartitionAudit) -> None:
        """Learn from the latest rows what the sealed entries said of ids that are still in use."""
        for name, stored in audit.state.transactions.items():
            if stored.row.producer_id >= 0:
                self._owners.setdefault(stored.row.producer_id, (name, audit.place.partition))
            self._decide(stored.offset, stored.row, stored.append_time)

    def record(self, state: AuditedPartition, batch: Batch, row: TransactionRow, entry: JudgedEntry) -> None:
        """Keep what the partitions will be judged by."""
        if row.producer_id >= 0:
            before = state.transactions.get(row.transactional_id)
            self._own(row, before is None or before.row.producer_id != row.producer_id, batch, entry)
        self._decide(batch.base_offset, row, batch.append_time)
        if row.state in ("CompleteCommit", "CompleteAbort") and row.decision_offset >= 0:
            before = state.transactions.get(row.transactional_id)
            if before is not None and is_renewal(before.row, row):
                return
            producer_id = row.producer_id
            if before is not None and before.offset == row.decision_offset:
                producer_id = before.row.producer_id
                self._decide(
                    before.offset, before.row, before.append_time
                )  # the snapshot's, where it is sealed
            self.decisions.complete(producer_id, row.decision_offset, due=not self._reread)

    def _decide(self, offset: int, row: TransactionRow, append_time: int) -> None:
        """Note the decision of a row, if it is one, and has not been noted before."""
        if row.state in ("PrepareCommit", "PrepareAbort"):
            self.decisions.add(
                row.producer_id,
                offset,
                row.producer_epoch,
                committed=row.state == "PrepareCommit",
                partitions=places_of(row.partitions),
                append_time=append_time,
            )

    def _own(self, row: TransactionRow, is_new: bool, batch: Batch, entry: JudgedEntry) -> None:
        """Note whose producer id this is. One that the row before did not have nobody may have had."""
        owner = self._owners.get(row.producer_id)
        if owner is None:
            self._owners[row.producer_id] = (row.transactional_id, entry.place.partition)
            return
        code, had = "producer-id-shared", f"{owner[0]!r} has this one"
        if owner[0] == row.transactional_id:
            if not is_new:
                return
            code, had = "producer-id-reused", "it had this one before"
        if (row.producer_id, row.transactional_id) not in self._shared:
            self._shared.add((row.producer_id, row.transactional_id))
            entry.findings.add(
                code,
                entry.key,
                f"transactional id {row.transactional_id!r} writes as producer {row.producer_id}",
                expected=f"a producer id of its own: {had}",
                place=entry.place,
                offsets=batch.offsets,
                producer_id=row.producer_id,
                since_ms=batch.append_time,
            )

    # --- what markers ask ---------------------------------------------------------------------------------

    def is_blind(self, producer_id: int, offset: int) -> bool:
        """Whether damage or sealing hides what stands at that offset for that producer."""
        owner = self._owners.get(producer_id)
        homes = self._audits.values() if owner is None else (self._audits[owner[1]],)
        return any(
            offset < home.starts_at or (home.broken_at is not None and offset >= home.broken_at)
            for home in homes
        )

    def is_behind(self, producer_id: int, offset: int) -> bool:
        """Whether the row at that offset may have been written since this log was read."""
        owner = self._owners.get(producer_id)
        return owner is None or offset >= self._audits[owner[1]].state.log_end_offset

    def owner_of(self, producer_id: int) -> str | None:
        """The transactional id that writes as this producer."""
        owner = self._owners.get(producer_id)
        return None if owner is None else owner[0]

    @property
    def producer_ids(self) -> Collection[int]:
        """Every producer id that a transactional id has had."""
        return self._owners.keys()

    def locate(self, producer_id: int, offset: int) -> str:
        """The row in words."""
        name, number = self._owners.get(producer_id, ("?", -1))
        return f"row {offset} of {TOPIC}-{number} (transactional id {name!r})"

    # --- what only the end tells --------------------------------------------------------------------------

    def unexplained(self, opened: OpenTransaction) -> str | None:
        """None where somebody will decide it, or something hides whether; otherwise what this log says of it.

        A seal hides nothing: an id with a transaction open or undecided has its latest row in every snapshot. What
        hides it is damage, or a clean-up that sealed rows between the two readings.
        """
        owner = self._owners.get(opened.producer_id)
        homes = self.audits if owner is None else [self._audits[owner[1]]]
        if any(not home.sound or home.place.partition in self._overtaken for home in homes):
            return None
        if owner is None:
            return "no transactional id has this producer id"
        home = self._audits[owner[1]]
        stored = home.state.transactions.get(owner[0])
        decision = self.decisions.of_epoch(opened.producer_id, opened.producer_epoch, opened.place)
        if decision is None:
            return None if stored is None or _is_ongoing(stored, opened) else _said(stored)
        if opened.place in decision.partitions:
            return None  # pending, or complete only now, or a finding of its own: decision-not-carried-out
        return f"{self.locate(opened.producer_id, decision.offset)} decided it without this partition"

    def witnesses(self) -> Iterator[tuple[Place, Witness]]:
        """Complete transactions: each left a marker at least in every partition of its own."""
        for decision, places in self.decisions.not_shown():
            for place in places:
                yield (
                    place,
                    Witness(
                        1, f"a transaction of {self.owner_of(decision.producer_id)!r}, which is complete"
                    ),
                )

    def count(self, transactions: Counter[str]) -> None:
        """Add the transactions by how far they are."""
        self.decisions.count(transactions)
        for audit in self.audits:
            transactions["Ongoing"] += sum(
                stored.row.state == "Ongoing" for stored in audit.state.transactions.values()
            )

    def judge_open(self, now_ms: int) -> None:
        """Warn of what a sweep will end: transactions past their timeout, and decisions not carried out yet."""
        for audit in self.audits:
            for _, stored in sorted(audit.state.transactions.items()):
                if audit.sound:
                    self._judge_latest(audit.place, stored, now_ms)

    def _judge_latest(self, place: Place, stored: StoredTransaction, now_ms: int) -> None:
        row = stored.row
        started = stored.start_append_time
        named = f"transactional id {row.transactional_id!r}: {row.state}"
        if row.state.startswith("Prepare"):
            code, seen, expected = (
                "transaction-pending",
                f"{named}, decided and not complete",
                "its Complete row",
            )
        elif row.state == "Ongoing" and row.transaction_timeout_ms != 2**31 - 1:
            if started + row.transaction_timeout_ms >= now_ms:
                return
            code, seen = "transaction-timed-out", f"{named}, open for {now_ms - started} ms"
            expected = f"an end within {row.transaction_timeout_ms} ms"
        else:
            return
        self._audit.findings.add(
            code,
            f"{place.prefix}/log/",
            seen,
            expected=expected,
            place=place,
            offsets=(stored.offset, stored.offset),
            producer_id=row.producer_id,
            since_ms=row.update_ms if row.state.startswith("Prepare") else started,
        )


def _is_ongoing(stored: StoredTransaction, opened: OpenTransaction) -> bool:
    row = stored.row
    same = (row.producer_id, row.producer_epoch) == (opened.producer_id, opened.producer_epoch)
    return row.state == "Ongoing" and same and opened.place in places_of(row.partitions)


def _said(stored: StoredTransaction) -> str:
    row = stored.row
    return (
        f"transactional id {row.transactional_id!r} is in {row.state} at producer {row.producer_id} "
        f"epoch {row.producer_epoch} (row {stored.offset}), without this transaction"
    )


class Recorder:
    """Hands each row on to the audit, legal or not."""

    def __init__(self, coordinator: CoordinatorAudit) -> None:
        self._coordinator = coordinator

    def judge(self, state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Judges nothing itself but whose producer id it is."""
        if isinstance(batch.row, TransactionRow):
            self._coordinator.record(state, batch, batch.row, entry)
