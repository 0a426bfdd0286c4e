"""Records of several data files as one file, in their order and each at its own offset; memory stays bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage import encode_parquet_parts
from txn_engine.log.data_files import begun, file_metadata, large_profile, read_data_file
from txn_engine.log.file_versions import file_version
from txn_engine.log.objects import Objects, store_errors
from txn_engine.log.topics import Topic
from txn_engine.protocol.log_time import bounded_time
from txn_engine.protocol.partition import LogFile
from txn_engine.schemas.layout import OFFSET, TIMESTAMP

Begun = TypeVar("Begun")

ROW_GROUP_ROWS = 1 << 17
"""How many rows a row group of a merged file has at most."""
ROW_GROUP_BYTES = 32 << 20
"""A row group of a merged file ends once its rows take this many bytes."""
_AHEAD_FILES = 16
AHEAD_BYTES = 16 << 20
"""How many bytes of files are read ahead of the merging."""


@dataclass(frozen=True, slots=True)
class MergedFile:
    """The bytes of a new file, and what of it the log is told: the first and the last offset, the oldest and the newest
    time.
    """

    data: bytes
    record_count: int
    first_offset: int
    last_offset: int
    first_timestamp: int
    max_timestamp: int


def begun_ahead(
    files: Iterable[LogFile], begin: Callable[[LogFile], Future[Begun]]
) -> Iterator[tuple[LogFile, Future[Begun]]]:
    """The files in their order, with what was begun of each; a few are ahead, of at most about 16 MiB as they are
    stored.
    """
    ahead: deque[tuple[LogFile, Future[Begun]]] = deque()
    size = 0
    try:
        for file in files:
            while ahead and (len(ahead) >= _AHEAD_FILES or size + file.file.data_bytes > AHEAD_BYTES):
                first, future = ahead.popleft()
                size -= first.file.data_bytes
                yield first, future
            ahead.append((file, begin(file)))
            size += file.file.data_bytes
        while ahead:
            yield ahead.popleft()
    finally:
        for _, unread in ahead:
            unread.cancel()


class FileMerger:
    """Reads the files of one partition and writes their records anew.

    In memory at a time: about 16 MiB of input as it is stored, a row group, and the output as it is stored.
    """

    def __init__(self, objects: Objects, executor: Executor, topic: Topic, partition: int) -> None:
        self.objects = objects
        self._executor = executor
        self._topic = topic.held
        self._partition = partition

    @classmethod
    def of_its_columns(
        cls, objects: Objects, executor: Executor, topic: Topic, partition: int, file: LogFile
    ) -> FileMerger:
        """Who writes this file anew with the columns that it has, those too that were dropped since: cuts read them."""
        key = f"{topic.prefix(partition)}/{file.file.data_path}"
        version = file_version(objects, topic, key, file.file.data_bytes)
        return cls(objects, executor, topic.at_version(version), partition)

    def merge(
        self, files: Sequence[LogFile], write_id: str, mask: NDArray[np.bool_] | None = None
    ) -> MergedFile:
        """The data file with the records of `files`, which follow one another in this order; with a mask over all of
        them, with those that it has, one at the least.

        Offsets and timestamps stay as they are; columns are those of the newest version of the schema. Raises
        `CorruptObjectError` unless each file is, byte for byte, the one that the log names.
        """
        layout = self._topic.schemas.layout
        schema = layout.physical
        kept = _Kept(mask)
        with store_errors():
            data = encode_parquet_parts(
                self._row_groups(files, kept),
                schema,
                kind="data",
                metadata=file_metadata(write_id, layout),
                profile=large_profile(schema),
            )
        if mask is not None:
            return MergedFile(data, kept.rows, kept.first_offset, kept.last_offset, kept.oldest, kept.newest)
        oldest = min(file.first_timestamp for file in files)
        newest = max(file.max_timestamp for file in files)
        return MergedFile(data, kept.rows, files[0].base_offset, files[-1].last_offset, oldest, newest)

    def read(
        self, files: Sequence[LogFile], columns: Sequence[str]
    ) -> Iterator[tuple[LogFile, Iterator[pa.Table]]]:
        """These columns of the files' records, file by file, each in parts; a few files are read ahead.

        Raises `CorruptObjectError` unless each file is, byte for byte, the one that the log names.
        """
        for file, future in begun_ahead(files, lambda each: self._executor.submit(self._read, each, columns)):
            yield file, future.result()

    def _row_groups(self, files: Sequence[LogFile], kept: _Kept) -> Iterator[pa.Table]:
        held: list[pa.Table] = []
        rows = size = 0
        read = self.read(files, [*self._topic.schema.names, OFFSET, TIMESTAMP])
        for table in chain.from_iterable(tables for _, tables in read):
            staying = kept.of(table)
            held.append(self._at_deltas(staying, kept.first_offset))
            rows += staying.num_rows
            size += staying.nbytes
            if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
                yield pa.concat_tables(held)
                held, rows, size = [], 0, 0
        if held:
            yield pa.concat_tables(held)

    def _at_deltas(self, table: pa.Table, base_offset: int) -> pa.Table:
        """The file's own columns, with offsets counted from where the merged file begins."""
        deltas = pc.subtract(table.column(OFFSET), pa.scalar(base_offset, pa.int64()))
        columns = [
            *(table.column(name) for name in self._topic.schema.names),
            deltas,
            table.column(TIMESTAMP),
        ]
        return pa.Table.from_arrays(columns, schema=self._topic.schemas.layout.physical)

    def _read(self, file: LogFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        prefix = self._topic.prefix(self._partition)
        schemas = self._topic.schemas
        return begun(
            read_data_file(
                self.objects, prefix, file, schemas, self._partition, columns, topic=self._topic.name
            )
        )


class _Kept:
    """What is kept of records that come in tables, one after the other, and what there is to say of it."""

    def __init__(self, mask: NDArray[np.bool_] | None) -> None:
        self._mask = mask
        self._seen = 0
        self.rows = 0
        self.first_offset = self.last_offset = -1
        self.oldest, self.newest = 2**63, -(2**63)

    def of(self, table: pa.Table) -> pa.Table:
        """What is kept of the next table."""
        staying = table
        if self._mask is not None:
            part = self._mask[self._seen : self._seen + table.num_rows]
            staying = table if part.all() else table.filter(pa.array(part))
        self._seen += table.num_rows
        if staying.num_rows:
            self._note(staying)
        return staying

    def _note(self, staying: pa.Table) -> None:
        offsets, times = staying.column(OFFSET), staying.column(TIMESTAMP).cast(pa.int64()).to_numpy()
        if not self.rows:
            self.first_offset = offsets[0].as_py()
        self.last_offset = offsets[-1].as_py()
        self.rows += staying.num_rows
        self.oldest = min(self.oldest, bounded_time(int(times.min())))
        self.newest = max(self.newest, bounded_time(int(times.max())))
