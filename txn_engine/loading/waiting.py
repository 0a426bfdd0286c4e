"""Which dead letters there are, and which of them wait to be replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txn_engine.loading.dead_letters import is_dead_letter_schema
from txn_engine.types import TopicPartition

if TYPE_CHECKING:
    from txn_engine.engine import Engine


def group_of(dead_letter_topic: str) -> str:
    """The group whose position says how far a dead-letter topic was replayed."""
    return f"dead-letters/{dead_letter_topic}"


def dead_letter_topics(engine: Engine) -> list[str]:
    """The topics that take dead letters."""
    return [found.name for found in engine.logs.topics.survey().topics if is_dead_letter_schema(found.schema)]


def waiting_from(engine: Engine, dead_letter_topic: str) -> dict[TopicPartition, int]:
    """From which offset on letters wait, in each partition."""
    topic = engine.logs.topics.look_up(dead_letter_topic)
    places = [TopicPartition(dead_letter_topic, number) for number in range(topic.partitions)]
    with engine.consumer(group_id=group_of(dead_letter_topic)) as consumer:
        known = consumer.committed(places)
        begin = consumer.beginning_offsets(places)
    return {at: max(begin[at], known[at].offset if at in known else 0) for at in places}


def letters(
    engine: Engine, dead_letter_topic: str, start: Mapping[TopicPartition, int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The letters, from `start` or from the beginning, with their partitions and offsets."""
    yield from engine.scan(dead_letter_topic, start=start).to_batches()


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """How many letters of a topic have one reason; `last_failed_ms`: when the newest of them failed."""

    topic: str
    reason: str
    waiting: int
    total: int
    tries_max: int
    last_failed_ms: int


def counts(engine: Engine, dead_letter_topic: str) -> list[DeadLetterCount]:
    """By topic and reason, the newest first."""
    start = waiting_from(engine, dead_letter_topic)
    found: dict[tuple[str, str], list[int]] = {}
    for batch in letters(engine, dead_letter_topic):
        wanted = ["topic", "reason", "tries", "failed_at", "_partition", "_offset"]
        columns = batch.select(wanted).to_pydict()
        failed: list[Any] = batch.column("failed_at").cast(pa.int64()).to_pylist()
        for index, (topic, reason) in enumerate(zip(columns["topic"], columns["reason"], strict=True)):
            at = TopicPartition(dead_letter_topic, columns["_partition"][index])
            counted = found.setdefault((topic, reason), [0, 0, 0, -1])
            counted[0] += columns["_offset"][index] >= start.get(at, 0)
            counted[1] += 1
            counted[2] = max(counted[2], columns["tries"][index])
            counted[3] = max(counted[3], failed[index])
    rows = [DeadLetterCount(*key, *counted) for key, counted in found.items()]
    return sorted(rows, key=lambda row: (-row.last_failed_ms, row.topic, row.reason))
