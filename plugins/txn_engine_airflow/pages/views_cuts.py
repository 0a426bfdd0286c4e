"""The Cuts pages: which there are, how far what came since has gone on, and what is inside one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from txn_engine import Cut
from txn_engine.log.cut_format import CutTopic
from txn_engine.unreadable import WHOLE_TOPIC
from txn_engine_airflow.pages.cuts_seen import Inside, SeenCut
from txn_engine_airflow.pages.moment import Moment, TopicState
from txn_engine_airflow.pages.troubles import for_viewers
from txn_engine_airflow.pages.views_overview import DamageLine

NAMED_MAX = 5
PARTITIONS_MAX = 1_000
UNKNOWN = -1

Contents = Mapping[tuple[str, int], Inside]


@dataclass(frozen=True, slots=True)
class CutLine:
    """A number in one line; -1 for what is not known. `state`: `cut`, `expired` (clean-up deletes it next), `damaged`
    or `open` (somebody is making it, or died at it). `topics`: the first of `topic_count`. `behind`: offsets from it to
    where read_committed readers may go now, in the topics that are still there. `expires_ms` -1: never.
    """

    number: int
    state: str
    created_ms: int
    expires_ms: int
    every_topic: bool
    topics: tuple[str, ...]
    topic_count: int
    partitions: int
    behind: int
    error: str


@dataclass(frozen=True, slots=True)
class CutList:
    """The newest cuts; `older`: at most so many more."""

    now_ms: int
    cuts: tuple[CutLine, ...]
    older: int
    trouble: str


@dataclass(frozen=True, slots=True)
class CutTopicLine:
    """A topic of a cut. `added`: partitions that it got since, which lie outside. `records`: inside, of the partitions
    that were read so far, `is_exact` False: at most these. `behind`: offsets since; -1: not known. `is_deleted`: it is
    not there any more, or is another one of that name.
    """

    topic: str
    partitions: int
    added: int
    records: int
    is_exact: bool
    behind: int
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class CutPartition:
    """A partition of a cut: records below `offset` are inside. `last_stable` and `behind`: now. -1: not known."""

    topic: str
    partition: int
    log_start: int
    offset: int
    last_stable: int
    records: int
    is_exact: bool
    behind: int
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class CutDetail:
    """One cut. `is_read` False: what is inside is being counted, ask again. `left_out`: partitions beyond those that
    are listed. `damage`: the partitions of which nobody can tell what is inside, and why.
    """

    now_ms: int
    line: CutLine
    is_read: bool
    records: int
    is_exact: bool
    topics: tuple[CutTopicLine, ...]
    partitions: tuple[CutPartition, ...]
    left_out: int
    damage: tuple[DamageLine, ...]


def list_cuts(moment: Moment) -> CutList:
    """The newest cuts at that moment."""
    stable = {
        (state.topic.name, state.topic.incarnation): _readable_to(state) for state in moment.topics.values()
    }
    lines = [_line(each, moment.now_ms, stable) for each in moment.cuts.newest]
    there = tuple(line for line in lines if line is not None)
    return CutList(moment.now_ms, there, moment.cuts.older, moment.cuts.trouble)


def describe_cut(moment: Moment, cut: Cut, contents: Contents) -> CutDetail:
    """One cut; `contents`: what is inside, as far as it was read."""
    topics: list[CutTopicLine] = []
    partitions: list[CutPartition] = []
    for topic in cut.topics:
        parts = _partitions(moment, topic, contents)
        topics.append(_topic(moment, topic, parts))
        partitions += parts
    behind = _sum(topic.behind for topic in topics if not topic.is_deleted)
    return CutDetail(
        now_ms=moment.now_ms,
        line=_cut_line(cut, moment.now_ms, behind),
        is_read=len(contents) >= len(partitions),
        records=sum(topic.records for topic in topics),
        is_exact=all(topic.is_exact for topic in topics),
        topics=tuple(topics),
        partitions=tuple(partitions[:PARTITIONS_MAX]),
        left_out=max(len(partitions) - PARTITIONS_MAX, 0),
        damage=tuple(
            DamageLine(*at, found.code, found.error) for at, found in sorted(contents.items()) if found.error
        ),
    )


def _line(seen: SeenCut, now_ms: int, stable: Mapping[tuple[str, int], int]) -> CutLine | None:
    """None for a number under which nobody made a cut."""
    number = seen.number
    if number.cut is not None:
        there = [life for life in seen.ends if life in stable]
        behind = (max(stable[life] - seen.ends[life], 0) if stable[life] >= 0 else UNKNOWN for life in there)
        return _cut_line(number.cut, now_ms, _sum(behind))
    if number.error is None and not number.is_open:
        return None
    state, error = ("open", "") if number.error is None else ("damaged", for_viewers(number.error))
    claimed_ms = number.claimed_ms or UNKNOWN
    return CutLine(number.number, state, claimed_ms, UNKNOWN, False, (), 0, UNKNOWN, UNKNOWN, error)


def _cut_line(cut: Cut, now_ms: int, behind: int) -> CutLine:
    is_over = 0 <= cut.expires_ms <= now_ms
    return CutLine(
        number=cut.number,
        state="expired" if is_over else "cut",
        created_ms=cut.created_ms,
        expires_ms=cut.expires_ms,
        every_topic=cut.every_topic,
        topics=tuple(each.topic for each in cut.topics[:NAMED_MAX]),
        topic_count=len(cut.topics),
        partitions=sum(len(each.partitions) for each in cut.topics),
        behind=behind,
        error="",
    )


def _readable_to(state: TopicState) -> int:
    """The sum of the last stable offsets; -1 where one of them is not known."""
    if state.damaged:
        return UNKNOWN
    return sum(part.last_stable_offset for part in state.partitions.values())


def _partitions(moment: Moment, topic: CutTopic, contents: Contents) -> list[CutPartition]:
    is_deleted = _is_deleted(moment, topic)
    found = []
    for number, log in enumerate(topic.partitions):
        state = None if is_deleted else moment.partition(topic.topic, topic.incarnation, number)
        inside = contents.get((topic.topic, number))
        found.append(
            CutPartition(
                topic=topic.topic,
                partition=number,
                log_start=UNKNOWN if inside is None else inside.log_start,
                offset=log.offset,
                last_stable=UNKNOWN if state is None else state.last_stable_offset,
                records=UNKNOWN if inside is None else inside.records,
                is_exact=inside is None or inside.is_exact,
                behind=UNKNOWN if state is None else max(state.last_stable_offset - log.offset, 0),
                is_deleted=is_deleted,
            )
        )
    return found


def _topic(moment: Moment, topic: CutTopic, parts: Sequence[CutPartition]) -> CutTopicLine:
    now = moment.topics.get(topic.topic)
    is_deleted = _is_deleted(moment, topic)
    added: list[int] = []
    if now is not None and not is_deleted:
        numbers = range(len(parts), now.topic.partitions)
        states = [now.partitions.get(number) for number in numbers]
        added = [UNKNOWN if state is None else state.last_stable_offset for state in states]
    return CutTopicLine(
        topic=topic.topic,
        partitions=len(parts),
        added=len(added),
        records=sum(max(part.records, 0) for part in parts),
        is_exact=all(part.is_exact for part in parts),
        behind=UNKNOWN if is_deleted else _sum([*(part.behind for part in parts), *added]),
        is_deleted=is_deleted,
    )


def _is_deleted(moment: Moment, topic: CutTopic) -> bool:
    """Whether that incarnation is gone; of a topic that cannot be read nobody knows."""
    now = moment.topics.get(topic.topic)
    if now is None:
        return not moment.is_damaged(topic.topic, WHOLE_TOPIC)
    return now.topic.incarnation != topic.incarnation


def _sum(numbers: Iterable[int]) -> int:
    """The sum; -1 where one of them is not known."""
    found = list(numbers)
    return UNKNOWN if UNKNOWN in found else sum(found)
