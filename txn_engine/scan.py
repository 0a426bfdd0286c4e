"""A bounded read: the list of committed files up to a fixed end, for us or for any engine that reads Parquet."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Final, Literal

import pyarrow as pa

from txn_engine.arguments import checks_arguments
from txn_engine.errors import InvalidRequestError, OffsetOutOfRangeError, SchemaChangedError
from txn_engine.log.as_of import AsOf
from txn_engine.log.cut_format import Cut, CutTopic
from txn_engine.log.data_files import begun
from txn_engine.log.left_out import left_out_by_ms
from txn_engine.log.logs import Logs
from txn_engine.log.reading import (
    FileSlice,
    SmallFiles,
    check_start,
    choose_files,
    empty_table,
    end_of,
    first_offset_at,
    present_files,
    read_slice,
    rows_of,
)
from txn_engine.log.topics import Topic, TopicRegistry
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason
from txn_engine.schemas.widening import is_widening
from txn_engine.types import IsolationLevel, ScanFile, TopicPartition

_LOGGER = logging.getLogger(__name__)
TOPIC = "_topic"
CUT: Final = "cut"
"""For a version of a topic's schema: the one that it had when the cut was made."""
SchemaVersion = int | Literal["cut"]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a scan is told of its start and its end: offsets by partition, or a time for all of them."""

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    start_timestamp: int | None
    end_timestamp: int | None

    def __post_init__(self) -> None:
        for name, offsets, time in (
            ("start", self.start, self.start_timestamp),
            ("end", self.end, self.end_timestamp),
        ):
            if time is None:
                continue
            if offsets:
                raise InvalidRequestError(
                    f"{name} and {name}_timestamp",
                    expected="one of them: either chooses the offsets",
                    reason=Reason.CONFLICTING_ARGUMENTS,
                )
            if type(time) is not int or time < 0:
                raise InvalidRequestError(
                    f"{name}_timestamp={time!r}",
                    expected="milliseconds since the epoch, a whole number",
                    reason=Reason.BAD_ARGUMENT,
                )
        if (
            self.start_timestamp is not None
            and self.end_timestamp is not None
            and self.end_timestamp < self.start_timestamp
        ):
            raise InvalidRequestError(
                f"end_timestamp={self.end_timestamp}",
                expected=f"{self.start_timestamp}, the start, or later",
                reason=Reason.END_BEFORE_START,
            )


@checks_arguments
class Scan:
    """What a topic holds between two sets of offsets, fixed when the scan was made.

    read_committed: all records of committed transactions and plain producers below the last stable offset,
    each once, none of an aborted one. The same scan gives the same files, as long as they are kept.
    `as_of`: what was below a cut, as the logs were then; that is kept as long as the cut is.
    `schema_version`: the columns as they were then, or (`"cut"`) when the cut was made; else those that the topic has
    when the scan is made. Where they are changed while it is made, it reads those that came.
    `left_out`: partitions with records that were written after `start_timestamp` and are not read, because their
    writers' clocks, or whoever gave them times, say an earlier one: by how many ms. A warning is logged for each.
    """

    def __init__(
        self,
        logs: Logs,
        topics: Sequence[str],
        *,
        partitions: Sequence[int] | None,
        start: Mapping[TopicPartition, int] | None,
        end: Mapping[TopicPartition, int] | None,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        isolation_level: IsolationLevel,
        as_of: AsOf | None = None,
        schema_version: SchemaVersion | None = None,
    ) -> None:
        check_isolation(isolation_level)
        bounds = _Bounds(start or {}, end or {}, start_timestamp, end_timestamp)
        self._logs = logs
        self._asked = columns_asked(logs.topics, schema_version, None if as_of is None else as_of.cut)
        self._topics = [self._asked(topic) for topic in logs.look_up_topics(topics)]
        self._isolation: IsolationLevel = isolation_level
        cut = None if as_of is None else as_of.cut
        if cut is not None:
            if isolation_level != "read_committed":
                raise InvalidRequestError(
                    f"isolation level {isolation_level!r} as of cut {cut.number}", expected="'read_committed'"
                )
            self._topics = [topic_of_cut(cut, topic) for topic in self._topics]
        targets = [TopicPartition(t.name, p) for t in self._topics for p in _chosen(t, partitions)]
        for offsets in (bounds.start, bounds.end):
            unknown = [str(tp) for tp in offsets if tp not in targets]
            if unknown:
                raise InvalidRequestError(f"a bound for {unknown[0]}", expected="partitions that are read")
        by_name = {topic.name: topic for topic in self._topics}
        states = _states(logs, [(by_name[tp.topic], tp.partition) for tp in targets], as_of)
        self._slices: list[tuple[Topic, FileSlice]] = []
        self.start_offsets: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.left_out: dict[TopicPartition, int] = {}
        for tp, state in zip(targets, states, strict=True):
            topic = by_name[tp.topic]
            stable = end_of(state, isolation_level) if cut is None else cut.offsets[tp]
            first, last = self._bounds(topic, tp, state, stable, bounds)
            self.start_offsets[tp], self.offsets[tp] = first, last
            chosen = choose_files(state, tp.partition, first, last, isolation_level)
            self._slices += [(topic, part) for part in present_files(logs.tools.objects, topic, chosen)]

    def _bounds(
        self, topic: Topic, tp: TopicPartition, state: PartitionState, stable: int, bounds: _Bounds
    ) -> tuple[int, int]:
        def at(time_ms: int) -> int:
            found = first_offset_at(
                self._logs.tools.objects, topic, state, tp.partition, time_ms, self._isolation
            )
            return stable if found is None else min(found, stable)

        first = bounds.start.get(tp, state.log_start_offset)
        if bounds.start_timestamp is not None:
            first = at(bounds.start_timestamp)
            self._tell_of_left_out(topic, tp, state, first, bounds.start_timestamp)
        check_start(state, tp.topic, tp.partition, first)
        if bounds.end_timestamp is not None:
            return first, max(first, at(bounds.end_timestamp))
        last = bounds.end.get(tp, stable)
        if not first <= last <= state.high_watermark:
            raise OffsetOutOfRangeError(
                f"end offset {last} of {tp}", expected=f"{first} to {state.high_watermark}"
            )
        return first, max(first, min(last, stable))

    def _tell_of_left_out(
        self, topic: Topic, tp: TopicPartition, state: PartitionState, first: int, time_ms: int
    ) -> None:
        """Say so where the read begins behind records that the store got since the time that was asked for."""
        tools = self._logs.tools
        if not tools.store_time.estimate().dates_objects:
            return
        behind_ms = left_out_by_ms(tools.objects, topic, state, tp.partition, first, time_ms)
        if behind_ms is not None:
            self.left_out[tp] = behind_ms
            _LOGGER.warning(
                "scan of %s from timestamp %d: records before offset %d were written after that time, but their "
                "timestamps are %d s earlier, so they are not read; read by offsets, or begin that much earlier",
                tp,
                time_ms,
                first,
                behind_ms // 1_000,
            )

    def _look_again(self) -> None:
        """Learn the columns that the topics have by now. Raises where a topic is gone."""
        for found in self._logs.look_up_topics(topic.name for topic in self._topics):
            for at, topic in enumerate(self._topics):
                if topic.name == found.name and topic.incarnation == found.incarnation and found.layouts:
                    known = self._asked(topic.with_layouts(found.layouts))
                    self._topics[at] = known
                    self._slices = [
                        (known if each.name == topic.name else each, part) for each, part in self._slices
                    ]

    @property
    def topics(self) -> Sequence[Topic]:
        """The topics that are read, with the columns that are asked for."""
        return tuple(self._topics)

    def files(self) -> list[ScanFile]:
        """The files, whole, by partition and offset; `first_row` and `end_row` say what of each belongs to the scan."""
        try:
            return self._files()
        except SchemaChangedError:
            self._look_again()
            return self._files()

    def _files(self) -> list[ScanFile]:
        objects = self._logs.tools.objects
        versions = list(self._versions())
        found = []
        folders: dict[tuple[str, int], str] = {}
        for (topic, part), version in zip(self._slices, versions, strict=True):
            folder = folders.get((topic.name, part.partition))
            if folder is None:
                folder = folders[topic.name, part.partition] = objects.uri(topic.prefix(part.partition))
            first_row, end_row = rows_of(objects, topic, part)
            file = part.log_file
            found.append(
                ScanFile(
                    uri=f"{folder}/{file.file.data_path}",
                    topic=topic.name,
                    partition=part.partition,
                    base_offset=file.base_offset,
                    record_count=file.record_count,
                    bytes=file.file.data_bytes,
                    first_row=first_row,
                    end_row=end_row,
                    start_offset=part.start_offset,
                    end_offset=part.end_offset,
                    schema_version=version,
                )
            )
        return found

    def _versions(self) -> Iterator[int]:
        """For each file the version of its topic's schema that it has."""
        for topic, parts in groupby(self._slices, key=itemgetter(0)):
            keys = [
                (
                    f"{topic.prefix(part.partition)}/{part.log_file.file.data_path}",
                    part.log_file.file.data_bytes,
                )
                for _, part in parts
            ]
            yield from self._logs.file_versions.of(topic, keys)

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The records, a file at a time, or several small files together; files are read a few ahead. `columns` may
        name `_partition`, `_offset`, `_timestamp`.
        """
        for table in self._current_tables(columns):
            yield from table.to_batches()

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All records in one table, by partition and offset. A column that topics have in several types has the widest
        of them; `InvalidRequestError` where none holds the values of all.
        """
        try:
            tables = list(self._tables(columns))
        except SchemaChangedError:
            self._look_again()
            tables = list(self._tables(columns))
        if not tables:
            return self._with_topic(
                self._topics[0], empty_table(self._topics[0], self._physical(columns)), columns
            )
        return _together(tables) if len(self._topics) > 1 else pa.concat_tables(tables)

    def _current_tables(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """As `_tables`; of a file whose version is not known yet it learns, unless there were records of another."""
        has_begun = False
        try:
            for table in self._tables(columns):
                has_begun = True
                yield table
        except SchemaChangedError:
            if has_begun:
                raise
            self._look_again()
            yield from self._tables(columns)

    def _tables(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        physical = self._physical(columns)
        for topic in self._topics:
            for name in physical or ():
                if name not in (*topic.schema.names, "_partition", "_offset", "_timestamp"):
                    raise InvalidRequestError(
                        f"column {name!r} of topic {topic.name!r}",
                        expected=f"some of {[*topic.schema.names, '_partition', '_offset', '_timestamp']}",
                    )
        objects = self._logs.tools.objects

        small = {topic.name: SmallFiles(objects, topic, physical) for topic in self._topics}

        def read(topic: Topic, parts: Sequence[FileSlice]) -> Iterator[pa.Table]:
            if SmallFiles.has(parts[0]):
                tables = iter(list(small[topic.name].read(parts)))
            else:
                tables = begun(read_slice(objects, topic, parts[0], physical))
            return (self._with_topic(topic, table, columns) for table in tables)

        ahead: deque[Future[Iterator[pa.Table]]] = deque()
        try:
            # One after the other they would cost a round trip each, where that is what costs.
            for topic, parts in _read_together(self._slices, _SMALL_TOGETHER if objects.is_near else 1):
                ahead.append(self._logs.workers.submit(read, topic, parts))
                if len(ahead) >= _FILES_AHEAD:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            for unread in ahead:
                unread.cancel()

    def _physical(self, columns: Sequence[str] | None) -> list[str] | None:
        return None if columns is None else [name for name in columns if name != TOPIC]

    def _with_topic(self, topic: Topic, table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
        wanted = len(self._topics) > 1 if columns is None else TOPIC in columns
        if not wanted:
            return table
        names = pa.repeat(pa.scalar(topic.name, pa.string()), table.num_rows)
        table = table.append_column(TOPIC, names)
        return table if columns is None else table.select(list(columns))


_FILES_AHEAD = 32
_SMALL_TOGETHER = 16


def _read_together(
    slices: Sequence[tuple[Topic, FileSlice]], most: int
) -> Iterator[tuple[Topic, list[FileSlice]]]:
    """The files in their order: small ones that follow one another together, `most` at a time, and each other alone."""
    topic: Topic | None = None
    together: list[FileSlice] = []
    for each, part in slices:
        is_small = SmallFiles.has(part)
        if topic is not None and together and (not is_small or each is not topic or len(together) == most):
            yield topic, together
            together = []
        topic = each
        if is_small:
            together.append(part)
        else:
            yield each, [part]
    if topic is not None and together:
        yield topic, together


def check_isolation(isolation_level: str) -> None:
    """Raise for anything but Kafka's two isolation levels."""
    if isolation_level not in ("read_committed", "read_uncommitted"):
        raise InvalidRequestError(
            f"isolation level {isolation_level!r}", expected="'read_committed' or 'read_uncommitted'"
        )


def columns_asked(
    topics: TopicRegistry, version: SchemaVersion | None, cut: Cut | None
) -> Callable[[Topic], Topic]:
    """What gives a topic, which is as it was looked up, the columns that are asked for: those of its latest version, of
    the one of this number, or of the cut's.

    Raises `InvalidRequestError` for the cut's without a cut; so does what it gives where the topic has no such version,
    or is not in the cut.
    """
    if version is None:
        return lambda topic: topic
    if version != CUT:
        return lambda topic: topic.at_version(version)
    if cut is None:
        raise InvalidRequestError(
            f"schema_version={CUT!r} and no cut",
            expected="the cut whose columns are meant",
            reason=Reason.NO_CUT,
        )
    return lambda topic: topics.after_changes(topic, _found(cut, topic).changes)


def topic_of_cut(cut: Cut, topic: Topic) -> Topic:
    """The topic, with the partitions that it had then. Raises `InvalidRequestError` where the cut is not of it."""
    return replace(topic, partitions=len(_found(cut, topic).partitions))


def _found(cut: Cut, topic: Topic) -> CutTopic:
    found = cut.find(topic.name, topic.incarnation)
    if found is not None:
        return found
    is_older = any(each.topic == topic.name for each in cut.topics)
    raise InvalidRequestError(
        f"topic {topic.name!r} {'was deleted and made again since' if is_older else 'is not in'} cut {cut.number}",
        expected="a topic that was there when the cut was made",
        reason=Reason.TOPIC_MADE_AGAIN if is_older else Reason.TOPIC_NOT_IN_CUT,
    )


def first_offset_behind(cut: Cut, topic: Topic, partition: int) -> int:
    """The first offset of a partition that is not inside. All of one that was added since is outside."""
    topic_of_cut(cut, topic)
    return cut.offsets.get(TopicPartition(topic.name, partition), 0)


def begin_behind(cut: Cut, topic: Topic, partition: int, state: PartitionState) -> int:
    """As `first_offset_behind`, for a reader that begins there. Raises `OffsetOutOfRangeError` if the log begins
    further on by now: retention has deleted records that came after the cut.
    """
    offset = first_offset_behind(cut, topic, partition)
    if offset < state.log_start_offset:
        raise OffsetOutOfRangeError(
            f"cut {cut.number} ends at offset {offset} of {topic.name}-{partition}, and retention has deleted what came"
            f" after it: the log begins at offset {state.log_start_offset}",
            expected=f"a cut that ends at {state.log_start_offset} or later (`txn-engine cuts list`)",
            action="begin at the first record that is left (`groups reset-offsets --to-earliest`, `Consumer.seek`);"
            f" what is inside the cut can still be read as of it (`sql --cut {cut.number}`, `scan(cut=...)`)",
            reason=Reason.CUT_BEFORE_LOG_START,
        )
    return offset


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of several topics in one; null where a topic has not the column of another."""
    kinds: dict[str, pa.DataType] = {}
    for field in (field for table in tables for field in table.schema):
        known = kinds.setdefault(field.name, field.type)
        if is_widening(known, field.type):
            kinds[field.name] = field.type
        elif known != field.type and not is_widening(field.type, known):
            raise InvalidRequestError(
                f"column {field.name!r}, of type {known} in one topic and {field.type} in another",
                actor="scan",
                expected="types of which one holds the values of all",
                action="read the topics one by one, or columns that go together",
                reason=Reason.DIFFERENT_COLUMNS,
            )
    wide = [table.cast(pa.schema([(name, kinds[name]) for name in table.schema.names])) for table in tables]
    return pa.concat_tables(wide, promote_options="default")


def _states(logs: Logs, asked: Sequence[tuple[Topic, int]], as_of: AsOf | None) -> list[PartitionState]:
    if as_of is None:
        return logs.refresh_all([logs.get(topic.name, topic.incarnation, number) for topic, number in asked])
    return list(logs.workers.map(lambda at: as_of.state(at[0].name, at[0].incarnation, at[1]), asked))


def _chosen(topic: Topic, partitions: Sequence[int] | None) -> Sequence[int]:
    if partitions is None:
        return range(topic.partitions)
    for number in partitions:
        topic.check_partition(number)
    return list(dict.fromkeys(partitions))
