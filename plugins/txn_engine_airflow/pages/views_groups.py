"""The Groups pages: what each consumer group committed, what is pending, and its lag against the LSO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.measures import group_lag, total
from txn_engine.protocol.offset_commits import TOMBSTONE_OFFSET, OffsetCommit, OffsetKey, skipped_offsets
from txn_engine.protocol.partition import PartitionState
from txn_engine_airflow.pages.moment import Moment
from txn_engine_airflow.pages.tails import TailRows

HISTORY_MAX = 100


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group in one partition; -1 for what is not there. `position`: where it stands once what is pending commits.
    `lag`, `held_back`, `gone`: offsets to the last stable one; from there to the log's end, which wait behind an open
    transaction; and those of the lag that were deleted before the group read them. `beyond`: how far it is beyond the
    log's end; its lag is not known then. `skipped`: how many offsets were deleted before it came to them.

    `is_deleted`: the topic that the offsets are of is not there any more; one of that name may have been made since.
    `is_damaged`: its partition cannot be read, so that its end and the lag are not known.
    """

    topic: str
    is_deleted: bool
    is_damaged: bool
    partition: int
    committed: int
    pending: int
    pending_producer_id: int
    position: int
    last_stable: int
    log_end: int
    lag: int
    held_back: int
    gone: int
    beyond: int
    skipped: int
    committed_ms: int
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in one line; `lag`, `held_back`, `gone`, `beyond` and `skipped` are sums over its partitions, of those
    where they are known; -1: of none. `unknown`: the partitions whose lag is not known, although their topic is there.
    """

    group_id: str
    topics: tuple[str, ...]
    partitions: int
    pending: int
    lag: int
    held_back: int
    gone: int
    beyond: int
    skipped: int
    unknown: int
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
    """A group with its partitions and latest commits. `is_history_read` False: they are being read, ask again.

    `history_damaged`: entries of the group's log, one line each, that cannot be read, and are missing there.
    """

    now_ms: int
    line: GroupLine
    partitions: tuple[GroupPartition, ...]
    is_history_read: bool
    history: tuple[CommitLine, ...]
    history_damaged: tuple[str, ...]


def group_lines(moment: Moment) -> tuple[GroupLine, ...]:
    """All groups, the one that is furthest from what there is to read first."""
    found: dict[str, list[GroupPartition]] = {}
    for state in moment.group_logs.values():
        for group_id, part in _parts(moment, state):
            found.setdefault(group_id, []).append(part)
    lines = [_line(group_id, parts) for group_id, parts in found.items()]
    return tuple(sorted(lines, key=lambda line: (-(line.lag + line.held_back), line.group_id)))


def describe_group(
    moment: Moment, group_id: str, group_partition: int, rows: TailRows | None
) -> GroupDetail | None:
    """One group; None where it has no offsets. `rows`: the last ones of its log, None where they are not read yet.

    Raises what is wrong with the group's log where that cannot be read.
    """
    moment.raise_damage(CONSUMER_OFFSETS_TOPIC, group_partition)
    state = moment.group_logs[group_partition]
    parts = [part for name, part in _parts(moment, state) if name == group_id]
    if not parts:
        return None
    parts.sort(key=lambda part: (part.topic, part.is_deleted, part.partition))
    history = list(_history(moment, rows.rows if rows else (), group_id))
    return GroupDetail(
        now_ms=moment.now_ms,
        line=_line(group_id, parts),
        partitions=tuple(parts),
        is_history_read=rows is not None,
        history=tuple(reversed(history[-HISTORY_MAX:])),
        history_damaged=rows.damaged if rows else (),
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
        measured = group_lag(committed, moment.partition(key.topic, key.incarnation, key.partition))
        yield (
            key.group_id,
            GroupPartition(
                topic=key.topic,
                is_deleted=_is_deleted(moment, key),
                is_damaged=moment.is_damaged(key.topic, key.partition),
                partition=key.partition,
                committed=committed,
                pending=waiting.commit.offset if waiting else -1,
                pending_producer_id=producer_id,
                position=position,
                last_stable=measured.last_stable_offset,
                log_end=measured.high_watermark,
                lag=measured.lag_offsets,
                held_back=measured.held_back_offsets,
                gone=measured.gone_offsets,
                beyond=measured.beyond_offsets,
                skipped=skipped_offsets(stored.commit.metadata) if stored else 0,
                committed_ms=stored.append_time if stored else -1,
                metadata=stored.commit.metadata if stored else "",
            ),
        )


def _is_live(commit: OffsetCommit) -> bool:
    return commit.offset != TOMBSTONE_OFFSET


def _is_deleted(moment: Moment, key: OffsetKey) -> bool:
    """Whether the topic that the offset is of is gone; of one that cannot be read nobody knows."""
    is_there = moment.partition(key.topic, key.incarnation, key.partition) is not None
    return not is_there and not moment.is_damaged(key.topic, key.partition)


def _line(group_id: str, parts: Sequence[GroupPartition]) -> GroupLine:
    return GroupLine(
        group_id=group_id,
        topics=tuple(sorted({part.topic for part in parts})),
        partitions=len(parts),
        pending=sum(part.pending >= 0 for part in parts),
        lag=total(part.lag for part in parts),
        held_back=total(part.held_back for part in parts),
        gone=total(part.gone for part in parts),
        beyond=total(part.beyond for part in parts),
        skipped=total(part.skipped for part in parts),
        unknown=sum(part.lag < 0 and not part.is_deleted for part in parts),
        committed_ms=max(part.committed_ms for part in parts),
    )


def _history(moment: Moment, rows: Iterable[BatchDescriptor], group_id: str) -> Iterable[CommitLine]:
    for batch in rows:
        if isinstance(batch.row, OffsetCommit) and batch.row.key.group_id == group_id:
            key = batch.row.key
            yield CommitLine(
                batch.append_time,
                key.topic,
                _is_deleted(moment, key),
                key.partition,
                batch.row.offset,
                batch.producer_id,
            )
