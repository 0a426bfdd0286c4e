"""Group offsets: what a commit names, when it is refused, and what a marker does to the pending ones.

Kafka's `OffsetMetadataManager` and KIP-447, and beyond them the rule on start positions (PROTOCOL.md, section 5): a
commit names the row of the group's log that its reader fetched, so that of two overlapping runs one is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from immutables import Map

from txn_engine.errors import OffsetsMovedError, OffsetsPendingError
from txn_engine.protocol.log_time import time_of

FETCHED_NOTHING = -2
NO_ROW = -1
TOMBSTONE_OFFSET = -1


@dataclass(frozen=True, slots=True, order=True)
class OffsetKey:
    """What an offset is kept for."""

    group_id: str
    topic: str
    incarnation: int
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A row of `__consumer_offsets`; the producer of a transactional one stands in its descriptor."""

    key: OffsetKey
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    member_id: str = ""
    fetched_row: int = FETCHED_NOTHING
    fetched_end: int = -1


_SKIPPED = re.compile(r"skipped-offsets=([1-9][0-9]{0,17})")


def skipped_note(offsets: int) -> str:
    """The metadata of a commit by a group that never read so many offsets: they were deleted before it came to them."""
    return f"skipped-offsets={offsets}" if offsets > 0 else ""


def skipped_offsets(metadata: str) -> int:
    """How many offsets a commit's metadata says that its group never read."""
    found = _SKIPPED.fullmatch(metadata)
    return 0 if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A commit with the offset its row stands at, and the log's time there."""

    offset: int
    commit: OffsetCommit
    append_time: int


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """All offsets that one partition of `__consumer_offsets` keeps: committed ones, and pending ones by producer id.

    A tombstone stays as a row: a later commit that says "there was none" must see that there has been one.
    """

    committed: Map[OffsetKey, StoredCommit] = Map()
    pending: Map[int, Map[OffsetKey, StoredCommit]] = Map()

    def live(self) -> list[StoredCommit]:
        """The committed offsets that are not tombstones, in the order of their keys."""
        stored = (stored for _, stored in sorted(self.committed.items()))
        return [each for each in stored if each.commit.offset != TOMBSTONE_OFFSET]

    def pending_by_other(self, key: OffsetKey, producer_id: int) -> int | None:
        """The producer, other than this one, whose commit for the key is pending."""
        for other, commits in self.pending.items():
            if other != producer_id and key in commits:
                return other
        return None

    def find_duplicate(self, commit: OffsetCommit, producer_id: int) -> StoredCommit | None:
        """The row that this very commit, sent before, has left.

        A producer's row is known by its producer, a member's by its member id; the time of sending does not count.
        """
        stored = (
            self.pending.get(producer_id, Map()).get(commit.key)
            if producer_id >= 0
            else self.committed.get(commit.key)
        )
        if stored is None or not (producer_id >= 0 or commit.member_id):
            return None
        return stored if replace(stored.commit, commit_ms=commit.commit_ms) == commit else None

    def check(self, commit: OffsetCommit, producer_id: int) -> None:
        """Raise where the commit is not legal now: first what is pending, then what has moved (in this order)."""
        key = commit.key
        other = self.pending_by_other(key, producer_id)
        if other is not None:
            raise OffsetsPendingError(
                f"a commit of group {key.group_id!r} for {key.topic}-{key.partition} by producer id {other} is pending",
                actor=_committer(commit, producer_id),
            )
        if commit.fetched_row == FETCHED_NOTHING:
            return
        latest = self.committed.get(key)
        if commit.fetched_row == NO_ROW:
            # A row below the fetched end may have been pending at the fetch: only a tombstone there is still "none".
            unmoved = latest is None or (
                latest.commit.offset == TOMBSTONE_OFFSET and latest.offset < commit.fetched_end
            )
        else:
            unmoved = latest is not None and latest.offset == commit.fetched_row
        if not unmoved and not self._is_own_pending(commit, producer_id):
            raise _moved(commit, producer_id, latest)

    def _is_own_pending(self, commit: OffsetCommit, producer_id: int) -> bool:
        mine = self.pending.get(producer_id, Map()).get(commit.key) if producer_id >= 0 else None
        return mine is not None and mine.offset == commit.fetched_row

    def with_commit(self, stored: StoredCommit, producer_id: int, *, is_transactional: bool) -> GroupOffsets:
        """After this row. Never refuses: replay takes the log as it is."""
        key = stored.commit.key
        if not is_transactional:
            return replace(self, committed=self.committed.set(key, stored))
        mine = self.pending.get(producer_id, Map()).set(key, stored)
        return replace(self, pending=self.pending.set(producer_id, mine))

    def with_marker(self, producer_id: int, *, committed: bool) -> GroupOffsets:
        """After a marker: the producer's pending offsets become the committed ones, or are dropped."""
        mine = self.pending.get(producer_id)
        if mine is None:
            return self
        applied = self.committed.update(mine) if committed else self.committed
        return GroupOffsets(committed=applied, pending=self.pending.delete(producer_id))


def tombstone(stored: StoredCommit, now_ms: int) -> OffsetCommit:
    """The row that forgets this one: it names it, and is refused where another stands there now."""
    return OffsetCommit(stored.commit.key, TOMBSTONE_OFFSET, commit_ms=now_ms, fetched_row=stored.offset)


def has_expired(stored: StoredCommit, now_ms: int, retention_ms: int) -> bool:
    """Whether an offset was committed at least so long ago, by the log's time."""
    return now_ms - time_of(stored.append_time, stored.commit.commit_ms, now_ms) >= retention_ms


def _committer(commit: OffsetCommit, producer_id: int) -> str:
    return f"producer {producer_id}" if producer_id >= 0 else f"member {commit.member_id or '(unnamed)'}"


def _moved(commit: OffsetCommit, producer_id: int, latest: StoredCommit | None) -> OffsetsMovedError:
    key = commit.key
    now = f"offset {latest.commit.offset} by row {latest.offset}" if latest else "without a committed offset"
    named = f"row {commit.fetched_row}" if commit.fetched_row >= 0 else f"no row before {commit.fetched_end}"
    return OffsetsMovedError(
        f"group {key.group_id!r} at {key.topic}-{key.partition} is now at {now}",
        actor=_committer(commit, producer_id),
        expected=f"{named}, which this reader had fetched",
    )
