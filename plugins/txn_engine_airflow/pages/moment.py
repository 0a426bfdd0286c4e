"""One look at a store: every log's state, as of about the same time. What all pages are computed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from txn_engine import Engine
from txn_engine.errors import UnknownTopicOrPartitionError
from txn_engine.loading import by_log, is_dead_letter_schema, replayed_to
from txn_engine.log.logs import Looked
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.topics import Survey, Topic
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionState
from txn_engine.types import HangingTransaction
from txn_engine.unreadable import DAMAGE, WHOLE_TOPIC, Unreadable, raise_if_refused_everywhere
from txn_engine_airflow.pages.cuts_seen import SeenCuts


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic, the state of each of its partitions that can be read, and what is wrong with each that cannot."""

    topic: Topic
    partitions: Mapping[int, PartitionState]
    damaged: Mapping[int, Unreadable]


@dataclass(frozen=True, slots=True)
class Moment:
    """The store as it was at `now_ms`. `transactions`: the latest row of every id that has not expired.

    unreadable: the topics and partitions that cannot be read; nothing of them is in the rest. missing: partitions that
    can be read and lack data files, as they were seen a little earlier.
    foreign: folders below `topics/` that are no topic's. cuts: the newest, as they were seen a little earlier.
    """

    url: str
    now_ms: int
    topics: Mapping[str, TopicState]
    transactions: Mapping[str, StoredRow]
    group_logs: Mapping[int, PartitionState]
    hanging: tuple[HangingTransaction, ...]
    unreadable: tuple[Unreadable, ...]
    foreign: tuple[str, ...]
    cuts: SeenCuts
    missing: tuple[Unreadable, ...] = ()

    def by_partition(self) -> dict[TransactionPartition, PartitionState]:
        """The states of all topics' partitions that can be read."""
        return {
            TransactionPartition(name, found.topic.incarnation, number): state
            for name, found in self.topics.items()
            for number, state in found.partitions.items()
        }

    def states(self) -> Iterator[PartitionState]:
        """Those of all topics' partitions and of the groups' logs."""
        yield from self.group_logs.values()
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def partition(self, topic: str, incarnation: int, partition: int) -> PartitionState | None:
        """A partition's state; None where that incarnation of the topic is not there (any more), or is damaged."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            return self.group_logs.get(partition)
        known = self.topics.get(topic)
        if known is None or known.topic.incarnation != incarnation:
            return None
        return known.partitions.get(partition)

    def dead_letter_topics(self) -> list[TopicState]:
        """The topics that take dead letters, by name."""
        return [
            state for _, state in sorted(self.topics.items()) if is_dead_letter_schema(state.topic.schema)
        ]

    def replayed_to(self, topic: Topic) -> dict[int, int] | None:
        """How far a dead-letter topic was replayed, by partition; None where a log that may know cannot be read."""
        found: dict[int, int] = {}
        for state in self.group_logs.values():
            found |= replayed_to(state, topic)
        is_whole = not any(each.topic == CONSUMER_OFFSETS_TOPIC for each in self.unreadable)
        return found if found or is_whole else None

    def letters(self, state: TopicState) -> tuple[int, int]:
        """How many letters a dead-letter topic has, and how many of them wait: at most, where compaction or erasure has
        left gaps; -1: not known.
        """
        return by_log(state.topic, state.partitions, self.replayed_to(state.topic))

    def is_damaged(self, topic: str, partition: int) -> bool:
        """Whether a partition cannot be read, or its topic's own objects cannot."""
        return any(
            each.topic == topic and each.partition in (partition, WHOLE_TOPIC) for each in self.unreadable
        )

    def raise_damage(self, topic: str, partition: int = WHOLE_TOPIC) -> None:
        """Raise what is wrong with a partition, or with its topic's own objects; nothing where it can be read."""
        for each in self.unreadable:
            if each.topic == topic and each.partition in (partition, WHOLE_TOPIC):
                raise each.error


def look(engine: Engine, survey: Survey, cuts: SeenCuts) -> Moment:
    """Look at the end of every log: one small read each, all at once. Topics that are gone since are left out.

    What is damaged is named, and hides nothing else. Raises where the store does not answer, or refuses all of it.
    """
    topics, unreadable = _topics(engine, survey)
    logs = engine.logs
    # Groups before topics, topics before the coordinator: an offset lies below its topic's end, and what a partition
    # shows open has its row.
    groups = logs.look_at_each(logs.internal(CONSUMER_OFFSETS_TOPIC))
    users = logs.look_at_each(
        TransactionPartition(topic.name, topic.incarnation, number)
        for topic in topics
        for number in range(topic.partitions)
    )
    coordinator = logs.look_at_each(logs.internal(TRANSACTION_STATE_TOPIC))
    unreadable += [*users.unreadable, *coordinator.unreadable, *groups.unreadable]
    raise_if_refused_everywhere(
        unreadable, found_any=bool(users.states or coordinator.states or groups.states)
    )
    now_ms = engine.clock()
    return Moment(
        url=engine.url,
        now_ms=now_ms,
        topics=_states(topics, users),
        transactions={
            name: stored
            for state in coordinator.states.values()
            for name, stored in state.transactions.items()
            if stored.row.state is not TransactionState.DEAD
        },
        group_logs={at.partition: state for at, state in groups.states.items()},
        hanging=_hanging(engine, [*groups.states.values(), *users.states.values()], now_ms),
        unreadable=tuple(unreadable),
        foreign=survey.foreign,
        cuts=cuts,
    )


def _topics(engine: Engine, survey: Survey) -> tuple[list[Topic], list[Unreadable]]:
    """The topics as they are now: they may have grown since the survey."""
    topics: list[Topic] = []
    unreadable = list(survey.unreadable)
    for known in survey.topics:
        try:
            topics.append(engine.logs.topics.get(known.name))
        except UnknownTopicOrPartitionError:
            continue  # deleted since
        except DAMAGE as error:
            unreadable.append(Unreadable(known.name, WHOLE_TOPIC, error))
    return topics, unreadable


def _states(topics: Sequence[Topic], looked: Looked) -> dict[str, TopicState]:
    states: dict[str, dict[int, PartitionState]] = {topic.name: {} for topic in topics}
    damaged: dict[str, dict[int, Unreadable]] = {topic.name: {} for topic in topics}
    for at, state in looked.states.items():
        states[at.topic][at.partition] = state
    for each in looked.unreadable:
        damaged[each.topic][each.partition] = each
    return {topic.name: TopicState(topic, states[topic.name], damaged[topic.name]) for topic in topics}


def _hanging(engine: Engine, states: list[PartitionState], now_ms: int) -> tuple[HangingTransaction, ...]:
    """Asked of the engine only where something has been open for longer than any transaction may be."""
    limit_ms = engine.limits.max_transaction_timeout_ms
    is_suspect = any(
        now_ms - state.producers[producer_id].append_time > limit_ms
        for state in states
        for producer_id in state.open_transactions
    )
    if not is_suspect:
        return ()
    return tuple(engine.admin.find_hanging_transactions(max_transaction_timeout_ms=limit_ms))
