"""The Dead letters pages: how many there are, by topic and reason; and a few of them, for those who may see records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from txn_engine.loading import DeadLetterCount, LetterCounts
from txn_engine.log.reading import choose_files
from txn_engine.names import printable
from txn_engine.protocol.partition import PartitionState
from txn_engine_airflow.pages.dag_runs import DagRunPlace
from txn_engine_airflow.pages.moment import Moment, TopicState
from txn_engine_airflow.pages.records import VALUE_CHARS_MAX, Sample
from txn_engine_airflow.pages.troubles import for_viewers
from txn_engine_airflow.pages.views_overview import DamageLine, damage_lines

TOPICS_MAX = 200
REASONS_MAX = 200
REASON_CHARS_MAX = 300
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class LetterTopicLine:
    """A dead-letter topic in one line; -1: not known. `letters`, `waiting`, `replayed`: all that are there, of those
    those that were not replayed, and the others. `counted`: the newest, of which it is known when they failed:
    `first_failed_ms` to `last_failed_ms`.
    """

    topic: str
    letters: int
    waiting: int
    replayed: int
    counted: int
    first_failed_ms: int
    last_failed_ms: int
    last_append_ms: int
    damaged: int


@dataclass(frozen=True, slots=True)
class ReasonLine:
    """Letters of one dead-letter topic, for one topic, of one source topic ("": files), reason and error class.

    `is_topic`, `is_source`: whether a topic of that name is there. `partition`, `offset`: where the newest stands.
    """

    dead_letter_topic: str
    topic: str
    is_topic: bool
    source_topic: str
    is_source: bool
    reason: str
    error_class: str
    waiting: int
    total: int
    came_back: int
    tries_max: int
    first_failed_ms: int
    last_failed_ms: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LetterList:
    """All dead-letter topics, the one that waits most first, and the reasons of the newest letters, the newest first.

    `is_read` False: they are being counted, ask again. `uncounted`: topics whose letters are not looked at, for there
    are too many.
    """

    now_ms: int
    is_read: bool
    topics: tuple[LetterTopicLine, ...]
    topics_found: int
    waiting: int
    reasons: tuple[ReasonLine, ...]
    reasons_found: int
    uncounted: int
    damage: tuple[DamageLine, ...]


@dataclass(frozen=True, slots=True)
class LetterPartition:
    """A partition of a dead-letter topic; its letters lie below `end`."""

    partition: int
    start: int
    end: int
    last_append_ms: int


@dataclass(frozen=True, slots=True)
class LetterTopic:
    """One dead-letter topic."""

    now_ms: int
    is_read: bool
    line: LetterTopicLine
    partitions: tuple[LetterPartition, ...]
    reasons: tuple[ReasonLine, ...]
    reasons_found: int
    damage: tuple[DamageLine, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter, every text of it fit to be shown; None: it has none. `is_cut`: some of them were longer.

    `dag_run`: Airflow's, where that is there and may be seen.
    """

    partition: int
    offset: str
    topic: str
    is_topic: bool
    source_topic: str | None
    is_source: bool
    source_partition: str | None
    source_offset: str | None
    source_file: str | None
    source_line: str | None
    reason: str
    error_class: str
    tries: str
    failed_at: str
    run_id: str | None
    dag_run: DagRunPlace | None
    columns: str | None
    raw: str | None
    reading: str | None
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Letters:
    """Letters, the newest first, of one partition; `older`: the offset that the next ones begin at, -1: there are none.

    `cut_at`: so many characters of a value are shown.
    """

    topic: str
    partition: int
    letters: tuple[Letter, ...]
    older: int
    cut_at: int


def list_letters(moment: Moment, counted: Mapping[str, LetterCounts], topics_max: int) -> LetterList:
    """All of them. `counted`: what is known of the newest letters, of at most so many topics."""
    states = moment.dead_letter_topics()
    lines = [_line(moment, state, counted.get(state.topic.name)) for state in states]
    lines.sort(key=lambda line: (line.damaged == 0, -line.waiting, -line.letters, line.topic))
    reasons = [_reason(moment, name, each) for name, counts in counted.items() for each in counts.reasons]
    reasons.sort(key=lambda line: (-line.last_failed_ms, line.topic, line.reason))
    names = [state.topic.name for state in states]
    return LetterList(
        now_ms=moment.now_ms,
        is_read=all(_is_read(counted, name) for name in names[:topics_max]),
        topics=tuple(lines[:TOPICS_MAX]),
        topics_found=len(lines),
        waiting=sum(max(line.waiting, 0) for line in lines),
        reasons=tuple(reasons[:REASONS_MAX]),
        reasons_found=len(reasons),
        uncounted=max(len(names) - topics_max, 0),
        damage=tuple(line for name in names for line in _damage(moment, name, counted)),
    )


def describe_letters(moment: Moment, name: str, counted: Mapping[str, LetterCounts]) -> LetterTopic | None:
    """One topic; None where there is no such dead-letter topic. Raises what is wrong with one that cannot be read."""
    state = find(moment, name)
    if state is None:
        moment.raise_damage(name)
        return None
    counts = counted.get(name)
    reasons = counts.reasons if counts else ()
    return LetterTopic(
        now_ms=moment.now_ms,
        is_read=_is_read(counted, name),
        line=_line(moment, state, counts),
        partitions=tuple(
            LetterPartition(number, part.log_start_offset, part.last_stable_offset, part.last_append_time)
            for number, part in state.partitions.items()
        ),
        reasons=tuple(_reason(moment, name, each) for each in reasons[:REASONS_MAX]),
        reasons_found=len(reasons),
        damage=_damage(moment, name, counted),
    )


def find(moment: Moment, name: str) -> TopicState | None:
    """The dead-letter topic of that name."""
    return next((state for state in moment.dead_letter_topics() if state.topic.name == name), None)


def _line(moment: Moment, state: TopicState, counts: LetterCounts | None) -> LetterTopicLine:
    letters, waiting = (counts.letters, counts.waiting) if counts else moment.letters(state)
    reasons = counts.reasons if counts else ()
    return LetterTopicLine(
        topic=state.topic.name,
        letters=letters,
        waiting=waiting,
        replayed=letters - waiting if waiting >= 0 else UNKNOWN,
        counted=counts.counted if counts else 0,
        first_failed_ms=min((each.first_failed_ms for each in reasons), default=UNKNOWN),
        last_failed_ms=max((each.last_failed_ms for each in reasons), default=UNKNOWN),
        last_append_ms=max((part.last_append_time for part in state.partitions.values()), default=0),
        damaged=len(state.damaged),
    )


def _is_read(counted: Mapping[str, LetterCounts], name: str) -> bool:
    return name in counted and counted[name].is_read


def _damage(moment: Moment, name: str, counted: Mapping[str, LetterCounts]) -> tuple[DamageLine, ...]:
    """The partitions that cannot be read, and the files of letters among them."""
    files = counted[name].unreadable if name in counted else ()
    lines = (DamageLine(at.topic, at.partition, at.error.code, for_viewers(at.error)) for at in files)
    return (*damage_lines(moment, name), *lines)


def _reason(moment: Moment, name: str, each: DeadLetterCount) -> ReasonLine:
    source = each.source_topic or ""
    return ReasonLine(
        dead_letter_topic=name,
        topic=_short(each.topic),
        is_topic=each.topic in moment.topics,
        source_topic=_short(source),
        is_source=source in moment.topics,
        reason=_short(each.reason),
        error_class=_short(each.error_class),
        waiting=each.waiting,
        total=each.total,
        came_back=each.came_back,
        tries_max=each.tries_max,
        first_failed_ms=each.first_failed_ms,
        last_failed_ms=each.last_failed_ms,
        partition=each.partition,
        offset=each.offset,
    )


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= REASON_CHARS_MAX else f"{shown[:REASON_CHARS_MAX]}…"


# --- the letters themselves ---------------------------------------------------------------------------------


def first_offset(state: PartitionState, partition: int, end: int, count: int) -> int:
    """From where on so many letters lie below `end`; a few less where a file has gaps."""
    first, left = end, count
    parts = choose_files(state, partition, state.log_start_offset, end, "read_committed")
    for part in reversed(parts):
        if left <= 0:
            break
        taken = min(left, part.end_offset - part.start_offset)
        first, left = part.end_offset - taken, left - taken
    return first


RunsFound = Callable[[Collection[str]], Mapping[str, DagRunPlace]]


def letters_of(
    moment: Moment, topic: str, partition: int, found: Sample, *, start: int, runs_found: RunsFound
) -> Letters:
    """What was read of a partition that begins at `start`. runs_found: Airflow's runs, by the letters' run ids."""
    rows = [dict(zip(found.columns, record, strict=True)) for record in reversed(found.records)]
    runs = runs_found({row["run_id"] for row in rows if row["run_id"] is not None})
    return Letters(
        topic=topic,
        partition=partition,
        letters=tuple(_letter(moment, partition, row, runs) for row in rows),
        older=found.first - 1 if found.first > start else UNKNOWN,
        cut_at=VALUE_CHARS_MAX,
    )


def _letter(
    moment: Moment, partition: int, row: Mapping[str, Any], runs: Mapping[str, DagRunPlace]
) -> Letter:
    texts = {name: None if value is None else printable(str(value)) for name, value in row.items()}
    return Letter(
        partition=partition,
        offset=texts["_offset"] or "",
        topic=texts["topic"] or "",
        is_topic=row["topic"] in moment.topics,
        source_topic=texts["source_topic"],
        is_source=row["source_topic"] in moment.topics,
        source_partition=texts["source_partition"],
        source_offset=texts["source_offset"],
        source_file=texts["source_file"],
        source_line=texts["source_line"],
        reason=texts["reason"] or "",
        error_class=texts["error_class"] or "",
        tries=texts["tries"] or "",
        failed_at=texts["failed_at"] or "",
        run_id=texts["run_id"],
        dag_run=runs.get(row["run_id"]),
        columns=texts["columns"],
        raw=texts["raw"],
        reading=texts["reading"],
        is_cut=_is_any_cut(row.values()),
    )


def _is_any_cut(values: Iterable[Any]) -> bool:
    return any(isinstance(value, str) and len(value) > VALUE_CHARS_MAX for value in values)
