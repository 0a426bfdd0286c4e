"""The Groups pages: what each consumer group committed, what is pending, and its lag against the LSO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.offset_commits import TOMBSTONE_OFFSET, OffsetCommit, OffsetKey
from txn_engine.protocol.partition import PartitionState
from txn_engine_airflow.pages.moment import Moment

HISTORY_MAX = 100


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group in one partition; -1 for what is not there. `position`: where it stands once what is pending commits.

    `is_deleted`: the topic that the offsets are of is not there any more; one of that name may have been made since.
    """

    topic: str
    is_deleted: bool
    partition: int
    committed: int
    pending: int
    pending_producer_id: int
    position: int
    last_stable: int
    log_end: int
    lag: int
    committed_ms: int
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in one line; `lag` is the sum over its partitions against their last stable offsets, of those where it is
    known; -1: of none.
    """

    group_id: str
    topics: tuple[str, ...]
    partitions: int
    pending: int
    lag: int
    committed_ms: int


@dataclass(frozen=True, slots=True)
class CommitLine:
    """One commit of a group, as its row in the log says. `producer_id` -1: a plain commit, outside a transaction."""

    time_ms: int
    topic: str
    is_deleted: bool
    partition: int
    offset: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with its partitions and latest commits. `is_history_read` False: they are being read, ask again."""

    now_ms: int
    line: GroupLine
    partitions: tuple[GroupPartition, ...]
    is_history_read: bool
    history: tuple[CommitLine, ...]


def group_lines(moment: Moment) -> tuple[GroupLine, ...]:
    """All groups, the one that lags most first."""
    found: dict[str, list[GroupPartition]] = {}
    for state in moment.group_logs:
        for group_id, part in _parts(moment, state):
            found.setdefault(group_id, []).append(part)
    lines = [_line(group_id, parts) for group_id, parts in found.items()]
    return tuple(sorted(lines, key=lambda line: (-line.lag, line.group_id)))


def describe_group(
    moment: Moment, group_id: str, group_partition: int, rows: Sequence[BatchDescriptor] | None
) -> GroupDetail | None:
    """One group; None where it has no offsets. `rows`: the last ones of its log, None where they are not read yet."""
    state = moment.group_logs[group_partition]
    parts = [part for name, part in _parts(moment, state) if name == group_id]
    if not parts:
        return None
    parts.sort(key=lambda part: (part.topic, part.is_deleted, part.partition))
    history = list(_history(moment, rows or (), group_id))
    return GroupDetail(
        now_ms=moment.now_ms,
        line=_line(group_id, parts),
        partitions=tuple(parts),
        is_history_read=rows is not None,
        history=tuple(reversed(history[-HISTORY_MAX:])),
    )


def _parts(moment: Moment, state: PartitionState) -> Iterable[tuple[str, GroupPartition]]:
    offsets = state.group_offsets
    pending = {
        key: (producer_id, stored)
        for producer_id, commits in sorted(offsets.pending.items())
        for key, stored in commits.items()
    }
    live = {stored.commit.key: stored for stored in offsets.committed.values() if _is_live(stored.commit)}
    for key in {*live, *pending}:
        stored = live.get(key)
        producer_id, waiting = pending.get(key, (-1, None))
        committed = stored.commit.offset if stored else -1
        position = waiting.commit.offset if waiting else committed
        stable, end = _ends(moment, key)
        yield (
            key.group_id,
            GroupPartition(
                topic=key.topic,
                is_deleted=stable < 0,
                partition=key.partition,
                committed=committed,
                pending=waiting.commit.offset if waiting else -1,
                pending_producer_id=producer_id,
                position=position,
                last_stable=stable,
                log_end=end,
                lag=max(stable - committed, 0) if stable >= 0 and committed >= 0 else -1,
                committed_ms=stored.append_time if stored else -1,
                metadata=stored.commit.metadata if stored else "",
            ),
        )


def _is_live(commit: OffsetCommit) -> bool:
    return commit.offset != TOMBSTONE_OFFSET


def _ends(moment: Moment, key: OffsetKey) -> tuple[int, int]:
    state = moment.partition(key.topic, key.incarnation, key.partition)
    return (-1, -1) if state is None else (state.last_stable_offset, state.high_watermark)


def _line(group_id: str, parts: Sequence[GroupPartition]) -> GroupLine:
    lags = [part.lag for part in parts if part.lag >= 0]
    return GroupLine(
        group_id=group_id,
        topics=tuple(sorted({part.topic for part in parts})),
        partitions=len(parts),
        pending=sum(part.pending >= 0 for part in parts),
        lag=sum(lags) if lags else -1,
        committed_ms=max(part.committed_ms for part in parts),
    )


def _history(moment: Moment, rows: Iterable[BatchDescriptor], group_id: str) -> Iterable[CommitLine]:
    for batch in rows:
        if isinstance(batch.row, OffsetCommit) and batch.row.key.group_id == group_id:
            key = batch.row.key
            is_deleted = _ends(moment, key)[0] < 0
            yield CommitLine(
                batch.append_time, key.topic, is_deleted, key.partition, batch.row.offset, batch.producer_id
            )
