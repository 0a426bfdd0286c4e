"""The raw side of the evidence: a replay of the entries, by the auditor's code, which shares none with the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txn_engine.loading import group_of
from txn_engine.quality.declaration import Declaration
from txn_engine.quality.evidence import (
    AbortedRange,
    AsOf,
    AuditFinding,
    CommittedOffset,
    GroupHistory,
    ReplayedFile,
    ReplayedPartition,
    SeenFile,
    TopicRows,
    TransactionState,
)
from txn_engine.quality.standpoint import Standpoint
from txn_engine.types import TopicPartition
from txn_engine.verify import FilesToRead, Finding, Place
from txn_engine.verify.cut_reading import LogAtCut, read_cut

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.verify import PartitionStats, VerifyReport
    from txn_engine.verify.report import Replay

_Writer = tuple[int | None, int | None]
"""Producer id and epoch."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit found, how many more it counted without listing them, and partitions, transactions that have not
    ended, and pending commits as it replayed them.
    """

    findings: tuple[AuditFinding, ...]
    findings_not_listed: int
    partitions: tuple[ReplayedPartition, ...]
    transactions: tuple[TransactionState, ...]
    pending: Mapping[int, int]
    aborted: frozenset[_Writer]
    open: frozenset[_Writer]
    group_history: GroupHistory
    positions: Mapping[int, int] | None = None
    now: Audit | None = None

    def fate(self, file: SeenFile) -> str:
        """What the coordinator's rows say of the file's transaction where that is not that it was committed."""
        writer = (file.producer_id, file.producer_epoch)
        return "aborted" if writer in self.aborted else "undecided" if writer in self.open else ""


class AuditReader:
    """Replays the store for one declaration, from where an earlier proof went."""

    def __init__(
        self,
        engine: Engine,
        check: Declaration,
        since: Mapping[TopicPartition, int],
        again: Mapping[TopicPartition, range],
        progress: Callable[[str], None],
        at: Standpoint,
    ) -> None:
        self._engine = engine
        self._check = check
        self._since = since
        self._again = again
        self._tell = progress
        self._at = at

    def touches(self, topics: Collection[str]) -> bool:
        """Whether a transaction over these topics touches the checked ones, or nobody can tell."""
        named = {topic for topic in topics if not topic.startswith("__")}
        return not named or not named.isdisjoint(self._check.topics)

    def _verified(self) -> VerifyReport:
        """The whole store. Where an earlier proof is gone on from: these topics, with the names and sizes of all data
        files, and the contents of those that are new and of some that were read before.
        """
        topics, groups = self._check.topics, [*map(group_of, self._check.dead_letter_topics)]
        groups += [self._check.group_id] if self._check.group_id else []
        if not self._since:
            return self._engine.admin.verify(files_of=topics, groups_of=groups)
        return self._engine.admin.verify(
            topics=topics, files_of=topics, groups_of=groups, data_to_read=self._to_read()
        )

    def _to_read(self) -> dict[Place, FilesToRead]:
        lives = {topic: self._engine.admin.describe_topic(topic).incarnation for topic in self._check.topics}
        return {
            Place(place.topic, lives[place.topic], place.partition): FilesToRead(
                offset, self._again.get(place, range(0))
            )
            for place, offset in self._since.items()
        }

    def read(self) -> Audit:
        """A replay of the whole store from its raw objects, by code of its own; as of a cut its partitions and the
        group's commits as they were then.
        """
        self._tell("replaying the raw logs (verify)")
        report = self._verified()
        audit = self._audit(report)
        as_of = self._at.cut
        if as_of is None:
            return audit
        if as_of.is_kept:
            return self._at_cut(as_of.cut, audit, report.replay)
        return self._at_offsets(as_of, audit)

    def _at_offsets(self, as_of: AsOf, audit: Audit) -> Audit:
        """By the replay alone, up to where the cut of the run goes; `now` is what the replay says of the store as it
        is.
        """
        history = audit.group_history
        commits = tuple(commit for commit in history.commits if commit.row < as_of.group_end)
        stood = {commit.partition: commit.offset for commit in commits if commit.took_effect}
        return replace(
            audit,
            partitions=tuple(
                _inside(each, as_of.offsets.get(TopicPartition(each.topic, each.partition), 0))
                for each in audit.partitions
            ),
            transactions=(),
            pending={},
            group_history=replace(history, commits=commits),
            positions={number: offset for number, offset in stood.items() if offset >= 0}
            if history.is_whole
            else None,
            now=audit,
        )

    def _at_cut(self, number: int, audit: Audit, replay: Replay) -> Audit:
        """By the snapshots that the cut names, which the replay was held against; not above its stable offsets."""
        self._tell(f"reading what cut {number} names")
        found = read_cut(
            self._engine.store,
            number,
            topics=self._check.topics,
            group_id=self._check.group_id,
            known={place: {file.data_path for file in files} for place, files in replay.live.items()},
            data_from={place: files.since for place, files in self._to_read().items()},
            erased=replay.erased,
        )
        stable = {(now.topic, now.partition): now.last_stable_offset for now in audit.partitions}
        history = audit.group_history
        commits = tuple(commit for commit in history.commits if commit.row < found.group_end)
        return replace(
            audit,
            findings=audit.findings + tuple(map(_finding, found.findings)),
            partitions=tuple(
                _partition_at(place, log, stable.get((place.topic, place.partition), log.offset))
                for place, log in found.logs.items()
            ),
            transactions=(),
            pending={},
            group_history=replace(history, commits=commits),
            positions=None
            if found.positions is None
            else {
                place.partition: offset
                for place, offset in found.positions.items()
                if place.topic == self._check.topic
            },
        )

    def _audit(self, report: VerifyReport) -> Audit:
        replay = report.replay
        findings = tuple(map(_finding, report.findings))
        latest: dict[tuple[str, int], PartitionStats] = {}
        for (
            stats
        ) in report.stats.partitions:  # by topic and partition; of a topic made again the last life counts
            place = (stats.topic, stats.partition)
            if stats.topic in self._check.topics and (
                place not in latest or latest[place].incarnation < stats.incarnation
            ):
                latest[place] = stats
        partitions = tuple(
            ReplayedPartition(
                stats.topic,
                stats.partition,
                stats.last_stable_offset,
                stats.log_end_offset,
                stats.records.get("live", 0),
                stats.log_start_offset,
                len(replay.open.get(stats.place, ())),
                tuple(AbortedRange(*entry[:3]) for entry in replay.aborted.get(stats.place, ())),
                tuple(
                    ReplayedFile(
                        f"{stats.place.prefix}/{file.data_path}",
                        file.base_offset,
                        file.last_offset,
                        file.record_count,
                    )
                    for file in replay.live.get(stats.place, ())
                ),
            )
            for stats in latest.values()
            if stats.judged
        )
        transactions = tuple(
            TransactionState(each.transactional_id, each.state, self.touches(each.topics))
            for each in replay.open_ids
        )
        pending = {
            each.place.partition: each.producer_id
            for each in replay.pending
            if (each.group_id, each.place.topic) == (self._check.group_id, self._check.topic)
        }
        aborted = frozenset(replay.decisions.aborted())
        opened = frozenset(
            (each.producer_id, each.producer_epoch) for each in replay.open_ids if each.state == "Ongoing"
        )
        return Audit(
            findings,
            report.stats.findings_not_listed,
            partitions,
            transactions,
            pending,
            aborted,
            opened,
            self._history(replay, aborted | opened),
        )

    def _history(self, replay: Replay, undone: frozenset[_Writer]) -> GroupHistory:
        """The group's commits for the topic's present life."""
        found = replay.groups.get(self._check.group_id or "")
        if found is None:
            return GroupHistory()
        topic = self._engine.admin.describe_topic(self._check.topic)
        mine = (topic.topic, topic.incarnation)
        # A replay of dead letters moves a group of its own, with the records that it writes.
        replays = [replay.groups.get(group_of(name)) for name in self._check.dead_letter_topics]
        groups = [found, *(each for each in replays if each is not None)]
        return GroupHistory(
            all(each.is_whole for each in groups),
            tuple(
                CommittedOffset(
                    each.place.partition,
                    each.row,
                    each.offset,
                    each.producer_id,
                    each.producer_epoch,
                    each.metadata,
                    (each.producer_id, each.producer_epoch) not in undone,
                )
                for each in found.commits
                if (each.place.topic, each.place.incarnation) == mine
            ),
            frozenset((each.producer_id, each.producer_epoch) for group in groups for each in group.commits),
        )


def _finding(finding: Finding) -> AuditFinding:
    return AuditFinding(str(finding), finding.severity == "error", finding.code, finding.object)


def _inside(now: ReplayedPartition, offset: int) -> ReplayedPartition:
    """The partition up to an offset. `log_end_offset` is above the stable one where that goes through a file: how many
    of its records are inside the raw entries do not say.
    """
    stable = min(offset, now.last_stable_offset)
    live = tuple(file for file in now.live or () if file.base_offset < offset)
    is_through_a_file = any(file.last_offset >= offset for file in live)
    return replace(
        now,
        last_stable_offset=stable,
        log_end_offset=stable + 1 if is_through_a_file else stable,
        live_records=sum(file.record_count for file in live),
        log_start_offset=min(now.log_start_offset, stable),
        open_transactions=0,
        aborted=tuple(each for each in now.aborted if each.first_offset < offset),
        live=None if now.live is None else live,
    )


def _partition_at(place: Place, log: LogAtCut, stable_now: int) -> ReplayedPartition:
    """`log_end_offset` above the stable one where the cut goes through a file: how many of its records are inside the
    raw objects do not say.
    """
    stable = min(log.offset, log.last_stable_offset, stable_now)
    is_through_a_file = any(file.last_offset >= log.offset for file in log.live)
    return ReplayedPartition(
        place.topic,
        place.partition,
        stable,
        stable + 1 if is_through_a_file else stable,
        sum(file.record_count for file in log.live),
        min(log.log_start_offset, stable),
        0,
        tuple(AbortedRange(*entry[:3]) for entry in log.aborted),
        tuple(
            ReplayedFile(
                f"{place.prefix}/{file.data_path}", file.base_offset, file.last_offset, file.record_count
            )
            for file in log.live
        ),
    )


def fates_of(rows: Iterable[TopicRows | None], audit: Audit | None) -> Mapping[str, str]:
    """The fates of visible files that are not committed by the coordinator's rows, by key."""
    files = (file for each in rows if each is not None for file in each.files)
    return {file.key: fate for file in files if (fate := audit.fate(file))} if audit else {}
