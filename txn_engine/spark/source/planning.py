"""Which records a read takes: topics, bounds and files, from the log as it is now.

One planner for the data source, batch and streaming, and for `stream_topic`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from txn_engine.engine import Engine
from txn_engine.errors import (
    InvalidRegularExpressionError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.reading import FileSlice, choose_files, end_of, present_files
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason
from txn_engine.spark.source.options import ACTOR, EARLIEST, LATEST, Bound, ReadOptions, Subscription
from txn_engine.spark.source.positions import Positions
from txn_engine.types import TopicPartition

TASK_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a read, and which of its offsets belong to it."""

    topic: Topic
    slice: FileSlice

    @property
    def size(self) -> int:
        """The bytes of the file that are read for it, about."""
        file = self.slice.log_file
        span = file.last_offset - file.base_offset + 1
        return max(file.file.data_bytes * (self.slice.end_offset - self.slice.start_offset) // span, 1)


@dataclass(frozen=True, slots=True)
class _Partition:
    topic: Topic
    state: PartitionState


class Planner:
    """The topics that a read subscribed to, and where they are."""

    def __init__(self, engine: Engine, options: ReadOptions) -> None:
        self._engine = engine
        self._options = options

    # --- topics ---------------------------------------------------------------------------------------------

    def topics(self) -> list[Topic]:
        """The topics, by name. Raises `UnknownTopicOrPartitionError` where one is not there, or none matches."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            return self._matching(subscription, subscription.pattern)
        topics = self._named(subscription.topics or dict.fromkeys(tp.topic for tp in subscription.partitions))
        for topic in topics:
            for tp in subscription.partitions:
                if tp.topic == topic.name:
                    topic.check_partition(tp.partition)
        return topics

    def _named(self, names: Iterable[str]) -> list[Topic]:
        """The topics of these names; where data loss is no error, those that are still there, one at least."""
        topics, missing = [], []
        for name in sorted(names):
            try:
                topics.append(self._engine.logs.topics.look_up(name))
            except UnknownTopicOrPartitionError as error:
                missing.append(error)
        if missing and (self._options.fail_on_data_loss or not topics):
            raise missing[0]
        return topics

    def _matching(self, subscription: Subscription, pattern: str) -> list[Topic]:
        try:
            matches = re.compile(pattern).fullmatch
        except re.error as error:
            raise InvalidRegularExpressionError(
                f"subscribePattern {pattern!r}: {error}",
                actor=ACTOR,
                expected="a regular expression",
                reason=Reason.BAD_OPTION_VALUE,
            ) from None
        names = [name for name in self._engine.admin.list_topics() if matches(name)]
        if not names:
            raise UnknownTopicOrPartitionError(
                f"no topic that {subscription} matches",
                actor=ACTOR,
                place=self._engine.url,
                action="`txn-engine topics list` shows what is there",
                reason=Reason.NO_MATCHING_TOPIC,
            )
        return [self._engine.logs.topics.look_up(name) for name in sorted(names)]

    def _partitions(self, topics: Iterable[Topic]) -> dict[TopicPartition, _Partition]:
        """The partitions that are read, each with its log's state as of now."""
        assigned = self._options.subscription.partitions
        targets = {
            TopicPartition(topic.name, number): topic
            for topic in topics
            for number in range(topic.partitions)
            if not assigned or TopicPartition(topic.name, number) in assigned
        }
        logs = self._engine.logs
        states = logs.refresh_all(
            [logs.get(topic.name, topic.incarnation, tp.partition) for tp, topic in targets.items()]
        )
        return {
            tp: _Partition(topic, state) for (tp, topic), state in zip(targets.items(), states, strict=True)
        }

    # --- bounds ---------------------------------------------------------------------------------------------

    def latest(self) -> Positions:
        """The end of what may be read now: the last stable offsets, or the log ends for read_uncommitted."""
        found = self._partitions(self.topics())
        return self._positions(found, {tp: self._end_of(at) for tp, at in found.items()})

    def ahead(self, position: Positions) -> tuple[Positions, Positions]:
        """`latest()`, and the ends of the logs with all that is undecided yet. Raises for what was lost since a stream
        was at `position`, as `parts` would.
        """
        self._check_store(position)
        found = self._partitions(self.topics())
        for tp in sorted(position.offsets):
            at = found.get(tp)
            if at is None:
                self._lost(f"{tp} is not there any more", Reason.PARTITION_GONE)
            else:
                self._first(tp, at, position)
        log_ends = {tp: at.state.high_watermark for tp, at in found.items()}
        ends = {tp: self._end_of(at) for tp, at in found.items()}
        return self._positions(found, ends), self._positions(found, log_ends)

    def cut_files(
        self, offsets: Mapping[TopicPartition, int], end: Positions
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Where the files begin and end that these offsets are inside of, as far as `end` has them whole; as of the
        last look at their logs.
        """
        cut = {}
        for tp, offset in offsets.items():
            state = self._engine.logs.get(tp.topic, end.incarnation(tp.topic), tp.partition).view()
            for part in choose_files(state, tp.partition, offset, offset + 1, self._options.isolation_level):
                first, behind = part.log_file.base_offset, part.log_file.last_offset + 1
                if first < offset and behind <= end.offsets[tp]:
                    cut[tp] = first, behind
        return cut

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of these begin, as far as they are there."""
        found = self._partitions(self._named({tp.topic for tp in partitions}))
        return {tp: found[tp].state.log_start_offset for tp in partitions if tp in found}

    def start(self) -> Positions:
        """Where the options say that a read begins."""
        found = self._partitions(self.topics())
        return self._positions(found, self._resolved(self._options.start, found))

    def bounds(self) -> tuple[Positions, Positions]:
        """Where a batch read begins and ends."""
        found = self._partitions(self.topics())
        start = self._resolved(self._options.start, found)
        end = self._resolved(self._options.end, found)
        for tp, first in start.items():
            if end[tp] < first:
                raise OffsetOutOfRangeError(
                    f"{tp} from {first} to {end[tp]}",
                    actor=ACTOR,
                    expected="an end behind the start",
                    reason=Reason.END_BEFORE_START,
                )
        return self._positions(found, start), self._positions(found, end)

    def _end_of(self, at: _Partition) -> int:
        return end_of(at.state, self._options.isolation_level)

    def _resolved(
        self, bound: Bound, found: Mapping[TopicPartition, _Partition]
    ) -> dict[TopicPartition, int]:
        named = bound.named
        if named is not None and set(named) != set(found):
            odd = min(set(named) ^ set(found))
            raise InvalidRequestError(
                f"option {bound.option!r} {'names' if odd in named else 'leaves out'} {odd}",
                actor=ACTOR,
                expected=f"each partition of {self._options.subscription}, and no other",
                reason=Reason.OTHER_PARTITIONS,
            )
        if bound.time_ms is not None or bound.times_ms is not None:
            return self._by_time(bound, found)
        wanted = bound.offsets or {}
        return {tp: self._offset(bound, tp, at, wanted.get(tp, bound.offset)) for tp, at in found.items()}

    def _offset(self, bound: Bound, tp: TopicPartition, at: _Partition, wanted: int | None) -> int:
        start, end = at.state.log_start_offset, self._end_of(at)
        if wanted == EARLIEST:
            return start
        if wanted is None or wanted == LATEST:
            return end
        if wanted < start and not self._options.fail_on_data_loss:
            return start
        if not start <= wanted <= at.state.high_watermark:
            raise OffsetOutOfRangeError(
                f"option {bound.option!r}: offset {wanted} of {tp}",
                actor=ACTOR,
                expected=f"{start} to {end}",
                action=_LOSS if wanted < start else "",
                reason=Reason.OFFSET_NOT_IN_LOG,
            )
        return min(wanted, end)

    def _by_time(self, bound: Bound, found: Mapping[TopicPartition, _Partition]) -> dict[TopicPartition, int]:
        """The first record at that time or later; where there is none, the end, if it is the end that is asked for or
        the strategy says so.
        """
        times = bound.times_ms if bound.times_ms is not None else dict.fromkeys(found, bound.time_ms or 0)
        with self._engine.consumer(isolation_level=self._options.isolation_level) as consumer:
            offsets = consumer.offsets_for_times(times)
        resolved = {}
        for tp, at in found.items():
            offset = offsets[tp]
            if offset is None and bound.option.startswith("starting") and self._options.strategy == "error":
                raise OffsetOutOfRangeError(
                    f"option {bound.option!r}: no record of {tp} at {times[tp]} or later",
                    actor=ACTOR,
                    expected="a time that the topic reaches",
                    action='set startingOffsetsByTimestampStrategy to "latest" to begin with what comes',
                    reason=Reason.NO_RECORD_SINCE,
                )
            resolved[tp] = self._end_of(at) if offset is None else offset
        return resolved

    def _positions(
        self, found: Mapping[TopicPartition, _Partition], offsets: Mapping[TopicPartition, int]
    ) -> Positions:
        incarnations = {at.topic.name: at.topic.incarnation for at in found.values()}
        return Positions(dict(offsets), incarnations, self._engine.config.store_id)

    def _check_store(self, position: Positions) -> None:
        """Raise where a position is one in another store: its offsets are about other records."""
        here = self._engine.config.store_id
        if position.store_id not in ("", here):
            raise InvalidRequestError(
                f"a checkpoint of the store with id {position.store_id[:32]!r}",
                actor=ACTOR,
                place=self._engine.url,
                expected=f"one of the store that `url` names, {here!r}",
                action="name the store that the query began on, or a new checkpoint",
                reason=Reason.CHECKPOINT_OF_ANOTHER_STORE,
            )

    # --- files ----------------------------------------------------------------------------------------------

    def parts(self, start: Positions, end: Positions) -> list[Part]:
        """The files between two positions, by partition and offset.

        What was there and is not any more is data loss (records that retention took away before they were read, a topic
        that was deleted and made again): refused, or passed over where `failOnDataLoss` is false. A gap is none: that
        is what markers, aborted transactions and clean-up by key leave.
        """
        self._check_store(end)
        found = self._partitions(self._named({tp.topic for tp in end.offsets}))
        objects = self._engine.logs.tools.objects
        known = {at.topic.name: self._as_new_as_its_files(at.topic) for at in found.values()}
        parts: list[Part] = []
        for tp, last in sorted(end.offsets.items()):
            at = found.get(tp)
            if at is None:
                self._lost(f"{tp} is not there any more", Reason.PARTITION_GONE)
                continue
            if end.incarnation(tp.topic) != at.topic.incarnation:
                self._lost(f"topic {tp.topic!r} was deleted and made again", Reason.TOPIC_MADE_AGAIN)
                continue
            first = self._first(tp, at, start)
            if last > at.state.high_watermark:
                raise OffsetOutOfRangeError(
                    f"offset {last} of {tp}",
                    actor=ACTOR,
                    expected=f"at most {at.state.high_watermark}",
                    action="this checkpoint is of another store, or the store was put back to an earlier state",
                    reason=Reason.CHECKPOINT_PAST_LOG_END,
                )
            chosen = choose_files(at.state, tp.partition, first, last, self._options.isolation_level)
            topic = known[tp.topic]
            parts += [Part(topic, part) for part in present_files(objects, topic, chosen)]
        return parts

    def _as_new_as_its_files(self, topic: Topic) -> Topic:
        """The topic with the columns that it has now that its files are listed: one may have come since it was looked
        up, or been merged, by newer ones.
        """
        topics = self._engine.logs.topics
        if self._options.ranges_only or not topics.has_new_columns(topic):
            return topic
        found = topics.get(topic.name)
        return found if found.incarnation == topic.incarnation else topic

    def _first(self, tp: TopicPartition, at: _Partition, start: Positions) -> int:
        """Where to begin in a partition; its log's start where the stream never was in it."""
        log_start = at.state.log_start_offset
        if tp not in start.offsets:
            return log_start
        if start.incarnation(tp.topic) != at.topic.incarnation:
            self._lost(f"topic {tp.topic!r} was deleted and made again", Reason.TOPIC_MADE_AGAIN)
            return log_start
        if start.offsets[tp] < log_start:
            self._lost(
                f"{tp} begins at {log_start} by now, and the read was at {start.offsets[tp]}",
                Reason.RECORDS_GONE,
            )
            return log_start
        return start.offsets[tp]

    def _lost(self, what: str, reason: Reason) -> None:
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{what}: records may have been lost",
                actor=ACTOR,
                place=self._engine.url,
                action=_LOSS_OF_RANGES if self._options.ranges_only else _LOSS,
                reason=reason,
            )


_LOSS = "set failOnDataLoss to false to go on with what is there"
_LOSS_OF_RANGES = (
    "where the checkpoint is of another topic, name its own; else begin with a new one, where the group is"
)


# --- tasks --------------------------------------------------------------------------------------------------


def tasks(
    parts: Iterable[Part], *, at_least: int | None = None, most_records: int | None = None
) -> list[tuple[Part, ...]]:
    """The parts in as many groups as Spark is to make tasks of, each of one partition.

    About `TASK_BYTES` each, fewer where more tasks are asked for (`minPartitions`), and never more offsets than
    `most_records` (`maxRecordsPerPartition`): files are cut for it.
    """
    given = list(parts)
    spans = sum(part.slice.end_offset - part.slice.start_offset for part in given)
    limit = most_records
    if at_least is not None and spans:
        limit = min(limit or spans, -(-spans // at_least))
    groups: list[tuple[Part, ...]] = []
    group: list[Part] = []
    size = offsets = 0
    for part in _cut(given, limit):
        span = part.slice.end_offset - part.slice.start_offset
        is_full = size + part.size > TASK_BYTES or (limit is not None and offsets + span > limit)
        if group and (is_full or _home(part) != _home(group[0])):
            groups.append(tuple(group))
            group, size, offsets = [], 0, 0
        group.append(part)
        size, offsets = size + part.size, offsets + span
    return [*groups, tuple(group)] if group else groups


def _home(part: Part) -> tuple[str, int]:
    return part.topic.name, part.slice.partition


def _cut(parts: Iterable[Part], limit: int | None) -> Iterable[Part]:
    for part in parts:
        first, behind = part.slice.start_offset, part.slice.end_offset
        for start in range(first, behind, limit or max(behind - first, 1)):
            end = min(start + limit, behind) if limit else behind
            yield part if limit is None else Part(part.topic, replace(part.slice, start=start, end=end))
