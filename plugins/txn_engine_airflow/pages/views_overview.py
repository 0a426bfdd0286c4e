"""The Overview page: topics, how far readers may go and who holds them back, open transactions, groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from txn_engine.names import printable
from txn_engine.protocol.measures import (
    Contents,
    PartitionMeasures,
    measure,
    owners_of,
    time_since_ms,
)
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionState
from txn_engine.types import HangingTransaction
from txn_engine.unreadable import WHOLE_TOPIC
from txn_engine_airflow.pages.moment import Moment, TopicState
from txn_engine_airflow.pages.troubles import for_viewers
from txn_engine_airflow.pages.views_groups import GroupLine
from txn_engine_airflow.pages.views_transactions import TransactionLine, transaction_line

OPEN_MAX = 20
HELD_MAX = 50
GROUPS_MAX = 50
TOPICS_MAX = 200
DAMAGE_MAX = 50
FOREIGN_MAX = 20

AGES_S = ((10, "under 10 s"), (60, "10 to 60 s"), (600, "1 to 10 min"), (3_600, "10 to 60 min"))
OLDEST, NO_AGE = "over 60 min", "not known"


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers on top. `records` and `bytes`: what read_committed readers get. `waiting_records`: committed, and
    held back by an open transaction. `behind_max`: offsets from the LSO to the end of the partition that trails most.
    `lag_max`: the largest that is known; -1: there are groups, and none is. `held_back_max`: the most offsets that any
    group waits for beyond its lag. `letters_waiting`: dead letters that were not replayed, of those that are known, in
    `letter_topics` topics that take some.
    """

    topics: int
    partitions: int
    records: int
    bytes: int
    waiting_records: int
    open: int
    overdue: int
    pending: int
    hanging: int
    partitions_behind: int
    behind_max: int
    groups: int
    lag_max: int
    held_back_max: int
    letter_topics: int
    letters_waiting: int


@dataclass(frozen=True, slots=True)
class DamageLine:
    """A place that cannot be read: a topic (`partition` -1), or a partition of one or of an internal topic.

    `error` names the object, and says what is wrong and what to do.
    """

    topic: str
    partition: int
    code: str
    error: str


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic, its partitions together. Offsets are sums: of log starts, last stable offsets, log ends. `unfinished`:
    transactions without a marker. `records`, `bytes` and `files`: what read_committed readers get; `waiting_records`:
    committed, and held back by an open transaction. `last_append_ms` 0: nothing was ever appended. `damaged`: how many
    partitions cannot be read, nothing of which is in the sums; -1: the topic itself cannot. `letters_waiting`: dead
    letters that were not replayed; -1: the topic takes none, or that is not known.
    """

    topic: str
    partitions: int
    log_start: int
    last_stable: int
    log_end: int
    behind: int
    unfinished: int
    records: int
    bytes: int
    files: int
    waiting_records: int
    last_append_ms: int
    damaged: int
    letters_waiting: int = -1


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition whose readers wait, and whom for. `transactional_id` "": no coordinator row has the transaction, and
    `since_ms` is when it last wrote here; else when it began.
    """

    topic: str
    partition: int
    last_stable: int
    log_end: int
    behind: int
    waiting_records: int
    transactional_id: str
    producer_id: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class AgeGroup:
    """How many open transactions are of about one age."""

    label: str
    transactions: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything the page shows of the store. Lists are cut at what a person reads, topics and groups behind the ones
    that trail most; the totals are over all.
    """

    url: str
    now_ms: int
    totals: Totals
    states: Mapping[str, int]
    ages: tuple[AgeGroup, ...]
    topics: tuple[TopicLine, ...]
    held: tuple[HeldPartition, ...]
    open: tuple[TransactionLine, ...]
    hanging: tuple[HangingTransaction, ...]
    groups: tuple[GroupLine, ...]
    damage: tuple[DamageLine, ...]
    damaged: int
    foreign: tuple[str, ...]


def overview(moment: Moment, groups: Sequence[GroupLine]) -> Overview:
    """The page at that moment. `groups`: all, the one that lags most first."""
    lines = [transaction_line(stored, moment.now_ms) for stored in moment.transactions.values()]
    open_lines = sorted(
        (line for line in lines if line.state == TransactionState.ONGOING.value),
        key=lambda line: line.began_ms,
    )
    measured = measure_all(moment)
    topics = sorted(topic_lines(moment), key=lambda line: (line.damaged == 0, -line.behind, line.topic))
    held = sorted(_held(measured.values()), key=lambda at: (-at.behind, at.topic, at.partition))
    return Overview(
        url=moment.url,
        now_ms=moment.now_ms,
        totals=Totals(
            topics=len(topics),
            partitions=sum(topic.partitions for topic in topics),
            records=sum(topic.records for topic in topics),
            bytes=sum(topic.bytes for topic in topics),
            waiting_records=sum(topic.waiting_records for topic in topics),
            open=len(open_lines),
            overdue=sum(line.is_overdue for line in open_lines),
            pending=sum(line.state.startswith("Prepare") for line in lines),
            hanging=len(moment.hanging),
            partitions_behind=len(held),
            behind_max=held[0].behind if held else 0,
            groups=len(groups),
            lag_max=max((group.lag for group in groups), default=0),
            held_back_max=max((group.held_back for group in groups), default=0),
            letter_topics=len(moment.dead_letter_topics()),
            letters_waiting=sum(max(topic.letters_waiting, 0) for topic in topics),
        ),
        states=dict(sorted(Counter(line.state for line in lines).items())),
        ages=_ages(open_lines, moment.now_ms),
        topics=tuple(topics[:TOPICS_MAX]),
        held=tuple(held[:HELD_MAX]),
        open=tuple(open_lines[:OPEN_MAX]),
        hanging=moment.hanging,
        groups=tuple(groups[:GROUPS_MAX]),
        damage=damage_lines(moment)[:DAMAGE_MAX],
        damaged=len(moment.unreadable) + len(moment.missing),
        foreign=tuple(map(printable, moment.foreign[:FOREIGN_MAX])),
    )


def damage_lines(moment: Moment, topic: str = "") -> tuple[DamageLine, ...]:
    """Every place that cannot be read or lacks data files, or those of one topic."""
    return tuple(
        DamageLine(each.topic, each.partition, each.error.code, for_viewers(each.error))
        for each in (*moment.unreadable, *moment.missing)
        if topic in ("", each.topic)
    )


def topic_lines(moment: Moment) -> tuple[TopicLine, ...]:
    """All topics, by name; one that cannot be read has no numbers."""
    waiting = {state.topic.name: moment.letters(state)[1] for state in moment.dead_letter_topics()}
    lines = [
        _topic_line(moment.topics[name], parts, waiting.get(name, -1))
        for name, parts in measure_all(moment).items()
    ]
    lines += [
        TopicLine(each.topic, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, damaged=WHOLE_TOPIC)
        for each in moment.unreadable
        if each.partition == WHOLE_TOPIC
    ]
    return tuple(sorted(lines, key=lambda line: line.topic))


def measure_all(moment: Moment) -> dict[str, list[PartitionMeasures]]:
    """Every partition of every topic, as the engine measures it."""
    owners = owners_of(moment.transactions.values())
    return {name: measure_topic(state, owners, moment.now_ms) for name, state in moment.topics.items()}


def measure_topic(state: TopicState, owners: Mapping[int, StoredRow], now_ms: int) -> list[PartitionMeasures]:
    """The partitions of a topic that can be read, by number."""
    name, incarnation = state.topic.name, state.topic.incarnation
    return [
        measure(TransactionPartition(name, incarnation, number), part, owners, now_ms)
        for number, part in state.partitions.items()
    ]


def _topic_line(state: TopicState, parts: Sequence[PartitionMeasures], letters_waiting: int) -> TopicLine:
    readable = sum((part.readable for part in parts), Contents())
    return TopicLine(
        topic=state.topic.name,
        partitions=state.topic.partitions,
        log_start=sum(part.log_start_offset for part in parts),
        last_stable=sum(part.last_stable_offset for part in parts),
        log_end=sum(part.high_watermark for part in parts),
        behind=sum(part.held_back_offsets for part in parts),
        unfinished=len({producer_id for part in parts for producer_id in part.unfinished}),
        records=readable.records,
        bytes=readable.bytes,
        files=readable.files,
        waiting_records=sum(part.waiting.records for part in parts),
        last_append_ms=max((part.last_append_ms for part in parts), default=0),
        damaged=len(state.damaged),
        letters_waiting=letters_waiting,
    )


def _held(topics: Iterable[Sequence[PartitionMeasures]]) -> list[HeldPartition]:
    return [
        HeldPartition(
            topic=at.topic,
            partition=at.partition,
            last_stable=at.last_stable_offset,
            log_end=at.high_watermark,
            behind=at.held_back_offsets,
            waiting_records=at.waiting.records,
            transactional_id=at.holder.transactional_id,
            producer_id=at.holder.producer_id,
            since_ms=at.holder.since_ms,
        )
        for parts in topics
        for at in parts
        if at.holder is not None
    ]


def _ages(lines: Iterable[TransactionLine], now_ms: int) -> tuple[AgeGroup, ...]:
    counts = Counter(_age_label(time_since_ms(line.began_ms, now_ms)) for line in lines)
    labels = [*(text for _, text in AGES_S), OLDEST, *([NO_AGE] if counts[NO_AGE] else [])]
    return tuple(AgeGroup(label, counts[label]) for label in labels)


def _age_label(age_ms: int) -> str:
    if age_ms < 0:
        return NO_AGE
    return next((text for limit, text in AGES_S if age_ms < limit * 1_000), OLDEST)
