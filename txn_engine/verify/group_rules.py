"""Group offsets: one commit at a time, from the row that its reader fetched (protocol, section 5; invariant 8)."""

from __future__ import annotations

from typing import Final

from txn_engine.verify.descriptors import Batch, OffsetCommit
from txn_engine.verify.findings import Place
from txn_engine.verify.hashing import home_partition
from txn_engine.verify.partition_state import PartitionState, StoredCommit
from txn_engine.verify.scene import Scene

_NOT_FETCHED: Final = -2
_NO_ROW: Final = -1
_TOMBSTONE: Final = -1


class GroupRule:
    """Each commit stands in its group's partition, waits for pending ones, and names the row it came from.

    Keeps the highest offset committed for each partition, in `highest`: it cannot be beyond the partition's log end.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self.highest: dict[Place, tuple[Batch, Scene]] = {}

    def judge(self, state: PartitionState, batch: Batch, scene: Scene) -> None:
        """Note where a commit could not have been legal in this state."""
        commit = batch.row
        if not isinstance(commit, OffsetCommit):
            return
        home = home_partition(commit.group_id, self._partitions)
        if home != scene.place.partition:
            scene.note("wrong-partition", batch, _named(commit), f"__consumer_offsets-{home}")
        if batch.is_transactional != (batch.producer_id >= 0):
            seen = f"{_named(commit)}: transactional {batch.is_transactional} by producer {batch.producer_id}"
            scene.note("descriptor-malformed", batch, seen, "a producer, or neither of them")
        if commit.offset < _TOMBSTONE:
            scene.note(
                "descriptor-malformed", batch, f"{_named(commit)}: offset {commit.offset}", "0 or more, or -1"
            )
        self._keep_highest(commit, batch, scene)
        if scene.sound:
            _judge_pending(state, commit, batch, scene)
            _judge_fetched(state, commit, batch, scene)

    def _keep_highest(self, commit: OffsetCommit, batch: Batch, scene: Scene) -> None:
        place = Place(commit.topic, commit.incarnation, commit.partition)
        before = self.highest.get(place)
        held = before[0].row if before is not None else None
        if not isinstance(held, OffsetCommit) or commit.offset > held.offset:
            self.highest[place] = (batch, scene)


def _judge_pending(state: PartitionState, commit: OffsetCommit, batch: Batch, scene: Scene) -> None:
    for producer_id, commits in state.pending.items():
        pending = commits.get(commit.key)
        if pending is not None and producer_id != batch.producer_id:
            seen = f"{_named(commit)}: a commit while that of producer {producer_id} (row {pending.offset}) is pending"
            scene.note("offset-over-pending", batch, seen, "that producer's marker first")


def _judge_fetched(state: PartitionState, commit: OffsetCommit, batch: Batch, scene: Scene) -> None:
    """The row that the reader fetched is still the group's latest; a row of its own pending one counts as well."""
    if commit.fetched_row == _NOT_FETCHED:
        return
    own = state.pending.get(batch.producer_id, {}).get(commit.key) if batch.producer_id >= 0 else None
    if own is not None and own.offset == commit.fetched_row:
        return
    latest = state.committed.get(commit.key)
    if commit.fetched_row == _NO_ROW:
        # A tombstone before the fetch is "none"; any other row was committed after it, even if it stood before it.
        moved = latest is not None and (
            latest.commit.offset != _TOMBSTONE or latest.offset >= commit.fetched_end
        )
        expected = f"no committed row, as it was when the log ended at {commit.fetched_end}"
    else:
        moved = latest is None or latest.offset != commit.fetched_row
        expected = f"row {commit.fetched_row}, which its reader fetched, to be the latest"
    if moved:
        scene.note("offset-moved", batch, f"{_named(commit)}: a commit on top of {_at(latest)}", expected)


def _named(commit: OffsetCommit) -> str:
    return f"group {commit.group_id!r} for {commit.topic}-{commit.partition}"


def _at(latest: StoredCommit | None) -> str:
    return "no row" if latest is None else f"row {latest.offset} (offset {latest.commit.offset})"
