"""The audit of one log in another process: what it needs to know goes there, and what it found comes back."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from storage.store import ObjectStore
from txn_engine.verify.control_rules import ControlRule
from txn_engine.verify.coordinator_audit import CoordinatorAudit
from txn_engine.verify.data_file_audit import ALL_FILES, FilesToRead
from txn_engine.verify.descriptor_rules import DescriptorRule
from txn_engine.verify.descriptors import Batch
from txn_engine.verify.file_table import FileTable
from txn_engine.verify.findings import Finding, FindingLog, Place
from txn_engine.verify.group_rules import GroupCommit, GroupCommits, GroupRule
from txn_engine.verify.held_files import Held
from txn_engine.verify.judged_entry import JudgedEntry, Rule
from txn_engine.verify.layout import Layout
from txn_engine.verify.marker_rules import MarkerRule
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.partition_audit import Audit, PartitionAudit
from txn_engine.verify.pickling import pickled, unpickled
from txn_engine.verify.producer_rules import ProducerRule, UsedBlocks
from txn_engine.verify.report import PartitionStats, Tally

GROUPS = "__consumer_offsets"

Shared: TypeAlias = Mapping[str, object]
AuditElsewhere: TypeAlias = "Callable[[PartitionTask, Sequence[Place]], Sequence[bytes]]"
"""Calls the task for each place, wherever it likes, and gives the answers in that order."""


@dataclass(slots=True)
class Outcome:
    """What the audit of one log found, on top of what is shared with the audit that it goes back to.

    shown: producer id and offset of each decision that a marker of this log shows, one after the other. `audit` has its
    data files only where the replay lists them.
    """

    audit: PartitionAudit
    stats: PartitionStats
    findings: list[Finding]
    not_listed: int
    tally: Tally
    used_blocks: set[int]
    shown: array[int]
    deferred: list[tuple[JudgedEntry, Batch]]
    commits: dict[str, list[GroupCommit]]
    not_folders: dict[str, str]

    @classmethod
    def read(cls, answer: bytes, shared: Shared) -> Outcome:
        """A task's answer. Raises `UnpicklableError` for anything else."""
        return cls(*unpickled(answer, shared))

    def answer(self, shared: Shared) -> bytes:
        """As bytes."""
        return pickled(tuple(getattr(self, name) for name in self.__slots__), shared)


@dataclass(frozen=True, slots=True)
class PartitionTask:
    """Audits one log; it pickles.

    coordinator: what the coordinator's log said at its first reading (`pickled`). latest_append_time: the store's, as
    far as it was read before. held: what cuts and tables read of which log.
    """

    store: ObjectStore
    coordinator: bytes
    layout: Layout
    files_of: frozenset[str]
    groups_of: frozenset[str]
    check_data: bool
    data_to_read: Mapping[Place, FilesToRead]
    now_ms: int | None
    latest_append_time: int
    workers: int
    held: Held

    def __call__(self, place: Place) -> bytes:
        """The outcome, as bytes."""
        tally, findings = Tally(), FindingLog()
        with ObjectReader(self.store, tally, self.workers) as reader:
            shared = shared_of(Audit(reader, findings, tally, _silent), object(), [], [])
            return self._judged(place, shared).answer(shared)

    def _judged(self, place: Place, shared: Mapping[str, Any]) -> Outcome:
        audit: Audit = shared["audit"]
        coordinator: CoordinatorAudit = unpickled(self.coordinator, shared)
        markers, ids, commits = MarkerRule(coordinator), UsedBlocks(), GroupCommits(self.groups_of)
        rules: list[Rule] = shared["rules"]
        rules += log_rules(coordinator, markers, self.layout, ids)
        if place.topic == GROUPS:
            rules += [GroupRule(self.layout.internal_partitions[GROUPS]), commits]
        log = PartitionAudit(audit, place, rules)
        log.advance()
        latest = max(self.latest_append_time, audit.tally.latest_append_time)
        stats = log.finish(
            self.layout.topics.get(place.topic),
            to_read=self.data_to_read.get(place, ALL_FILES) if self.check_data else None,
            now_ms=latest if self.now_ms is None else self.now_ms,
            holders=self.held.get(place, ()),
        )
        if place.topic not in self.files_of:
            log.state.files = FileTable()
        log.state.rewritten.clear()
        return Outcome(
            log,
            stats,
            audit.findings.found,
            audit.findings.not_listed,
            audit.tally,
            ids.blocks,
            coordinator.decisions.shown_in(place),
            markers.deferred,
            commits.found,
            audit.reader.not_folders,
        )


def log_rules(
    coordinator: CoordinatorAudit, markers: MarkerRule, layout: Layout, ids: UsedBlocks
) -> list[Rule]:
    """What must hold of every row of a log of groups or data."""
    return [DescriptorRule(), ProducerRule(coordinator), markers, ControlRule(layout), ids]


def shared_of(audit: Audit, layouts: object, rules: list[Rule], group_rules: list[Rule]) -> dict[str, object]:
    """What an audit has of its own, by the names under which another has its own."""
    return {
        "audit": audit,
        "reader": audit.reader,
        "findings": audit.findings,
        "layouts": layouts,
        "rules": rules,
        "group rules": group_rules,
    }


def _silent(_what: str, _done: int, _total: int) -> None:
    """Who waits for the outcome is told of that."""
