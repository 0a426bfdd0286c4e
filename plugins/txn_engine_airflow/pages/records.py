"""A few records of a partition, as text; for those who may see records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from storage import UNREADABLE, OpenedParquet
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.held import no_records
from txn_engine.log.data_files import Chosen, check_records, logical_schema, open_data_file
from txn_engine.log.objects import Objects
from txn_engine.log.reading import FileSlice, check_start, choose_files, present_files
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import OFFSET, OFFSET_DELTA, PARTITION, TIMESTAMP, TIMESTAMP_TYPE
from txn_engine.suggested import command
from txn_engine.types import IsolationLevel
from txn_engine.value_text import plain_columns

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
    """The row groups of an opened file that may hold wanted records; `bytes` is what they may take in memory, by their
    pages: a footer's word is not taken for it.
    """

    wanted: FileSlice
    key: str
    file: pq.ParquetFile
    chosen: Chosen
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
    reading = command(
        "consume",
        topic,
        partition=partition,
        isolation_level=level,
        max_records=offset + count - state.log_start_offset,
    )
    elsewhere = f"`{reading}` reads up to there"
    _refuse_beyond(
        STORED_BYTES_MAX,
        sum(p.log_file.file.data_bytes for p in chosen),
        offset,
        "files",
        elsewhere,
        Reason.FILES_TOO_LARGE,
    )
    parts = [opened_part(objects, found, part) for part in chosen]
    read_bytes = sum(p.bytes for p in parts)
    _refuse_beyond(READ_BYTES_MAX, read_bytes, offset, "row groups", elsewhere, Reason.ROW_GROUPS_TOO_LARGE)
    schema = logical_schema(found.schema)
    tables = [table for part in parts for table in _records(part, schema)]
    table = pa.concat_tables([no_records(schema), *tables])
    columns = plain_columns(table, "text")
    return Sample(
        columns=tuple(table.column_names),
        records=tuple(tuple(_shown(value) for value in row) for row in zip(*columns, strict=True)),
        first=offset,
        end=offset + count,
        isolation_level=level,
    )


def _refuse_beyond(limit: int, size: int, offset: int, of_what: str, elsewhere: str, reason: Reason) -> None:
    if size > limit:
        raise InvalidRequestError(
            f"the records at offset {offset} lie in {of_what} of {size >> 20} MiB",
            expected=f"at most {limit >> 20} MiB",
            action=elsewhere,
            reason=reason,
        )


def opened_part(objects: Objects, topic: Topic, part: FileSlice) -> _Part:
    """The file, byte for byte the one that the log names; no record of it is read yet."""
    key = f"{topic.prefix(part.partition)}/{part.log_file.file.data_path}"
    columns = [*topic.schema.names, TIMESTAMP]
    opened, chosen = open_data_file(
        objects, key, part.log_file, topic.schemas, columns, topic=topic.name, deltas=True
    )
    groups = tuple(_needed(opened, part))
    return _Part(part, key, opened.file, chosen, groups, sum(opened.row_group_bytes[at] for at in groups))


def _needed(opened: OpenedParquet, part: FileSlice) -> Iterator[int]:
    """The row groups that may hold wanted offsets: by their rows, or in a file with gaps by their statistics."""
    log_file = part.log_file
    first, last = part.start_offset - log_file.base_offset, part.end_offset - 1 - log_file.base_offset
    deltas = [leaf.path for leaf in opened.footer.leaves].index(OFFSET_DELTA)
    row = 0
    for at, group in enumerate(opened.footer.row_groups):
        if log_file.has_gaps:
            low, high = group.chunks[deltas].integers() or (
                0,
                sys.maxsize,
            )  # a small file's groups say nothing
        else:
            low, high = row, row + group.rows - 1
        row += group.rows
        if low <= last and high >= first:
            yield at


def _records(part: _Part, schema: pa.Schema) -> Iterator[pa.Table]:
    """The wanted records, a few rows in memory at a time."""
    wanted, groups = part.wanted, list(part.row_groups)
    try:
        batches = part.file.iter_batches(
            _ROWS_AT_ONCE, row_groups=groups, columns=part.chosen.stored, use_threads=False
        )
        for whole in batches:
            check_records(whole, wanted.log_file, part.key)
            offsets = whole.column(OFFSET_DELTA).to_numpy() + wanted.log_file.base_offset
            first, behind = np.searchsorted(offsets, [wanted.start_offset, wanted.end_offset])
            yield _between(pa.Table.from_batches([whole]), part, offsets, first, behind, schema)
            if behind < len(offsets):
                return
    except UNREADABLE as error:
        raise CorruptObjectError(f"records that cannot be read: {error}", place=part.key) from error


def _between(
    whole: pa.Table, part: _Part, offsets: npt.NDArray[np.int64], first: int, behind: int, schema: pa.Schema
) -> pa.Table:
    """The rows from `first` on and before `behind`, as a read shows them."""
    rows = whole.slice(first, behind - first)
    own: dict[str, pa.Array[Any] | pa.ChunkedArray[Any]] = {
        PARTITION: pa.repeat(pa.scalar(part.wanted.partition, pa.int32()), len(rows)),
        OFFSET: pa.array(offsets[first:behind]),
        TIMESTAMP: rows.column(TIMESTAMP).cast(TIMESTAMP_TYPE),
    }
    columns: list[pa.Array[Any] | pa.ChunkedArray[Any]] = [
        own[field.name] if field.name in own else part.chosen.column(rows, field.name) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _shown(value: Any) -> Any:
    """A JSON value, long ones cut. Whole numbers as text: a browser would round large ones."""
    if isinstance(value, bool) or value is None:
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
