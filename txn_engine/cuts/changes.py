"""What became visible between two cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from txn_engine.errors import InvalidRequestError, UnknownTopicOrPartitionError
from txn_engine.log.as_of import AsOfCut
from txn_engine.log.cut_format import Cut, CutTopic
from txn_engine.log.logs import Logs
from txn_engine.log.reading import choose_files, rows_of
from txn_engine.log.topics import Topic
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
    changed = [
        (topic, number, start, log.offset)
        for topic in later.topics
        for number, log in enumerate(topic.partitions)
        if log.offset > (start := _start(earlier, topic, number))
    ]
    names = list(dict.fromkeys(topic.topic for topic, *_ in changed))
    present = dict(zip(names, logs.workers.map(partial(_present, logs, later), names), strict=True))

    def count(change: tuple[CutTopic, int, int, int]) -> PartitionChange:
        topic, number, start, end = change
        found = present[topic.topic]
        records = -1 if found is None else _records(logs, later, found, number, start, end)
        return PartitionChange(topic.topic, number, start, end, records)

    return list(logs.workers.map(count, changed))


def _start(earlier: Cut, topic: CutTopic, number: int) -> int:
    log = earlier.log(topic.topic, topic.incarnation, number)
    return 0 if log is None else log.offset


def _present(logs: Logs, cut: Cut, name: str) -> Topic | None:
    """The topic as it is now; None where that is not the one that was cut."""
    try:
        return topic_of_cut(cut, logs.topics.look_up(name))
    except (UnknownTopicOrPartitionError, InvalidRequestError):
        return None


def _records(logs: Logs, cut: Cut, topic: Topic, number: int, start: int, end: int) -> int:
    state = AsOfCut(logs.tools, cut).state(topic.name, topic.incarnation, number)
    parts = choose_files(state, number, start, end, "read_committed")
    rows = (rows_of(logs.tools.objects, topic, part) for part in parts)
    return sum(end_row - first_row for first_row, end_row in rows)


def _positions(logs: Logs, earlier: Cut, later: Cut) -> list[PositionChange]:
    moved = [
        number
        for number, (before, after) in enumerate(zip_longest(earlier.groups, later.groups))
        if before is None
        or after is None
        or (before.snapshot, before.committed) != (after.snapshot, after.committed)
    ]
    before, after = (_positions_in(logs, cut, moved) for cut in (earlier, later))
    return [
        PositionChange(key.group_id, key.topic, key.partition, before.get(key, -1), after.get(key, -1))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _positions_in(logs: Logs, cut: Cut, partitions: Sequence[int]) -> dict[OffsetKey, int]:
    """Those that these partitions of `__consumer_offsets` kept, as far as the cut has them."""
    there = [number for number in partitions if number < len(cut.groups)]
    each = logs.workers.map(AsOfCut(logs.tools, cut).group_offsets, there)
    committed = (stored.commit for offsets in each for stored in offsets.committed.values())
    return {commit.key: commit.offset for commit in committed if commit.offset != TOMBSTONE_OFFSET}
