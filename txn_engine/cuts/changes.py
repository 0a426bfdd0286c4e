"""What became visible between two cuts."""

from __future__ import annotations

from dataclasses import dataclass

from txn_engine.errors import InvalidRequestError, UnknownTopicOrPartitionError
from txn_engine.log.as_of import AsOfCut
from txn_engine.log.cut_format import Cut, CutTopic
from txn_engine.log.logs import Logs
from txn_engine.log.reading import choose_files, rows_of
from txn_engine.protocol.offset_commits import TOMBSTONE_OFFSET, OffsetKey
from txn_engine.scan import topic_of_cut


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One partition between two cuts: from which offset to which, and how many records are read there as of the later.

    `start_offset` is 0 for a partition that the earlier one does not have, `records` -1 where the topic was deleted.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class PositionChange:
    """A group in one partition: its position as of the earlier cut and as of the later, -1 where it had none."""

    group_id: str
    topic: str
    partition: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class CutChanges:
    """What became visible between two cuts: partitions and positions that are as they were are left out.

    `gone`: topics that are in the earlier one alone, or in the later one as another incarnation.
    """

    earlier: Cut
    later: Cut
    partitions: tuple[PartitionChange, ...]
    positions: tuple[PositionChange, ...]
    gone: tuple[str, ...]


def changes_between(logs: Logs, earlier: Cut, later: Cut) -> CutChanges:
    """What the later cut has that the earlier one has not."""
    if later.number < earlier.number:
        raise InvalidRequestError(
            f"cut {later.number} after cut {earlier.number}", expected="the earlier one first"
        )
    return CutChanges(
        earlier,
        later,
        tuple(_partitions(logs, earlier, later)),
        tuple(_positions(logs, earlier, later)),
        tuple(each.topic for each in earlier.topics if later.find(each.topic, each.incarnation) is None),
    )


def _partitions(logs: Logs, earlier: Cut, later: Cut) -> list[PartitionChange]:
    changes = []
    for topic in later.topics:
        found = earlier.find(topic.topic, topic.incarnation)
        starts = [] if found is None else [log.offset for log in found.partitions]
        for number, log in enumerate(topic.partitions):
            start = starts[number] if number < len(starts) else 0
            if log.offset > start:
                records = _records(logs, later, topic, number, start)
                changes.append(PartitionChange(topic.topic, number, start, log.offset, records))
    return changes


def _records(logs: Logs, cut: Cut, cut_topic: CutTopic, number: int, start: int) -> int:
    try:
        topic = topic_of_cut(cut, logs.topics.look_up(cut_topic.topic))
    except (UnknownTopicOrPartitionError, InvalidRequestError):
        return -1
    state = AsOfCut(logs.tools, cut).state(topic.name, topic.incarnation, number)
    end = cut_topic.partitions[number].offset
    parts = choose_files(state, number, start, end, "read_committed")
    rows = (rows_of(logs.tools.objects, topic, part) for part in parts)
    return sum(end_row - first_row for first_row, end_row in rows)


def _positions(logs: Logs, earlier: Cut, later: Cut) -> list[PositionChange]:
    before, after = _all_positions(logs, earlier), _all_positions(logs, later)
    return [
        PositionChange(key.group_id, key.topic, key.partition, before.get(key, -1), after.get(key, -1))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _all_positions(logs: Logs, cut: Cut) -> dict[OffsetKey, int]:
    as_of = AsOfCut(logs.tools, cut)
    each = logs.workers.map(as_of.group_offsets, range(len(cut.groups)))
    committed = (stored.commit for offsets in each for stored in offsets.committed.values())
    return {commit.key: commit.offset for commit in committed if commit.offset != TOMBSTONE_OFFSET}
