"""Choosing the files that a read needs, and reading them: whole files, no row filter (PROTOCOL.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txn_engine.errors import OffsetOutOfRangeError
from txn_engine.log.data_files import logical_schema, read_data_file
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.schemas.layout import OFFSET, TIMESTAMP
from txn_engine.types import IsolationLevel


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
    return logical_schema(topic.schema, columns).empty_table()
