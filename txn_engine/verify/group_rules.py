"""Group offsets: one commit at a time, from the row that its reader fetched (PROTOCOL.md, section 5; invariant 8)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from txn_engine.verify.audited_partition import AuditedPartition, StoredCommit
from txn_engine.verify.descriptors import Batch, OffsetCommit
from txn_engine.verify.findings import FindingLog, Place, Witness
from txn_engine.verify.hashing import home_partition
from txn_engine.verify.judged_entry import JudgedEntry

_NOT_FETCHED: Final = -2
_NO_ROW: Final = -1
_TOMBSTONE: Final = -1


class GroupRule:
    """Each commit stands in its group's partition, waits for pending ones, and names the row it came from."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def judge(self, state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Note where a commit could not have been legal in this state."""
        commit = batch.row
        if not isinstance(commit, OffsetCommit):
            return
        home = home_partition(commit.group_id, self._partitions)
        if home != entry.place.partition:
            entry.note("wrong-partition", batch, _named(commit), f"__consumer_offsets-{home}")
        if batch.is_transactional != (batch.producer_id >= 0):
            seen = f"{_named(commit)}: transactional {batch.is_transactional} by producer {batch.producer_id}"
            entry.note("descriptor-malformed", batch, seen, "a producer, or neither of them")
        if commit.offset < _TOMBSTONE:
            entry.note(
                "descriptor-malformed", batch, f"{_named(commit)}: offset {commit.offset}", "0 or more, or -1"
            )
        if entry.sound:
            _judge_pending(state, commit, batch, entry)
            _judge_fetched(state, commit, batch, entry)


class GroupCommit(NamedTuple):
    """A row of the group log: what a group committed for a partition, in which transaction (-1: in none)."""

    row: int
    place: Place
    offset: int
    producer_id: int
    producer_epoch: int
    metadata: str


class GroupCommits:
    """Keeps the rows of some groups, in the order of the log, for whoever compares the engine's answers with them."""

    def __init__(self, group_ids: Collection[str]) -> None:
        self._group_ids = frozenset(group_ids)
        self._places: dict[Place, Place] = {}  # one object for each
        self.found: dict[str, list[GroupCommit]] = {}

    def judge(self, _: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Keep the row."""
        commit = batch.row
        if not isinstance(commit, OffsetCommit) or commit.group_id not in self._group_ids or not entry.sound:
            return
        place = Place(commit.topic, commit.incarnation, commit.partition)
        self.found.setdefault(commit.group_id, []).append(
            GroupCommit(
                batch.offsets[0],
                self._places.setdefault(place, place),
                commit.offset,
                batch.producer_id,
                batch.producer_epoch,
                commit.metadata,
            )
        )


class HighestOffsets:
    """For each partition the highest offset that a group has committed, as it stands now, and in which partition."""

    def __init__(self) -> None:
        self._held: dict[Place, tuple[Place, StoredCommit]] = {}

    def keep(self, home: Place, state: AuditedPartition) -> None:
        """Look at the groups of one partition of `__consumer_offsets`."""
        for stored in state.committed.values():
            commit = stored.commit
            place = Place(commit.topic, commit.incarnation, commit.partition)
            held = self._held.get(place)
            if held is None or commit.offset > held[1].commit.offset:
                self._held[place] = (home, stored)

    def witnesses(self) -> Iterator[tuple[Place, Witness]]:
        """How far each log went when a group committed."""
        for place, (_, stored) in self._held.items():
            yield place, Witness(stored.commit.offset, f"the offset of group {stored.commit.group_id!r}")

    def judge(self, log_ends: Mapping[Place, int | None], findings: FindingLog) -> None:
        """Warn of those beyond their log's end (None or absent: not known)."""
        for place, (home, stored) in sorted(self._held.items()):
            end, commit = log_ends.get(place), stored.commit
            if end is None or commit.offset <= end:
                continue
            findings.add(
                "offset-beyond-end",
                f"{home.prefix}/log/",
                f"group {commit.group_id!r}: offset {commit.offset} for {place}",
                expected=f"at most {end}, where its log ends",
                place=home,
                offsets=(stored.offset, stored.offset),
                since_ms=stored.append_time,
            )


def _judge_pending(state: AuditedPartition, commit: OffsetCommit, batch: Batch, entry: JudgedEntry) -> None:
    for producer_id, commits in state.pending.items():
        pending = commits.get(commit.key)
        if pending is not None and producer_id != batch.producer_id:
            seen = f"{_named(commit)}: a commit while that of producer {producer_id} (row {pending.offset}) is pending"
            entry.note("offset-over-pending", batch, seen, "that producer's marker first")


def _judge_fetched(state: AuditedPartition, commit: OffsetCommit, batch: Batch, entry: JudgedEntry) -> None:
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
        entry.note("offset-moved", batch, f"{_named(commit)}: a commit on top of {_at(latest)}", expected)


def _named(commit: OffsetCommit) -> str:
    return f"group {commit.group_id!r} for {commit.topic}-{commit.partition}"


def _at(latest: StoredCommit | None) -> str:
    return "no row" if latest is None else f"row {latest.offset} (offset {latest.commit.offset})"
