"""Which dead letters there are, and which of them wait to be replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from txn_engine.loading.dead_letters import is_dead_letter_schema
from txn_engine.types import TopicPartition
from txn_engine.unreadable import Listing

if TYPE_CHECKING:
    from txn_engine.engine import Engine


def group_of(dead_letter_topic: str) -> str:
    """The group whose position says how far a dead-letter topic was replayed."""
    return f"dead-letters/{dead_letter_topic}"


def dead_letter_topics(engine: Engine) -> Listing[str]:
    """The topics that take dead letters. Of one that cannot be read nobody knows: it is in `unreadable`."""
    survey = engine.logs.topics.survey(engine.logs.workers)
    takers = (found.name for found in survey.topics if is_dead_letter_schema(found.schema))
    return Listing(takers, survey.unreadable)


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
