"""Looks at an engine that sensors and watchers repeat: what is new in a topic, what a group has left, what is final.

Each costs one look at the end of each log that it is about, and reads no record. All are questions of a moment, and
none writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txn_engine import Engine


@dataclass(frozen=True, slots=True)
class Position:
    """How far somebody is in one incarnation of a topic: the next offset by partition; one that is not named is at
    its log's start.

    `incarnation` -1: of whichever there is, where nobody has looked at the topic yet.
    """

    incarnation: int = -1
    offsets: Mapping[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """As a trigger keeps it."""
        return {"incarnation": self.incarnation, "offsets": by_name(self.offsets or {})}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Position:
        """From what `to_json` gave."""
        return cls(value["incarnation"], {int(name): at for name, at in value["offsets"].items()})


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed records of a topic between two positions: `start` inclusive, `end`, the LSO at the look, exclusive.

    `records` counts what a read_committed reader gets from there; markers and aborted transactions take offsets too.
    """

    topic: str
    start: Position
    end: Position
    records: int


def by_name(offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets as JSON has them, in the order of the partitions."""
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def committed_since(
    engine: Engine, topic: str, since: Position, *, until: Position | None = None
) -> Committed:
    """What is committed behind a position, up to the LSO, or to `until` where that is earlier.

    Where the topic was deleted and made again since, all of the new one counts. Raises `UnknownTopicOrPartitionError`.
    """
    from txn_engine import TopicPartition

    info = engine.admin.describe_topic(topic)
    found = {at.partition: offsets for at, offsets in engine.admin.list_offsets(topic).items()}
    known = _of_incarnation(since, info.incarnation)
    bound = _of_incarnation(until, info.incarnation) if until is not None else None
    start = {number: max(known.get(number, 0), at.log_start_offset) for number, at in found.items()}
    stable = {number: at.last_stable_offset for number, at in found.items()}
    if bound is not None:  # partitions that were added since, and a topic made again, are no part of it
        stable = {number: min(at, bound.get(number, 0)) for number, at in stable.items()}
    end = {number: max(start[number], at) for number, at in stable.items()}
    grown = [number for number in start if end[number] > start[number]]
    records = 0
    if grown:
        files = engine.scan(
            topic,
            partitions=grown,
            start={TopicPartition(topic, number): start[number] for number in grown},
            end={TopicPartition(topic, number): end[number] for number in grown},
        ).files()
        records = sum(file.end_row - file.first_row for file in files)
    return Committed(topic, Position(info.incarnation, start), Position(info.incarnation, end), records)


def stable_end(engine: Engine, topic: str) -> Position:
    """The last stable offsets as of now."""
    incarnation = engine.admin.describe_topic(topic).incarnation
    offsets = engine.admin.list_offsets(topic)
    return Position(incarnation, {at.partition: found.last_stable_offset for at, found in offsets.items()})


def group_position(engine: Engine, topic: str, group_id: str) -> Position:
    """What the group has committed, pending commits left out; nothing for partitions that it never read."""
    from txn_engine import TopicPartition

    info = engine.admin.describe_topic(topic)
    partitions = [TopicPartition(topic, number) for number in range(info.partitions)]
    # read_uncommitted asks for no stable offsets: a commit that is pending is not waited for
    with engine.consumer(group_id=group_id, isolation_level="read_uncommitted") as consumer:
        committed = consumer.committed(partitions)
    return Position(info.incarnation, {at.partition: offset.offset for at, offset in committed.items()})


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction that a transactional id has open or undecided, by the identity under which it was begun."""

    producer_id: int
    producer_epoch: int
    state: str


def open_transaction(engine: Engine, transactional_id: str) -> OpenTransaction | None:
    """What the id has open now, or decided and not complete; None where it is at rest, expired or unknown."""
    stored = engine.coordinator.current(transactional_id)
    if stored is None:
        return None
    row = stored.row
    if row.state == "Ongoing":
        return OpenTransaction(row.producer_id, row.producer_epoch, row.state.value)
    if row.state.is_prepared:
        return OpenTransaction(row.producer_id, row.last_producer_epoch, row.state.value)
    return None


def transaction_state(engine: Engine, transactional_id: str) -> str | None:
    """The state of the id's latest row, "Dead" for an expired one; None for an id that was never used."""
    stored = engine.coordinator.current(transactional_id)
    return None if stored is None else stored.row.state.value


def run_is_visible(engine: Engine, transactional_id: str, run_id: str) -> bool:
    """Whether the transaction of that run was committed and readers see it; False while nobody knows of it."""
    stored = engine.coordinator.current(transactional_id)
    if stored is None or not stored.row.has_committed(run_id):
        return False
    return not (stored.row.state.is_prepared and stored.row.run_id == run_id)


def _of_incarnation(position: Position, incarnation: int) -> Mapping[int, int]:
    return position.offsets or {} if position.incarnation in (-1, incarnation) else {}
