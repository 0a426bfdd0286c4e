"""Compaction by key: of each key the latest committed record stays (Kafka's `Cleaner`, decision 7).

A round reads the keys of the dirty part, from where the log says that the partition is clean up to at most the last
stable offset; then it goes upwards through all files below, and rewrites those with something to leave out: records
with a later one of their key in the dirty part, and tombstones that have stood alone for long enough. A rewrite says
only as far as the round has come that no tombstone is left, so that a round that dies is due again. When all is done, a
`clean` row says how far. Files of aborted and open transactions are not among those that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import OFFSET, TIMESTAMP
from txn_engine.log.topics import Topic
from txn_engine.maintain.merged_files import Count, replace_inputs, upload
from txn_engine.maintain.merging import FileMerger, Kept
from txn_engine.maintain.neighbours import Run, committed_files, groups, span_of
from txn_engine.maintain.offset_map import OffsetMap
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.target import Target
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

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether enough is dirty (`min.cleanable.dirty.ratio`), or a tombstone may have waited for long enough."""
        dirty = sum(file.file.data_bytes for file in self.dirty)
        enough = dirty > 0 and dirty >= min_dirty_ratio * sum(file.file.data_bytes for file in self.files)
        return enough or self.tombstones_to > self.state.cleaning.tombstones_to


class KeyCompactor:
    """Compaction by key of one partition. What it did, or in a dry run would do in its first round, is in `count`."""

    def __init__(
        self,
        target: Target,
        topic: Topic,
        policy: MaintenancePolicy,
        now_ms: int,
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
        self._key = topic.key
        self._policy = policy
        self._now_ms = now_ms
        self._count = count
        self._dry_run = dry_run
        self._merger = FileMerger(target.objects, target.tools.executor, topic, target.partition)

    def run(self) -> None:
        """Round after round until the partition is clean up to where it was to be when this began.

        Where another run has been quicker this one stops; the next run of the job goes on. Raises
        `InvalidRequestError` for a rewrite that is refused for any other reason.
        """
        plan = self._plan(self._target.read_back())
        goal = plan.end
        if not plan.is_due(self._policy.min_dirty_ratio):
            return
        while self._round(plan) and not self._dry_run:
            plan = self._plan(self._target.read_back())
            if plan.state.cleaning.cleaned_to >= min(goal, plan.end):
                return

    def _plan(self, state: PartitionState) -> _Plan:
        due = state.cleaning.tombstones_to
        if self._topic.tombstone_columns:
            due = state.cleaning.due_tombstones_to(self._now_ms, self._topic.delete_retention_ms)
        lag_ms = self._topic.min_compaction_lag_ms
        files: list[LogFile] = []
        for file in committed_files(state):
            if lag_ms > 0 and file.max_timestamp > self._now_ms - lag_ms:
                due = min(due, file.base_offset)
                break
            files.append(file)
        return _Plan(state, tuple(files), due)

    def _round(self, plan: _Plan) -> bool:
        """One round, from the log's start upwards; False where another run was quicker."""
        latest, cleaned_to = self._latest_offsets(plan)
        below = [file for file in plan.files if file.base_offset < cleaned_to]
        for run in groups(below, self._policy.target_file_bytes, span_of(self._topic)):
            if not self._rewrite(run, latest, plan):
                return False
        if not self._dry_run:
            verdict = self._target.log.append_one(CleanProposal(cleaned_to, plan.tombstones_to))
            self._count.cleaned |= isinstance(verdict, Appended)
        return True

    def _latest_offsets(self, plan: _Plan) -> tuple[OffsetMap, int]:
        """The latest offset of each key from the first dirty offset on, and up to which offset the map has room."""
        cleaned_to = plan.state.cleaning.cleaned_to
        latest = OffsetMap(self._topic.schema.field(self._key).type, self._policy.offset_map_bytes)
        for file, tables in self._merger.read(plan.dirty, [self._key, OFFSET]):
            for table in tables:
                latest.add(table.column(self._key), table.column(OFFSET))
            cleaned_to = file.last_offset + 1
            if latest.is_full:
                break
        return latest, cleaned_to

    def _rewrite(self, run: Run, latest: OffsetMap, plan: _Plan) -> bool:
        """Put what is to be kept of these files in their place; False where they are not live any more."""
        records = self._records(run, plan.tombstones_to)
        gone = latest.superseded(records.column(self._key), records.column(OFFSET))
        gone |= records.column(_IS_TOMBSTONE).to_numpy() & (
            records.column(OFFSET).to_numpy() < plan.tombstones_to
        )
        dropped = int(gone.sum())
        if not dropped:
            return True
        kept = _kept(records, ~gone)
        if self._dry_run:
            self._count.add(
                run, sum(file.file.data_bytes for file in run), dropped=dropped, outputs=bool(kept)
            )
            return True
        outputs = (upload(self._target, self._merger, run, plan.state.log_end_offset, kept),) if kept else ()
        come_to = min(plan.tombstones_to, run[-1].last_offset + 1)
        verdict = replace_inputs(self._target, RewriteProposal(run, outputs, come_to))
        if verdict is None:
            self._count.overtaken += 1
            return False
        if isinstance(verdict, Appended):
            size = sum(output.file.data_bytes for output in outputs)
            self._count.add(run, size, dropped=dropped, outputs=len(outputs))
        return True

    def _records(self, run: Run, tombstones_to: int) -> pa.Table:
        """Key, offset, time of each record, and whether it is a tombstone, as far as that matters here."""
        looked_at = self._topic.tombstone_columns if run[0].base_offset < tombstones_to else ()
        columns = [self._key, OFFSET, TIMESTAMP]
        read = self._merger.read(run, [*columns, *looked_at])
        return pa.concat_tables(
            table.select(columns).append_column(_IS_TOMBSTONE, pa.array(_is_tombstone(table, looked_at)))
            for _, tables in read
            for table in tables
        )


_IS_TOMBSTONE = "_is_tombstone"


def _is_tombstone(table: pa.Table, columns: Sequence[str]) -> NDArray[np.bool_]:
    null: NDArray[np.bool_] = np.full(table.num_rows, bool(columns))
    for name in columns:
        null &= pc.is_null(table.column(name)).to_numpy()
    return null


def _kept(records: pa.Table, mask: NDArray[np.bool_]) -> Kept | None:
    """What of the records stays; None for nothing."""
    if not mask.any():
        return None
    offsets: NDArray[np.int64] = records.column(OFFSET).to_numpy()[mask]
    stamps: Any = pc.min_max(records.column(TIMESTAMP).cast(pa.int64()).filter(pa.array(mask)))
    return Kept(mask, int(offsets[0]), int(offsets[-1]), stamps["min"].as_py(), stamps["max"].as_py())
