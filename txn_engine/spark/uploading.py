"""The executors' part of a write: rows to data files, invisible until the driver's transaction names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from storage import ObjectStore
from txn_engine.ids import new_write_id
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.log.uploads import put_data_file
from txn_engine.producer.partitioner import split_by_key
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.file_names import DataFileName
from txn_engine.spark.columns import conform_to_topic, spark_schema
from txn_engine.spark.dead_letters import LetterTarget, TaskLetters
from txn_engine.spark.errors import reasons_in_text
from txn_engine.spark.open_files import OpenFiles

PART_BYTES = 4 << 20
"""Of rows that are converted and split at once: what a processor's cache holds is moved quicker."""

_UPLOADED_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("partition", pa.int32()),
    ("data_path", pa.string()),
    ("data_bytes", pa.int64()),
    ("checksum", pa.string()),
    ("record_count", pa.int64()),
    ("first_timestamp", pa.int64()),
    ("max_timestamp", pa.int64()),
    ("reasons", pa.string()),
]
_UPLOADED_ARROW = pa.schema(_UPLOADED_COLUMNS)
UPLOADED = spark_schema(_UPLOADED_ARROW, topic="")

RowsOf = Callable[..., Iterator[pa.RecordBatch]]
"""What comes to a task, as rows of the topic; of files that may have bad rows it is also given what takes them."""


class UploadedFile(NamedTuple):
    """One data file that a task has put on the store: what it tells the driver.

    reasons: of a file of dead letters, why, and how many: those that no file before it has told, as JSON.
    """

    partition: int
    data_path: str
    data_bytes: int
    checksum: str
    record_count: int
    first_timestamp: int
    max_timestamp: int
    reasons: str | None = None

    def encoded(self) -> EncodedFile:
        """As the producer names it."""
        file = FileRef(self.data_path, self.data_bytes, self.checksum)
        return EncodedFile(file, self.record_count, self.first_timestamp, self.max_timestamp)


@dataclass(frozen=True, slots=True)
class Uploader:
    """The work of a task, in a form that pickles: where to, and under whose name.

    A task that is lost, repeated or speculated leaves files that nobody names; Spark gives the driver the rows of one
    attempt of each task. A file's name carries the driver's producer id and epoch, and the log end that the driver
    saw before any upload, so no other transaction can name it. `columns`: the names of the rows' columns, by place;
    `rows_of`: makes the rows of what comes in, where that is something else. `letters`: where rows go that do not fit;
    without it they fail the task.
    """

    store: ObjectStore
    topic: Topic
    producer_id: int
    producer_epoch: int
    log_ends: tuple[int, ...]
    timestamp_ms: int
    columns: tuple[str, ...]
    rows_of: RowsOf | None = None
    letters: LetterTarget | None = None

    def upload(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: a task's rows in, one row out for each data file that it put on the store."""
        topic = self.topic
        turn = _task_partition()
        try:
            with reasons_in_text(), ExitStack() as stack:
                files = stack.enter_context(self._open_files(topic, self.log_ends))
                letters = self._task_letters(turn, stack)
                for records in _parts(self._rows(batches, letters)):
                    fitting = self._fitting(records, letters)
                    if fitting.num_rows:
                        split = split_by_key(fitting, topic.key, topic.partitions, turn % topic.partitions)
                        yield from _told(files.write(split, records.nbytes))
                    if letters is not None:
                        yield from _told_letters(letters.told())
                        if letters.are_too_many:
                            break
                yield from _told(files.finish())
                if letters is not None:
                    yield from _told_letters(letters.finish())
            for _ in batches:  # Spark waits until all of it is taken
                pass
        finally:
            self.store.close()

    def _rows(
        self, batches: Iterator[pa.RecordBatch], letters: TaskLetters | None
    ) -> Iterator[pa.RecordBatch]:
        if self.rows_of is None:
            return batches
        return self.rows_of(batches) if letters is None else self.rows_of(batches, letters.taker)

    def _fitting(self, records: pa.Table, letters: TaskLetters | None) -> pa.Table:
        named = records.rename_columns(list(self.columns))
        if letters is not None and self.rows_of is None:
            named = letters.fit(named)
        return conform_to_topic(named, self.topic.schemas, topic=self.topic.name)

    def _task_letters(self, turn: int, stack: ExitStack) -> TaskLetters | None:
        if self.letters is None:
            return None
        to = self.letters.to
        files = stack.enter_context(self._open_files(to.topic, self.letters.log_ends))
        return TaskLetters(
            self.letters, files, for_topic=self.topic, failed_at_ms=self.timestamp_ms, turn=turn
        )

    def _open_files(self, topic: Topic, log_ends: tuple[int, ...]) -> OpenFiles:
        def new_name(partition: int) -> DataFileName:
            return DataFileName(log_ends[partition], self.producer_id, self.producer_epoch, new_write_id())

        def put(partition: int, data: bytes, encoded: EncodedFile) -> None:
            put_data_file(Objects(self.store), topic.prefix(partition), data, encoded)

        return OpenFiles(
            topic.partitions,
            topic.schemas.layout,
            new_name,
            self.timestamp_ms,
            put,
            most_bytes=topic.max_message_bytes,
            topic=topic.name,
        )


def _told_letters(files: Iterator[tuple[tuple[int, EncodedFile], str]]) -> Iterator[pa.RecordBatch]:
    for file, reasons in files:
        yield from _told(iter([file]), reasons)


def _told(files: Iterator[tuple[int, EncodedFile]], reasons: str | None = None) -> Iterator[pa.RecordBatch]:
    """A row for the driver for each file."""
    for partition, encoded in files:
        file = encoded.file
        row = UploadedFile(
            partition,
            file.data_path,
            file.data_bytes,
            file.checksum,
            encoded.record_count,
            encoded.first_timestamp,
            encoded.max_timestamp,
            reasons,
        )
        yield pa.RecordBatch.from_pylist([row._asdict()], schema=_UPLOADED_ARROW)


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in parts that are converted at once, each of one chunk: what is asked of a chunk costs by the call."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
            size += batch.nbytes
        if size >= PART_BYTES:
            yield pa.Table.from_batches(pending).combine_chunks()
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _task_partition() -> int:
    """The number of the DataFrame's partition that this task works on: the same for every attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
