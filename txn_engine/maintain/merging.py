"""The records of several data files as one file, in their order and each at its own offset; memory stays bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future

import pyarrow as pa
import pyarrow.compute as pc

from storage import LARGE, encode_parquet_parts
from txn_engine.log.data_files import OFFSET, TIMESTAMP, physical_schema, read_data_file
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import LogFile

_ROW_GROUP_ROWS = 1 << 17
_ROW_GROUP_BYTES = 32 << 20
_AHEAD_FILES = 16
_AHEAD_BYTES = 16 << 20


class FileMerger:
    """Reads the files of one partition and writes their records anew.

    In memory at a time: about 16 MiB of input as it is stored, a row group, and the output as it is stored.
    """

    def __init__(self, objects: Objects, executor: Executor, topic: Topic, partition: int) -> None:
        self._objects = objects
        self._executor = executor
        self._topic = topic
        self._partition = partition

    def merge(self, files: Sequence[LogFile], write_id: str) -> bytes:
        """The data file that holds the records of `files`, which follow one another in this order.

        Offsets and timestamps stay as they are. Raises `CorruptObjectError` unless each file is, byte for byte, the
        one that the log names.
        """
        return encode_parquet_parts(
            self._row_groups(files),
            physical_schema(self._topic.schema),
            kind="data",
            metadata={"write_id": write_id},
            profile=LARGE,
        )

    def _row_groups(self, files: Sequence[LogFile]) -> Iterator[pa.Table]:
        held: list[pa.Table] = []
        rows = size = 0
        for table in self._read_ahead(files):
            held.append(self._at_deltas(table, files[0].base_offset))
            rows += table.num_rows
            size += table.nbytes
            if rows >= _ROW_GROUP_ROWS or size >= _ROW_GROUP_BYTES:
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
        return pa.Table.from_arrays(columns, schema=physical_schema(self._topic.schema))

    def _read_ahead(self, files: Sequence[LogFile]) -> Iterator[pa.Table]:
        ahead: deque[tuple[LogFile, Future[pa.Table]]] = deque()
        size = 0
        try:
            for file in files:
                while ahead and (len(ahead) >= _AHEAD_FILES or size + file.file.data_bytes > _AHEAD_BYTES):
                    first, future = ahead.popleft()
                    size -= first.file.data_bytes
                    yield future.result()
                ahead.append((file, self._executor.submit(self._read, file)))
                size += file.file.data_bytes
            while ahead:
                yield ahead.popleft()[1].result()
        finally:
            for _, unread in ahead:
                unread.cancel()

    def _read(self, file: LogFile) -> pa.Table:
        schema = self._topic.schema
        prefix = self._topic.prefix(self._partition)
        columns = [*schema.names, OFFSET, TIMESTAMP]
        return read_data_file(self._objects, prefix, file, schema, self._partition, columns)
