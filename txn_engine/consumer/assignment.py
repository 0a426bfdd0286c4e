"""Which partitions a consumer reads, of which incarnations of their topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txn_engine.consumer.cursors import Cursor
from txn_engine.errors import UnknownTopicOrPartitionError
from txn_engine.log.logs import Logs
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.types import TopicPartition


class Assignment:
    """A cursor for each partition that is read. A topic that was made again is another one, and begun anew."""

    def __init__(self, logs: Logs) -> None:
        self.cursors: dict[TopicPartition, Cursor] = {}
        self._logs = logs
        self._subscribed: set[str] = set()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics, and those that they get later."""
        infos = self._logs.look_up_topics(topics)
        self._read(
            {TopicPartition(info.name, number): info for info in infos for number in range(info.partitions)}
        )
        self._subscribed = {info.name for info in infos}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; those that were read already go on where they are."""
        self._read(self.resolve(partitions))

    def _read(self, partitions: Mapping[TopicPartition, Topic]) -> None:
        cursors: dict[TopicPartition, Cursor] = {}
        for tp, topic in partitions.items():
            known = self.cursors.get(tp)
            if known is not None and known.topic.incarnation == topic.incarnation:
                cursors[tp] = known
                continue
            is_late = known is not None or topic.name in self._subscribed
            cursors[tp] = Cursor(topic, tp.partition, is_late=is_late)
        self.cursors = cursors
        self._subscribed = set()

    def resolve(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Topic]:
        """Each partition with its topic as of now: one look at the store a topic."""
        topics: dict[str, Topic] = {}
        found: dict[TopicPartition, Topic] = {}
        for tp in (TopicPartition(*each) for each in partitions):
            topic = topics.get(tp.topic)
            if topic is None or tp.partition >= topic.partitions:
                topic = topics[tp.topic] = self._logs.topics.as_of_now(*tp)
            topic.check_partition(tp.partition)
            found[tp] = topic
        return found

    def cursor(self, partition: TopicPartition) -> Cursor:
        """That of a partition that is read. Raises `UnknownTopicOrPartitionError` for another."""
        cursor = self.cursors.get(TopicPartition(*partition))
        if cursor is None:
            raise UnknownTopicOrPartitionError(
                f"{partition} is not assigned", actor="consumer", expected="subscribe() or assign() before"
            )
        return cursor

    def incarnations(self) -> dict[TopicPartition, int]:
        """Of which incarnation of its topic each partition is read."""
        return {tp: cursor.topic.incarnation for tp, cursor in self.cursors.items()}

    def look_up_again(self) -> None:
        """Learn what the topics have become, at the store."""
        self._logs.look_up_topics(cursor.topic.name for cursor in self.cursors.values())

    def follow_topics(self) -> tuple[TopicPartition, ...]:
        """Begin anew in topics that were made again, and in the partitions that one has grown by, for who subscribed to
        it; read the columns that topics have now. Returns what has changed: partitions that are begun, or gone.
        """
        changed: list[TopicPartition] = []
        # Each topic is asked for once, so that all its partitions have the same columns.
        names = sorted({*self._subscribed, *(tp.topic for tp in self.cursors)})
        topics = {name: self._logs.topics.get(name) for name in names}
        for name in sorted(self._subscribed):
            topic = topics[name]
            for number in range(topic.partitions):
                if (tp := TopicPartition(name, number)) not in self.cursors:
                    self.cursors[tp] = Cursor(topic, number, is_late=True)
                    changed.append(tp)
        for tp, cursor in list(self.cursors.items()):
            topic = topics[tp.topic]
            if topic.incarnation == cursor.topic.incarnation:
                if topic.schemas != cursor.topic.schemas:
                    cursor.topic, cursor.open_file = topic, None
                continue
            if tp.partition < topic.partitions:
                self.cursors[tp] = Cursor(topic, tp.partition, is_late=True)
            elif tp.topic in self._subscribed:
                del self.cursors[tp]
            else:
                raise UnknownTopicOrPartitionError(
                    f"topic {tp.topic!r} was made again, with {topic.partitions} partitions",
                    actor="consumer",
                    place=str(tp),
                    expected="the partition that was assigned",
                    action="assign() partitions that the topic has now",
                    reason=Reason.TOPIC_MADE_AGAIN,
                )
            changed.append(tp)
        return tuple(changed)
