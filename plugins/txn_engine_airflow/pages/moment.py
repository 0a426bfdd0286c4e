"""One look at a store: every log's state, as of about the same time. What all pages are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txn_engine import Engine
from txn_engine.errors import UnknownTopicOrPartitionError
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import StoredRow, TransactionState
from txn_engine.types import HangingTransaction


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic and the state of each of its partitions, by number."""

    topic: Topic
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """The store as it was at `now_ms`. `transactions`: the latest row of every id that has not expired."""

    url: str
    now_ms: int
    topics: Mapping[str, TopicState]
    transactions: Mapping[str, StoredRow]
    group_logs: tuple[PartitionState, ...]
    hanging: tuple[HangingTransaction, ...]

    def partition(self, topic: str, incarnation: int, partition: int) -> PartitionState | None:
        """A partition's state; None where that incarnation of the topic is not there (any more)."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            return self.group_logs[partition] if 0 <= partition < len(self.group_logs) else None
        known = self.topics.get(topic)
        if known is None or known.topic.incarnation != incarnation or partition >= len(known.partitions):
            return None
        return known.partitions[partition]


def look(engine: Engine, names: list[str]) -> Moment:
    """Look at the end of every log: one small read each, all at once. `names`: the topics, those gone are left out."""
    topics: list[Topic] = []
    for name in names:
        try:
            topics.append(engine.logs.topics.get(name))
        except UnknownTopicOrPartitionError:
            continue  # deleted since it was listed
    user_logs = [
        engine.logs.get(topic.name, topic.incarnation, number)
        for topic in topics
        for number in range(topic.partitions)
    ]
    coordinator, groups = (
        engine.logs.internal(TRANSACTION_STATE_TOPIC),
        engine.logs.internal(CONSUMER_OFFSETS_TOPIC),
    )
    # Groups before topics, topics before the coordinator: an offset lies below its topic's end, and what a partition
    # shows open has its row.
    group_logs = engine.logs.refresh_all(groups)
    states = iter(engine.logs.refresh_all(user_logs))
    rows = engine.logs.refresh_all(coordinator)
    by_topic = {
        topic.name: TopicState(topic, tuple(next(states) for _ in range(topic.partitions)))
        for topic in topics
    }
    now_ms = engine.clock()
    return Moment(
        url=engine.url,
        now_ms=now_ms,
        topics=by_topic,
        transactions={
            name: stored
            for state in rows
            for name, stored in state.transactions.items()
            if stored.row.state is not TransactionState.DEAD
        },
        group_logs=tuple(group_logs),
        hanging=_hanging(
            engine, [*group_logs, *(s for t in by_topic.values() for s in t.partitions)], now_ms
        ),
    )


def _hanging(engine: Engine, states: list[PartitionState], now_ms: int) -> tuple[HangingTransaction, ...]:
    """Asked of the engine only where something has been open for longer than any transaction may be."""
    limit_ms = engine.config.limits.max_transaction_timeout_ms
    is_suspect = any(
        now_ms - state.producers[producer_id].append_time > limit_ms
        for state in states
        for producer_id in state.open_transactions
    )
    if not is_suspect:
        return ()
    return tuple(engine.admin.find_hanging_transactions(max_transaction_timeout_ms=limit_ms))
