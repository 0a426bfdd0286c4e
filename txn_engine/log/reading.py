"""Choosing the files that a read needs, and reading them: whole files, no row filter (protocol, section 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from txn_engine.errors import OffsetOutOfRangeError
from txn_engine.log.data_files import OFFSET, logical_schema, read_data_file
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.types import IsolationLevel


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A file of a partition, and which of its offsets belong to the read: `start` inclusive, `end` exclusive."""

    partition: int
    log_file: LogFile
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether all records of the file belong to the read."""
        return self.start <= self.log_file.base_offset and self.end > self.log_file.last_offset

    @property
    def first_row(self) -> int:
        """The first row of the file that belongs to the read."""
        return max(self.start - self.log_file.base_offset, 0)

    @property
    def end_row(self) -> int:
        """The row behind the last one that belongs to the read."""
        return min(self.end - self.log_file.base_offset, self.log_file.record_count)


def end_of(state: PartitionState, isolation_level: IsolationLevel) -> int:
    """Where a reader of this isolation has to stop: the LSO, or the high watermark."""
    return state.last_stable_offset if isolation_level == "read_committed" else state.high_watermark


def choose_files(
    state: PartitionState, partition: int, start: int, end: int, isolation_level: IsolationLevel
) -> list[FileSlice]:
    """The files with offsets in [start, end), in offset order; for read_committed none that is aborted or undecided.

    read_uncommitted also gets the files of open and of aborted transactions, as in Kafka, while they are there.
    """
    end = min(end, end_of(state, isolation_level))
    files = [file for base, file in state.live.items() if base < end and file.last_offset >= start]
    if isolation_level == "read_uncommitted":
        files += [file for base, file in state.undecided.items() if base < end and file.last_offset >= start]
        files += [
            dead.log_file
            for base, dead in state.dead.items()
            if dead.status == "aborted" and base < end and dead.log_file.last_offset >= start
        ]
    files.sort(key=lambda file: file.base_offset)
    return [FileSlice(partition, file, start, end) for file in files]


def check_start(state: PartitionState, topic: str, partition: int, offset: int) -> None:
    """Raise unless a read may begin there: from the log's start to its end."""
    if not state.log_start_offset <= offset <= state.high_watermark:
        raise OffsetOutOfRangeError(
            f"offset {offset} of {topic}-{partition}",
            expected=f"{state.log_start_offset} to {state.high_watermark}",
        )


def read_slice(
    objects: Objects, topic: Topic, part: FileSlice, columns: Sequence[str] | None = None
) -> pa.Table:
    """The records of a file that belong to the read."""
    prefix = topic.prefix(part.partition)
    if part.is_whole:
        return read_data_file(objects, prefix, part.log_file, topic.schema, part.partition, columns)
    wanted = None if columns is None else list(dict.fromkeys([*columns, OFFSET]))
    table = read_data_file(objects, prefix, part.log_file, topic.schema, part.partition, wanted)
    table = table.slice(part.first_row, max(part.end_row - part.first_row, 0))
    return table if columns is None else table.select(list(columns))


def read_slices(
    objects: Objects, topic: Topic, parts: Sequence[FileSlice], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The records file by file, in the order given."""
    for part in parts:
        yield read_slice(objects, topic, part, columns)


def empty_table(topic: Topic, columns: Sequence[str] | None = None) -> pa.Table:
    """No records, under the schema of a read."""
    return logical_schema(topic.schema, columns).empty_table()
