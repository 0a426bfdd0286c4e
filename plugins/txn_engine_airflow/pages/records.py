"""A few records of a partition, as text; for those who may see records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage import verify_checksum
from txn_engine import Engine
from txn_engine.cli.record_text import plain_columns
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.data_files import OFFSET, OFFSET_DELTA, PARTITION, logical_schema
from txn_engine.log.objects import Objects, store_errors
from txn_engine.log.reading import FileSlice, check_start, choose_files, present_files
from txn_engine.log.topics import Topic
from txn_engine.types import IsolationLevel

RECORDS_MAX = 100
STORED_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES_MAX = 64 * 1024 * 1024
VALUE_CHARS_MAX = 2_000
_ROWS_AT_ONCE = 1_024


@dataclass(frozen=True, slots=True)
class Sample:
    """Records by offset, their values in the order of `columns`; `first` to `end`, exclusive, were asked for."""

    columns: tuple[str, ...]
    records: tuple[tuple[Any, ...], ...]
    first: int
    end: int
    isolation_level: IsolationLevel


@dataclass(frozen=True, slots=True)
class _Part:
    """The row groups of an opened file that may hold wanted records; `bytes` is what they are uncompressed."""

    wanted: FileSlice
    file: pq.ParquetFile
    row_groups: tuple[int, ...]
    bytes: int


def sample(
    engine: Engine, topic: str, partition: int, *, offset: int, count: int, uncommitted: bool
) -> Sample:
    """The records at `count` offsets from `offset` on; fewer where some hold none.

    Reads the row groups that those lie in; refuses with `InvalidRequestError` where the files, or what has to be
    uncompressed of them, are larger than an api-server should load.
    """
    found = engine.logs.topics.look_up(topic)
    found.check_partition(partition)
    state = engine.logs.get(topic, found.incarnation, partition).refresh()
    check_start(state, topic, partition, offset)
    level: IsolationLevel = "read_uncommitted" if uncommitted else "read_committed"
    objects = engine.logs.tools.objects
    chosen = present_files(objects, found, choose_files(state, partition, offset, offset + count, level))
    elsewhere = (
        f"`txn-engine consume {topic} --partition {partition} --isolation-level {level} "
        f"--max-records {offset + count - state.log_start_offset}` reads up to there"
    )
    _refuse_beyond(
        STORED_BYTES_MAX, sum(p.log_file.file.data_bytes for p in chosen), offset, "files", elsewhere
    )
    parts = [_opened(objects, found, part) for part in chosen]
    _refuse_beyond(READ_BYTES_MAX, sum(p.bytes for p in parts), offset, "row groups", elsewhere)
    schema = logical_schema(found.schema)
    table = pa.Table.from_batches([b for part in parts for b in _records(part, schema)], schema=schema)
    columns = plain_columns(table, "text")
    return Sample(
        columns=tuple(table.column_names),
        records=tuple(tuple(_shown(value) for value in row) for row in zip(*columns, strict=True)),
        first=offset,
        end=offset + count,
        isolation_level=level,
    )


def _refuse_beyond(limit: int, size: int, offset: int, of_what: str, elsewhere: str) -> None:
    if size > limit:
        raise InvalidRequestError(
            f"the records at offset {offset} lie in {of_what} of {size >> 20} MiB",
            expected=f"at most {limit >> 20} MiB",
            action=elsewhere,
        )


def _opened(objects: Objects, topic: Topic, part: FileSlice) -> _Part:
    """The file, byte for byte the one that the log names; no record of it is read yet."""
    named = part.log_file.file
    key = f"{topic.prefix(part.partition)}/{named.data_path}"
    data = objects.read(key)
    if len(data) != named.data_bytes:
        raise CorruptObjectError(
            f"{len(data)} bytes", place=key, expected=f"{named.data_bytes}, as the log says"
        )
    with store_errors():
        verify_checksum(data, key)
    try:
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise CorruptObjectError("no readable Parquet file", place=key) from error
    groups = tuple(_needed(file.metadata, part))
    return _Part(part, file, groups, sum(file.metadata.row_group(at).total_byte_size for at in groups))


def _needed(metadata: pq.FileMetaData, part: FileSlice) -> Iterator[int]:
    """The row groups that may hold wanted offsets: by their rows, or in a file with gaps by their statistics."""
    log_file = part.log_file
    first, last = part.start_offset - log_file.base_offset, part.end_offset - 1 - log_file.base_offset
    row = 0
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        low, high = _bounds(group) if log_file.has_gaps else (row, row + group.num_rows - 1)
        row += group.num_rows
        if low <= last and high >= first:
            yield at


def _bounds(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """The first and last offset of a row group, from its file's first; a small file's groups say nothing of that."""
    columns = (group.column(at) for at in range(group.num_columns))
    told = next(column.statistics for column in columns if column.path_in_schema == OFFSET_DELTA)
    if told is None or not told.has_min_max:
        return 0, sys.maxsize
    return cast("int", told.min), cast("int", told.max)


def _records(part: _Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The wanted records, a few rows in memory at a time."""
    wanted = part.wanted
    for whole in part.file.iter_batches(_ROWS_AT_ONCE, row_groups=list(part.row_groups), use_threads=False):
        offsets = whole.column(OFFSET_DELTA).to_numpy() + wanted.log_file.base_offset
        first, behind = np.searchsorted(offsets, [wanted.start_offset, wanted.end_offset])
        batch = whole.slice(first, behind - first)
        own = {
            PARTITION: pa.repeat(pa.scalar(wanted.partition, pa.int32()), len(batch)),
            OFFSET: pa.array(offsets[first:behind]),
        }
        columns = [
            own[field.name] if field.name in own else batch.column(field.name).cast(field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        if behind < len(offsets):
            return


def _shown(value: Any) -> Any:
    """A JSON value, long ones cut. Whole numbers as text: a browser would round large ones."""
    if isinstance(value, bool) or value is None:
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
