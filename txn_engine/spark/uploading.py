"""The executors' part of a write: rows to data files, invisible until the driver's transaction names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from storage import ObjectStore
from txn_engine.ids import new_write_id
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.log.uploads import MAX_BATCH_ROWS, slices, upload_records
from txn_engine.producer.partitioner import split_by_key
from txn_engine.protocol.batches import FileRef
from txn_engine.spark.columns import conform_to_topic, spark_schema

BUFFER_BYTES = 128 * 1024 * 1024

_UPLOADED_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("partition", pa.int32()),
    ("data_path", pa.string()),
    ("data_bytes", pa.int64()),
    ("checksum", pa.string()),
    ("record_count", pa.int64()),
    ("first_timestamp", pa.int64()),
    ("max_timestamp", pa.int64()),
]
_UPLOADED_ARROW = pa.schema(_UPLOADED_COLUMNS)
UPLOADED = spark_schema(_UPLOADED_ARROW, topic="")


class UploadedFile(NamedTuple):
    """One data file that a task has put on the store: what it tells the driver."""

    partition: int
    data_path: str
    data_bytes: int
    checksum: str
    record_count: int
    first_timestamp: int
    max_timestamp: int

    def encoded(self) -> EncodedFile:
        """As the producer names it."""
        file = FileRef(self.data_path, self.data_bytes, self.checksum)
        return EncodedFile(file, self.record_count, self.first_timestamp, self.max_timestamp)


@dataclass(frozen=True, slots=True)
class Uploader:
    """The work of a task, in a form that pickles: where to, and under whose name.

    A task that is lost, repeated or speculated leaves files that nobody names; Spark gives the driver the rows of one
    attempt of each task. A file's name carries the driver's producer id and epoch, and the log end that the driver
    saw before any upload, so no other transaction can name it. `columns`: the names of what comes in, by place.
    """

    store: ObjectStore
    topic: Topic
    producer_id: int
    producer_epoch: int
    log_ends: tuple[int, ...]
    timestamp_ms: int
    columns: tuple[str, ...]

    def upload(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: a task's rows in, one row out for each data file that it put on the store."""
        turn = _task_partition() % self.topic.partitions
        try:
            for records in _parts(batches):
                named = records.rename_columns(list(self.columns))
                conformed = conform_to_topic(named, self.topic.schema, topic=self.topic.name)
                split = split_by_key(conformed, self.topic.key, self.topic.partitions, turn)
                uploaded = [self._upload(partition, part)._asdict() for partition, part in split]
                yield pa.RecordBatch.from_pylist(uploaded, schema=_UPLOADED_ARROW)
        finally:
            self.store.close()

    def _upload(self, partition: int, records: pa.Table) -> UploadedFile:
        encoded = upload_records(
            Objects(self.store),
            new_write_id,
            self.topic.prefix(partition),
            records,
            log_end=self.log_ends[partition],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            timestamp_ms=self.timestamp_ms,
        )
        return UploadedFile(
            partition,
            encoded.file.data_path,
            encoded.file.data_bytes,
            encoded.file.checksum,
            encoded.record_count,
            encoded.first_timestamp,
            encoded.max_timestamp,
        )


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in parts of at most `MAX_BATCH_ROWS`, and of not much more than `BUFFER_BYTES`."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if pending and (rows + batch.num_rows > MAX_BATCH_ROWS or size >= BUFFER_BYTES):
            yield from slices(pa.Table.from_batches(pending))
            pending, rows, size = [], 0, 0
        if batch.num_rows:
            pending.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
    if pending:
        yield from slices(pa.Table.from_batches(pending))


def _task_partition() -> int:
    """The number of the DataFrame's partition that this task works on: the same for every attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
