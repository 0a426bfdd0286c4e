"""Compaction by key: of each key the latest committed record stays (Kafka's `Cleaner`, decision 7).

A round reads the keys of all files up to at most the last stable offset, once; then it goes upwards through the runs of
neighbours, and rewrites those with something to leave out: records with a later one of their key, and tombstones that
have stood alone for long enough. A rewrite says only as far as the round has come that no tombstone is left, so that a
round that dies is due again. When all is done, a `clean` row says how far. Files of aborted and open transactions are
not among those that it reads. Who reads keys and makes files are the workers; what the log is told is said here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txn_engine.errors import InvalidRequestError
from txn_engine.log.ages import LogAges
from txn_engine.log.store_time import Moment
from txn_engine.log.topics import Topic
from txn_engine.maintain.merged_files import Count, replace_inputs
from txn_engine.maintain.neighbours import committed_files, groups, span_of
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import Merged, Rule, Workers
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.proposals import Appended, CleanProposal, RewriteProposal


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one round looks at: files below the LSO and old enough, and which tombstones may go."""

    state: PartitionState
    files: tuple[LogFile, ...]
    tombstones_to: int

    @property
    def dirty(self) -> list[LogFile]:
        return [file for file in self.files if file.last_offset >= self.state.cleaning.cleaned_to]

    @property
    def end(self) -> int:
        """Behind the last file."""
        return self.files[-1].last_offset + 1 if self.files else 0

    @property
    def due_to(self) -> int:
        """Below which offset tombstones may be left that may go; -1: none is."""
        return self.tombstones_to if self.tombstones_to > self.state.cleaning.tombstones_to else -1

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether enough is dirty (`min.cleanable.dirty.ratio`), or a tombstone may have waited for long enough."""
        dirty = sum(file.file.data_bytes for file in self.dirty)
        enough = dirty > 0 and dirty >= min_dirty_ratio * sum(file.file.data_bytes for file in self.files)
        return enough or self.due_to >= 0


class KeyCompactor:
    """Compaction by key of one partition. What it did, or in a dry run would do, is in `count`."""

    def __init__(
        self,
        target: Target,
        topic: Topic,
        policy: MaintenancePolicy,
        workers: Workers,
        moment: Moment,
        count: Count,
        *,
        dry_run: bool,
    ) -> None:
        if topic.key is None:
            raise InvalidRequestError(
                "compaction by key", actor=f"topic {topic.name!r}", expected="a key column"
            )
        self._target = target
        self._topic = topic
        self._policy = policy
        self._workers = workers
        self._moment = moment
        self._count = count
        self._dry_run = dry_run

    def run(self) -> None:
        """One round, from the log's start to where the partition may be clean now.

        Where another run has been quicker this one stops; the next run of the job goes on. Raises
        `InvalidRequestError` for a rewrite that is refused for any other reason.
        """
        plan = self.plan(self._target.read_back())
        ratio = self._policy.min_dirty_ratio
        if not plan.is_due(self._topic.min_cleanable_dirty_ratio if ratio is None else ratio):
            return
        if not self._rewrite_all(plan) or self._dry_run or self._is_altered():
            return
        cleaned_to = max(plan.end, plan.state.cleaning.cleaned_to)
        clean = CleanProposal(
            cleaned_to, plan.tombstones_to, self._topic.delete_retention_ms, self._topic.changes > 0
        )
        verdict = self._target.log.append_one(clean)
        self._count.cleaned |= isinstance(verdict, Appended)

    def plan(self, state: PartitionState) -> _Plan:
        """What this round is to do."""
        due = state.cleaning.tombstones_to
        if self._topic.tombstone_columns:
            due = state.cleaning.due_tombstones_to(self._moment.now_ms, self._topic.delete_retention_ms)
        lag_ms = self._topic.min_compaction_lag_ms
        young_ms = self._moment.now_ms - lag_ms
        end = LogAges(self._target.log, state, self._moment).end_at(young_ms + 1) if lag_ms > 0 else 0
        files: list[LogFile] = []
        for file in committed_files(state):
            if lag_ms > 0 and (file.last_offset >= end or young_ms < file.max_timestamp):
                due = min(due, file.base_offset)
                break
            files.append(file)
        return _Plan(state, tuple(files), due)

    def _rewrite_all(self, plan: _Plan) -> bool:
        """Every run with something to leave out, upwards; False where another run was quicker."""
        choose = self._workers.latest if plan.dirty else self._workers.every
        with choose(self._target, self._topic, plan.files) as staying:
            runs = self._runs(plan, staying.counts)
            rule = Rule(
                plan.state.log_end_offset, by_key=True, tombstones_to=plan.due_to, dry_run=self._dry_run
            )
            went_through = all(self._replace(merged, plan) for merged in staying.merge(runs, rule))
            self._count.note(staying.by)
            return went_through

    def _runs(self, plan: _Plan, counts: Sequence[int]) -> list[tuple[int, int]]:
        """The runs in which something is superseded, or may be a tombstone that is due."""
        target_bytes = self._policy.target_file_bytes
        return [
            (start, end)
            for start, end in groups(plan.files, counts, target_bytes, span_of(self._topic))
            if plan.files[start].base_offset < plan.due_to
            or any(
                file.record_count > count
                for file, count in zip(plan.files[start:end], counts[start:end], strict=True)
            )
        ]

    def _is_altered(self) -> bool:
        """Whether the topic is another by now than the round goes by: the next run plans anew."""
        now = self._target.as_of_now().records
        is_altered = now is not None and now.changes != self._topic.changes
        self._count.overtaken += is_altered
        return is_altered

    def _replace(self, merged: Merged, plan: _Plan) -> bool:
        """Put what is kept of a run in its place; False where its files are not live any more."""
        if not merged.dropped:
            return True
        if self._dry_run:
            self._count.add(merged)
            return True
        outputs = () if merged.output is None else (merged.output,)
        if self._is_altered():
            self._target.take_back(outputs)
            return False
        come_to = min(plan.tombstones_to, merged.run[-1].last_offset + 1)
        rewrite = RewriteProposal(
            merged.run, outputs, come_to, self._topic.delete_retention_ms, self._topic.changes > 0
        )
        verdict = replace_inputs(self._target, rewrite)
        if verdict is None:
            self._count.overtaken += 1
            return False
        if isinstance(verdict, Appended):
            self._count.add(merged)
        return True
