"""Reading on in several partitions, in turn (Kafka's `Fetcher`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from txn_engine.consumer.cursors import Cursor, StartPolicy
from txn_engine.consumer.files_ahead import FilesAhead, NamedFile, OpenFile
from txn_engine.log.logs import Logs
from txn_engine.log.reading import FileSlice, choose_files, end_of, present_files
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import PartitionState


@dataclass(slots=True)
class _Partition:
    """A partition as one read finds it, with the files that it has for the reader."""

    cursor: Cursor
    state: PartitionState
    end: int
    parts: list[FileSlice] | None = None

    @property
    def has_nothing(self) -> bool:
        """Whether the reader has come to the end."""
        return self.end <= self.cursor.position <= self.state.high_watermark


class _Columns:
    """The columns of what one poll gives: one of a name has one type, whatever topics there are."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._types: dict[str, pa.DataType] = {}

    def go_with(self, topic: Topic) -> bool:
        """Whether the topic's may stand beside them."""
        types = self._types
        return topic.name in self._topics or all(
            types.get(each.name, each.type) == each.type for each in topic.schema
        )

    def add(self, topic: Topic) -> None:
        """The topic's are among them."""
        if topic.name not in self._topics:
            self._topics.add(topic.name)
            self._types.update((each.name, each.type) for each in topic.schema)


class Fetcher:
    """Reads from cursors on and moves them; each poll begins with another partition, so that none waits for ever.

    Partitions of a topic whose columns do not go with those of a poll are left for the next one, which begins there.
    """

    def __init__(self, logs: Logs, policy: StartPolicy, ahead_bytes: int) -> None:
        self._objects = logs.tools.objects
        self._policy = policy
        self._files = FilesAhead(self._objects, logs.workers, ahead_bytes)
        self._next = 0

    def read(
        self, cursors: Sequence[Cursor], states: Sequence[PartitionState], max_records: int
    ) -> pa.Table | None:
        """At most so many records, None for none. Cursors move behind them and over gaps, or stay where an error is
        raised.
        """
        isolation_level = self._policy.isolation_level
        partitions = [
            _Partition(cursor, state, end_of(state, isolation_level))
            for cursor, state in zip(cursors, states, strict=True)
        ]
        if all(at.has_nothing for at in partitions):
            return None
        before = [(cursor.position, cursor.skipped) for cursor in cursors]
        self._files.expect(self._likely(partitions, max_records))
        try:
            tables = self._read(partitions, max_records)
        except BaseException:
            for cursor, (position, skipped) in zip(cursors, before, strict=True):
                cursor.position, cursor.open_file = position, None  # nobody has seen what was read
                cursor.skipped = skipped
            raise
        self._files.read_ahead()
        return pa.concat_tables(tables, promote_options="default") if tables else None

    def forget(self) -> None:
        """Nothing is read any more."""
        self._files.forget()

    def _read(self, partitions: Sequence[_Partition], max_records: int) -> list[pa.Table]:
        tables: list[pa.Table] = []
        left = max_records
        names_topics = len({at.cursor.topic.name for at in partitions}) > 1
        columns, left_out = _Columns(), None
        for index in _in_turn(self._next, len(partitions)):
            cursor = partitions[index].cursor
            if not columns.go_with(cursor.topic):
                left_out = index if left_out is None else left_out
                continue
            for table in self._take(partitions[index], left):
                columns.add(cursor.topic)
                tables.append(_with_topic(cursor, table) if names_topics else table)
                left -= table.num_rows
            if left <= 0:
                self._next = index + 1
                break
        if left_out is not None:
            self._next = left_out
        return tables

    def _take(self, at: _Partition, limit: int) -> list[pa.Table]:
        """Up to `limit` records of one partition; moves the cursor behind them."""
        cursor = at.cursor
        begin = self._policy.within(cursor, at.state, cursor.position)  # retention may have overtaken it
        if begin != cursor.position:
            cursor.position, at.parts = begin, None
        tables: list[pa.Table] = []
        for part in present_files(self._objects, cursor.topic, self._parts(at)):
            if limit <= 0:
                return tables
            opened = self._opened(cursor, part)
            while limit > 0 and (rest := opened.rest(cursor.position)) is not None:
                table = rest.slice(0, limit)
                tables.append(table)
                limit -= table.num_rows
                cursor.position = table.column("_offset")[-1].as_py() + 1
            if limit <= 0 and cursor.position <= part.log_file.last_offset:
                return tables
            cursor.open_file = None
        cursor.position = max(cursor.position, at.end)
        return tables

    def _parts(self, at: _Partition) -> list[FileSlice]:
        if at.parts is None:
            at.parts = choose_files(
                at.state, at.cursor.partition, at.cursor.position, at.end, self._policy.isolation_level
            )
        return at.parts

    def _opened(self, cursor: Cursor, part: FileSlice) -> OpenFile:
        """The file, to be read from the cursor's position on; it is kept open for the next poll."""
        if cursor.open_file is None or not _is_open(cursor, part):
            cursor.open_file = self._files.open(_whole_file(cursor, part))
        return cursor.open_file

    def _likely(self, partitions: Sequence[_Partition], max_records: int) -> Iterator[NamedFile]:
        """The files that this poll opens, and those of a next one that finds nothing new. Aborted ones, which may be
        gone, are not among them.
        """
        places = [(0, 0)] * len(partitions)  # a file of the partition, how many of its records are taken
        first = self._next
        for _ in range(2):
            left = max_records
            columns, left_out = _Columns(), None
            for index in _in_turn(first, len(partitions)):
                at, (number, taken) = partitions[index], places[index]
                parts = self._parts(at)
                if number < len(parts) and not columns.go_with(at.cursor.topic):
                    left_out = index if left_out is None else left_out
                    continue
                if number < len(parts):
                    columns.add(at.cursor.topic)
                while left > 0 and number < len(parts):
                    part = parts[number]
                    is_new = not taken and not part.is_aborted and not _is_open(at.cursor, part)
                    if is_new and self._files.is_worth_it(part.log_file.file.data_bytes):
                        yield _whole_file(at.cursor, part)
                    step = min(left, _records_in(part) - taken)
                    left, taken = left - step, taken + step
                    if taken >= _records_in(part):
                        number, taken = number + 1, 0
                places[index] = (number, taken)
                if left <= 0:
                    first = index + 1
                    break
            first = first if left_out is None else left_out


def _in_turn(first: int, count: int) -> list[int]:
    begin = first % count
    return [*range(begin, count), *range(begin)]


def _records_in(part: FileSlice) -> int:
    """How many records of the file are still to be read, as far as can be told without it."""
    return min(part.log_file.record_count, part.end_offset - part.start_offset)


def _whole_file(cursor: Cursor, part: FileSlice) -> NamedFile:
    file = part.log_file
    whole = FileSlice(part.partition, file, file.base_offset, file.last_offset + 1)
    return NamedFile(cursor.topic, whole, _key(cursor, part))


def _key(cursor: Cursor, part: FileSlice) -> str:
    path = f"{cursor.topic.prefix(part.partition)}/{part.log_file.file.data_path}"
    return f"{path} {cursor.topic.version}"


def _is_open(cursor: Cursor, part: FileSlice) -> bool:
    opened = cursor.open_file
    return opened is not None and opened.holds(_key(cursor, part), cursor.position)


def _with_topic(cursor: Cursor, table: pa.Table) -> pa.Table:
    return table.append_column("_topic", pa.repeat(pa.scalar(cursor.topic.name, pa.string()), table.num_rows))
