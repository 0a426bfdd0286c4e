"""What an audit answers: the findings, and how much was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from txn_engine.verify.audited_partition import AbortedIndex, AuditedPartition
from txn_engine.verify.decisions import DecisionTable
from txn_engine.verify.file_table import DataFile
from txn_engine.verify.findings import Finding, Place
from txn_engine.verify.group_rules import GroupCommit

_AT_REST = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One partition after its replay; `judged` is False where damage ended the judging early."""

    topic: str
    incarnation: int
    partition: int
    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int
    entries: int
    batches: int
    records: dict[str, int]  # by what became of their file: live, undecided, aborted, replaced
    data_files: int
    orphan_files: int
    snapshots: int
    judged: bool

    @property
    def place(self) -> Place:
        """The partition."""
        return Place(self.topic, self.incarnation, self.partition)


@dataclass(slots=True)
class Tally:
    """What has been read so far."""

    objects: int = 0
    bytes: int = 0
    unchanged: int = 0
    entries: int = 0
    batches: int = 0
    records: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    latest_append_time: int = 0

    def take(self, other: Tally) -> None:
        """Add what was read elsewhere."""
        for name in ("objects", "bytes", "unchanged", "entries", "batches", "records"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latest_append_time = max(self.latest_append_time, other.latest_append_time)


@dataclass(frozen=True, slots=True)
class VerifyStats:
    """How much was looked at.

    `objects` and `bytes`: read from the store. `unchanged`: objects not read again, since an earlier sound audit read
    them and they are as they were; `whole_for`: why none is that could have been (empty: some are, or nobody asked).
    `records`: in the data topics, whatever became of them.
    `transactions`: decisions by how far they are (CompleteCommit, CompleteAbort, PrepareCommit, PrepareAbort), and
    Ongoing ones. `foreign_objects`: at keys that the format does not have. `findings_not_listed`: beyond
    the first 20 of a kind in a partition.
    """

    objects: int
    bytes: int
    unchanged: int
    whole_for: str
    entries: int
    batches: int
    records: int
    transactions: dict[str, int]
    partitions: tuple[PartitionStats, ...]
    foreign_objects: int
    orphan_files: int
    findings_not_listed: int
    seconds: float


class OpenId(NamedTuple):
    """A transactional id that is not at rest by its latest row, the topics of its transaction, and who writes it."""

    transactional_id: str
    state: str
    topics: frozenset[str]
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class GroupLog:
    """The rows of a group as its log has them; `is_whole`: from its first one on, for none is sealed."""

    is_whole: bool
    commits: tuple[GroupCommit, ...]


class PendingCommit(NamedTuple):
    """An offset commit that its producer's transaction has not decided yet."""

    group_id: str
    place: Place
    producer_id: int


@dataclass(slots=True)
class Replay:
    """What the raw entries give, for whoever compares the engine's answers with it; not part of the JSON.

    Of places that were judged to their end: `aborted`, the aborted transactions; `open`, the producers whose
    transaction no marker has ended; both without the places that have none. `live`: the live data files, of the topics
    in `files_of` alone. `groups`: the commits of the groups in `groups_of` whose log was judged to its end; none where
    it holds no row of them. `erased`: where records were erased, what stands for which file. `decisions`: what the
    coordinator's log decided.
    """

    files_of: frozenset[str] = frozenset()
    groups_of: frozenset[str] = frozenset()

    erased: dict[Place, Mapping[str, DataFile | None]] = field(default_factory=dict)
    aborted: dict[Place, AbortedIndex] = field(default_factory=dict)
    open: dict[Place, tuple[int, ...]] = field(default_factory=dict)
    open_ids: list[OpenId] = field(default_factory=list)
    pending: list[PendingCommit] = field(default_factory=list)
    live: dict[Place, tuple[DataFile, ...]] = field(default_factory=dict)
    groups: dict[str, GroupLog] = field(default_factory=dict)
    decisions: DecisionTable = field(default_factory=DecisionTable)

    def keep(self, place: Place, state: AuditedPartition) -> None:
        """Keep what a partition gives."""
        if len(state.aborted):
            self.aborted[place] = state.aborted
        if state.open:
            self.open[place] = tuple(state.open)
        if place.topic in self.files_of:
            self.live[place] = tuple(file for file in state.files.in_order() if file.status == "live")
        for name, stored in state.transactions.items():
            if stored.row.state not in _AT_REST:
                topics = frozenset(topic for topic, _, _ in stored.row.partitions)
                row = stored.row
                self.open_ids.append(OpenId(name, row.state, topics, row.producer_id, row.producer_epoch))
        for producer_id, commits in state.pending.items():
            self.pending += [
                PendingCommit(
                    stored.commit.group_id,
                    Place(stored.commit.topic, stored.commit.incarnation, stored.commit.partition),
                    producer_id,
                )
                for stored in commits.values()
            ]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The findings in a fixed order (errors first, then by place), the statistics, and what the raw entries give."""

    findings: tuple[Finding, ...]
    stats: VerifyStats
    replay: Replay = field(default_factory=Replay, repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: warnings (work that a sweep will do, or what may be meant) do not count."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, object]:
        """The report as JSON values."""
        return {
            "ok": self.ok,
            "findings": [finding.to_dict() for finding in self.findings],
            "stats": asdict(self.stats),
        }
