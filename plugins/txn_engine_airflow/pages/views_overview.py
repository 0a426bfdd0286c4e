"""The Overview page: topics, how far readers may go and who holds them back, open transactions, groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import StoredRow, TransactionState
from txn_engine.types import HangingTransaction
from txn_engine_airflow.pages.moment import Moment, TopicState
from txn_engine_airflow.pages.views_groups import GroupLine
from txn_engine_airflow.pages.views_transactions import TransactionLine, transaction_line

OPEN_MAX = 20
HELD_MAX = 50
GROUPS_MAX = 50
TOPICS_MAX = 200

AGES_S = ((10, "under 10 s"), (60, "10 to 60 s"), (600, "1 to 10 min"), (3_600, "10 to 60 min"))
OLDEST = "over 60 min"


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers on top. `behind_max`: offsets from the LSO to the end of the partition that trails most. `lag_max`:
    the largest that is known; -1: there are groups, and none is.
    """

    topics: int
    partitions: int
    records: int
    bytes: int
    open: int
    overdue: int
    pending: int
    hanging: int
    partitions_behind: int
    behind_max: int
    groups: int
    lag_max: int


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic, its partitions together. Offsets are sums: of log starts, last stable offsets, log ends. `records`:
    those that read_committed readers get; `bytes`: the files of all that is committed.
    """

    topic: str
    partitions: int
    log_start: int
    last_stable: int
    log_end: int
    behind: int
    open_transactions: int
    records: int
    bytes: int
    last_append_ms: int


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition whose readers wait, and whom for. `transactional_id` "": no coordinator row has the producer."""

    topic: str
    partition: int
    last_stable: int
    log_end: int
    behind: int
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


def overview(moment: Moment, groups: Sequence[GroupLine]) -> Overview:
    """The page at that moment. `groups`: all, the one that lags most first."""
    lines = [transaction_line(stored, moment.now_ms) for stored in moment.transactions.values()]
    open_lines = sorted(
        (line for line in lines if line.state == TransactionState.ONGOING.value),
        key=lambda line: line.began_ms,
    )
    topics = sorted(topic_lines(moment), key=lambda line: (-line.behind, line.topic))
    owners = owners_of(moment.transactions.values())
    held = sorted(_held(moment, owners), key=lambda at: (-at.behind, at.topic, at.partition))
    return Overview(
        url=moment.url,
        now_ms=moment.now_ms,
        totals=Totals(
            topics=len(topics),
            partitions=sum(topic.partitions for topic in topics),
            records=sum(topic.records for topic in topics),
            bytes=sum(topic.bytes for topic in topics),
            open=len(open_lines),
            overdue=sum(line.is_overdue for line in open_lines),
            pending=sum(line.state.startswith("Prepare") for line in lines),
            hanging=len(moment.hanging),
            partitions_behind=len(held),
            behind_max=held[0].behind if held else 0,
            groups=len(groups),
            lag_max=max((group.lag for group in groups), default=0),
        ),
        states=dict(sorted(Counter(line.state for line in lines).items())),
        ages=_ages(open_lines, moment.now_ms),
        topics=tuple(topics[:TOPICS_MAX]),
        held=tuple(held[:HELD_MAX]),
        open=tuple(open_lines[:OPEN_MAX]),
        hanging=moment.hanging,
        groups=tuple(groups[:GROUPS_MAX]),
    )


def topic_lines(moment: Moment) -> tuple[TopicLine, ...]:
    """All topics, by name."""
    return tuple(_topic_line(state) for _, state in sorted(moment.topics.items()))


def owners_of(rows: Iterable[StoredRow]) -> dict[int, StoredRow]:
    """The row of each producer id that has something open or undecided."""
    return {
        stored.row.producer_id: stored
        for stored in rows
        if stored.row.state is TransactionState.ONGOING or stored.row.state.is_prepared
    }


def holder(state: PartitionState, owners: Mapping[int, StoredRow]) -> tuple[str, int, int]:
    """Who holds the LSO: transactional id ("" for none known), producer id, and since when, by the log's time."""
    producer_id = min(state.open_transactions.items(), key=lambda item: item[1])[0]
    owner = owners.get(producer_id)
    if owner is None:
        return "", producer_id, state.producers[producer_id].append_time
    return owner.row.transactional_id, producer_id, owner.start_append_time


def records_and_bytes(state: PartitionState) -> tuple[int, int]:
    """The records that read_committed readers get, and the bytes of all committed files.

    A trim leaves the records below the log's start in a file that reaches above it: where that is a rewritten one, how
    many they are stands in the file alone, and all of it is counted.
    """
    records = size = 0
    start, stable = state.log_start_offset, state.last_stable_offset
    for file in state.live.values():
        size += file.file.data_bytes
        if file.base_offset < stable:
            records += file.record_count
            if file.base_offset < start and not file.has_gaps:
                records -= start - file.base_offset
    return records, size


def _topic_line(state: TopicState) -> TopicLine:
    parts = state.partitions
    sizes = [records_and_bytes(part) for part in parts]
    stable, end = sum(part.last_stable_offset for part in parts), sum(part.high_watermark for part in parts)
    return TopicLine(
        topic=state.topic.name,
        partitions=len(parts),
        log_start=sum(part.log_start_offset for part in parts),
        last_stable=stable,
        log_end=end,
        behind=end - stable,
        open_transactions=len({producer_id for part in parts for producer_id in part.open_transactions}),
        records=sum(records for records, _ in sizes),
        bytes=sum(size for _, size in sizes),
        last_append_ms=max((part.last_append_time for part in parts), default=0),
    )


def _held(moment: Moment, owners: Mapping[int, StoredRow]) -> list[HeldPartition]:
    found = []
    for name, topic in moment.topics.items():
        for number, state in enumerate(topic.partitions):
            if not state.open_transactions:
                continue
            transactional_id, producer_id, since_ms = holder(state, owners)
            stable, end = state.last_stable_offset, state.high_watermark
            found.append(
                HeldPartition(
                    name, number, stable, end, end - stable, transactional_id, producer_id, since_ms
                )
            )
    return found


def _ages(lines: Iterable[TransactionLine], now_ms: int) -> tuple[AgeGroup, ...]:
    counts = Counter(_age_label((now_ms - line.began_ms) // 1_000) for line in lines)
    return tuple(AgeGroup(label, counts[label]) for label in (*(text for _, text in AGES_S), OLDEST))


def _age_label(age_s: int) -> str:
    return next((text for limit, text in AGES_S if age_s < limit), OLDEST)
