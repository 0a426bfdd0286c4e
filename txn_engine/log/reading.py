"""Choosing the files that a read needs, and reading them: whole files, no row filter (PROTOCOL.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from storage import KnownParquet, OpenedParquet
from storage.envelope import stored_checksum
from txn_engine.errors import OffsetOutOfRangeError
from txn_engine.held import no_records
from txn_engine.log.data_files import logical_schema, read_data_file
from txn_engine.log.objects import Objects, store_errors
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.schemas.layout import OFFSET, PARTITION, TIMESTAMP
from txn_engine.types import IsolationLevel

_SMALL_ROWS_MAX: Final = 64
_SMALL_BYTES_MAX: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A file of a partition, and which of its offsets belong to the read: `start` inclusive, `end` exclusive.

    `is_aborted`: only read_uncommitted asks for it, and clean-up may have taken it away.
    """

    partition: int
    log_file: LogFile
    start: int
    end: int
    is_aborted: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all records of the file belong to the read."""
        return self.start <= self.log_file.base_offset and self.end > self.log_file.last_offset

    @property
    def start_offset(self) -> int:
        """The first of the file's offsets that belongs to the read."""
        return max(self.start, self.log_file.base_offset)

    @property
    def end_offset(self) -> int:
        """The offset behind the last one that belongs to the read."""
        return min(self.end, self.log_file.last_offset + 1)


def end_of(state: PartitionState, isolation_level: IsolationLevel) -> int:
    """Where a reader of this isolation has to stop: the LSO, or the high watermark."""
    return state.last_stable_offset if isolation_level == "read_committed" else state.high_watermark


def choose_files(
    state: PartitionState, partition: int, start: int, end: int, isolation_level: IsolationLevel
) -> list[FileSlice]:
    """The files with offsets in [start, end), in offset order; for read_committed none that is aborted or undecided.

    read_uncommitted also gets the files of open and of aborted transactions, as in Kafka, while they are there
    (`present_files`); where records around an aborted file were rewritten, it went as in a compacted log.
    """
    end = min(end, end_of(state, isolation_level))
    chosen = [
        FileSlice(partition, file, start, end) for file in _overlapping(state.live.values(), start, end)
    ]
    if isolation_level == "read_uncommitted":
        undecided = _overlapping(state.undecided.values(), start, end)
        aborted = (dead.log_file for dead in state.dead.values() if dead.status == "aborted")
        chosen += [FileSlice(partition, file, start, end) for file in undecided]
        chosen += [
            FileSlice(partition, file, start, end, is_aborted=True)
            for file in _overlapping(aborted, start, end)
        ]
    chosen.sort(key=lambda part: part.log_file.base_offset)
    return list(_one_after_the_other(chosen))


def _overlapping(files: Iterable[LogFile], start: int, end: int) -> list[LogFile]:
    return [file for file in files if file.base_offset < end and file.last_offset >= start]


def _one_after_the_other(parts: Sequence[FileSlice]) -> Iterator[FileSlice]:
    """Without the aborted files that a rewritten one reaches around."""
    read_to = -1
    for part in parts:
        if part.log_file.base_offset > read_to:
            yield part
            read_to = part.log_file.last_offset


def present_files(objects: Objects, topic: Topic, parts: Sequence[FileSlice]) -> list[FileSlice]:
    """Without the aborted files that clean-up has taken away."""
    return [
        part
        for part in parts
        if not part.is_aborted
        or objects.exists(f"{topic.prefix(part.partition)}/{part.log_file.file.data_path}")
    ]


def first_offset_at(
    objects: Objects,
    topic: Topic,
    state: PartitionState,
    partition: int,
    time_ms: int,
    isolation_level: IsolationLevel,
) -> int | None:
    """The offset of the first record that is at least so new; None where a reader of this isolation gets none."""
    end = end_of(state, isolation_level)
    parts = choose_files(state, partition, state.log_start_offset, end, isolation_level)
    for part in present_files(objects, topic, parts):
        if part.log_file.max_timestamp < time_ms:
            continue
        for table in read_slice(objects, topic, part, [OFFSET, TIMESTAMP]):
            late = table.column(TIMESTAMP).cast(pa.int64()).to_numpy() >= time_ms
            if late.any():
                return int(table.column(OFFSET).to_numpy()[late][0])
    return None


def check_start(state: PartitionState, topic: str, partition: int, offset: int) -> None:
    """Raise unless a read may begin there: from the log's start to its end."""
    if not state.log_start_offset <= offset <= state.high_watermark:
        raise OffsetOutOfRangeError(
            f"offset {offset} of {topic}-{partition}",
            expected=f"{state.log_start_offset} to {state.high_watermark}",
        )


def read_slice(
    objects: Objects, topic: Topic, part: FileSlice, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The records of a file that belong to the read, in parts as `read_data_file` has them; none for none."""
    prefix = topic.prefix(part.partition)
    if part.is_whole:
        yield from read_data_file(
            objects, prefix, part.log_file, topic.schemas, part.partition, columns, topic=topic.name
        )
        return
    wanted = None if columns is None else list(dict.fromkeys([*columns, OFFSET]))
    tables = read_data_file(
        objects, prefix, part.log_file, topic.schemas, part.partition, wanted, topic=topic.name
    )
    for table in tables:
        inside = between(table, part.start_offset, part.end_offset)
        if inside.num_rows:
            yield inside if columns is None else inside.select(list(columns))


class SmallFiles:
    """The small files of a topic, read one after the other for one read: many of them become one table.

    Files that are written alike have the same footer but for two numbers, so Arrow reads two of them, and the values of
    those that follow are cut out of their bytes (`storage/known_parquet.py`). Threads may share it.
    """

    def __init__(self, objects: Objects, topic: Topic, columns: Sequence[str] | None) -> None:
        self._objects = objects
        self._topic = topic
        self._columns = columns
        self._schema = logical_schema(topic.schema, columns)
        self._stored = [name for name in self._schema.names if name not in (PARTITION, OFFSET)]
        self._types = [(name, self._schema.field(name).type) for name in dict.fromkeys(self._stored)]
        self._known = KnownParquet(self._stored)

    @staticmethod
    def has(part: FileSlice) -> bool:
        """Whether the file is one of those: all of its records are read, and their offsets are known without it."""
        file = part.log_file
        is_small = file.record_count <= _SMALL_ROWS_MAX and file.file.data_bytes <= _SMALL_BYTES_MAX
        return is_small and part.is_whole and not file.has_gaps

    def read(self, parts: Sequence[FileSlice]) -> Iterator[pa.Table]:
        """The records of these files, in their order. Raises as `read_data_file`."""
        together: list[tuple[FileSlice, list[tuple[Any, ...]]]] = []
        for part in parts:
            data, values = self._known_values(part)
            if values is not None:
                together.append((part, values))
                continue
            yield from self._table(together)
            together = []
            yield from self._read_by_arrow(part, data)
        yield from self._table(together)

    def _known_values(self, part: FileSlice) -> tuple[bytes, list[tuple[Any, ...]] | None]:
        """The object, and each stored column's values where the log names this very object; None: ask Arrow."""
        file, key = part.log_file, self._key(part)
        data = bytes(self._objects.read(key, max_bytes=file.file.data_bytes))
        with store_errors():
            found = self._known.read(data, key) if self._stored else None
            is_the_one = found is not None and stored_checksum(data, key) == file.file.checksum
        if found is None or not is_the_one or len(data) != file.file.data_bytes:
            return data, None
        if any(len(values) != file.record_count for values in found.columns):
            return data, None
        if TIMESTAMP in self._stored:
            times = found.columns[self._stored.index(TIMESTAMP)]
            if min(times) < file.first_timestamp or max(times) > file.max_timestamp:
                return data, None
        return data, found.columns

    def _read_by_arrow(self, part: FileSlice, data: bytes) -> Iterator[pa.Table]:
        def learn(opened: OpenedParquet, table: pa.Table) -> None:
            if [(field.name, field.type) for field in table.schema] == self._types:
                self._known.learn(data, opened, table)

        yield from read_data_file(
            self._objects,
            self._topic.prefix(part.partition),
            part.log_file,
            self._topic.schemas,
            part.partition,
            self._columns,
            topic=self._topic.name,
            data=data,
            on_read=learn,
        )

    def _table(self, together: Sequence[tuple[FileSlice, list[tuple[Any, ...]]]]) -> Iterator[pa.Table]:
        if not together:
            return
        columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        for part, values in together:
            base, rows = part.log_file.base_offset, part.log_file.record_count
            for name, column in zip(self._stored, values, strict=True):
                columns[name] += column
            if OFFSET in columns:
                columns[OFFSET] += range(base, base + rows)
            if PARTITION in columns:
                columns[PARTITION] += [part.partition] * rows
        yield pa.table(
            [pa.array(columns[field.name], field.type) for field in self._schema], schema=self._schema
        )

    def _key(self, part: FileSlice) -> str:
        return f"{self._topic.prefix(part.partition)}/{part.log_file.file.data_path}"


def between(table: pa.Table, start: int, end: int) -> pa.Table:
    """The records with offsets in [start, end) of a file's: a rewritten one has gaps."""
    first, behind = np.searchsorted(table.column(OFFSET).to_numpy(), [start, end])
    return table.slice(first, behind - first)


def rows_of(objects: Objects, topic: Topic, part: FileSlice) -> tuple[int, int]:
    """The rows of a file that belong to the read: the first one, and the one behind the last. Where a bound lies inside
    a file with gaps its offsets are read.
    """
    file = part.log_file
    if part.is_whole:
        return 0, file.record_count
    if not file.has_gaps:
        return part.start_offset - file.base_offset, part.end_offset - file.base_offset
    first = behind = 0
    prefix = topic.prefix(part.partition)
    tables = read_data_file(objects, prefix, file, topic.schemas, part.partition, [OFFSET], topic=topic.name)
    for table in tables:
        offsets = table.column(OFFSET).to_numpy()
        first += int(np.searchsorted(offsets, part.start_offset))
        behind += int(np.searchsorted(offsets, part.end_offset))
    return first, behind


def read_slices(
    objects: Objects, topic: Topic, parts: Sequence[FileSlice], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The records file by file, in the order given."""
    for part in parts:
        yield from read_slice(objects, topic, part, columns)


def empty_table(topic: Topic, columns: Sequence[str] | None = None) -> pa.Table:
    """No records, under the schema of a read."""
    return no_records(logical_schema(topic.schema, columns))
