"""Compaction on Spark: tasks read and compare the keys, and each run of files is merged and uploaded by one task.

What is told to the log is decided and said by the driver (`txn_engine.maintain.compaction`), and judged at the append,
as where one process does all of it. A task that is lost, repeated or speculated leaves files that nobody names: each
attempt uploads under a name of its own, and Spark gives the driver the answer of one of them.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StructField, StructType

from storage import ObjectStore
from txn_engine.errors import TxnEngineError
from txn_engine.ids import new_write_id
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.maintain import Compacted, MaintenancePolicy, MaintenanceReport
from txn_engine.maintain.by_size import workers_for
from txn_engine.maintain.chosen import Chosen
from txn_engine.maintain.merged_files import RunMerger
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.neighbours import Run
from txn_engine.maintain.policy import DEFAULT_POLICY
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import By, Merged, Rule
from txn_engine.protocol.partition import LogFile
from txn_engine.reasons import Reason
from txn_engine.spark.errors import SPARK_FAILURES, SparkJobError, failure_of_tasks, reasons_in_text
from txn_engine.spark.opening import UrlOrEngine, check_classic, opened, store_for_executors
from txn_engine.spark.session import check_spark_url
from txn_engine.spark.transfer import quick_transfer
from txn_engine.types import EngineChoice

PART_BYTES = 128 << 20
"""How many bytes of files a task reads the keys of."""
PART_FILES = 1_000
"""How many files a task reads the keys of at most."""
KEYS_A_TASK = 4_000_000
"""How many keys a task compares."""
BATCH_ROWS = 1 << 16
"""How many rows a batch of keys has."""
_CHUNK_BITS = 20
_CHUNK = 1 << _CHUNK_BITS
CHUNKS_A_TASK = 64
"""How many chunks of bits a task makes."""
RUNS_A_SLOT = 4
"""How many runs a task slot merges, one after another."""
_RUNS_AT_ONCE = 256
_READERS = 8
_BITS_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("chunk", pa.int64()),
    ("bits", pa.binary()),
    ("records", pa.int64()),
]
_BITS = pa.schema(_BITS_COLUMNS)
_PARTS = StructType([StructField("part", BinaryType(), nullable=False)])


def compact_topic(
    spark: SparkSession,
    url_or_engine: UrlOrEngine,
    topic: str | None = None,
    partition: int | None = None,
    *,
    policy: MaintenancePolicy = DEFAULT_POLICY,
    engine: EngineChoice = "auto",
    dry_run: bool = False,
    **connect_kwargs: Any,
) -> MaintenanceReport[Compacted]:
    """As `Maintenance.compact`, of one topic or of all: on this session where `engine` is `spark`, or is `auto` and a
    partition is above `policy.spark_above_records` or `policy.spark_above_bytes`; the report says who did it, and why.

    The session must be a classic one (`SparkSessionError`). On a cluster this package has to be installed where the
    executors run. Killed anywhere, or run twice at once, here or in another process, it leaves what it did, and files
    that no entry names, for the clean-up.
    """
    check_classic(spark, "compact_topic")
    workers = workers_for(engine, policy, lambda: SparkWorkers(spark))
    with opened(url_or_engine, **connect_kwargs) as opened_engine:
        return opened_engine.maintenance.compact(
            topic, partition, policy=policy, dry_run=dry_run, workers=workers
        )


class SparkWorkers:
    """Workers on a classic session. They need room on the driver for a bit for each record of a partition, and in a
    task for about three times the size of a merged file; keys are compared, spilled and shuffled by Spark.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @contextmanager
    def every(self, target: Target, topic: Topic, files: Sequence[LogFile]) -> Iterator[SparkSelected]:
        """All the records of these files."""
        with self._selected(target, topic, Chosen(files, None)) as selected:
            yield selected

    @contextmanager
    def latest(self, target: Target, topic: Topic, files: Sequence[LogFile]) -> Iterator[SparkSelected]:
        """Of each key its last record. `SparkJobError` where the job failed after Spark's own retries."""
        reader = KeyReader(_store(target), topic, target.partition)
        with _failures(target):
            bits = latest_bits(self._spark, reader, files)
        with self._selected(target, topic, Chosen(files, bits)) as selected:
            yield selected

    @contextmanager
    def _selected(self, target: Target, topic: Topic, chosen: Chosen) -> Iterator[SparkSelected]:
        """Files that whoever merges has not been given are taken back in the end: no row will name them."""
        selected = SparkSelected(self._spark, target, topic, chosen)
        try:
            yield selected
        except TxnEngineError:
            with suppress(TxnEngineError):  # the error to tell is the one that came first
                selected.take_back()
            raise
        selected.take_back()


class SparkSelected:
    """Records of files, merged by Spark's tasks, several runs at once."""

    by = By("spark", "Spark was asked for")

    def __init__(self, spark: SparkSession, target: Target, topic: Topic, chosen: Chosen) -> None:
        self._spark = spark
        self._target = target
        self._topic = topic
        self._chosen = chosen
        self._made: deque[tuple[Work, tuple[LogFile | None, int]]] = deque()

    @property
    def counts(self) -> Sequence[int]:
        """How many there are of each file."""
        return self._chosen.counts

    def merge(self, runs: Sequence[tuple[int, int]], rule: Rule) -> Iterator[Merged]:
        """A task each, so many together as keep all slots busy; the log is told of them before the next are begun."""
        merger = Merger(_store(self._target), self._topic, self._target.partition, rule)
        context = self._spark.sparkContext
        at_once = min(max(RUNS_A_SLOT * context.defaultParallelism, 1), _RUNS_AT_ONCE)
        for first in range(0, len(runs), at_once):
            works = [self._work(start, end) for start, end in runs[first : first + at_once]]
            with _failures(self._target):
                merged = context.parallelize(works, len(works)).mapPartitions(merger).collect()
            self._made.extend(zip(works, merged, strict=True))
            while self._made:
                work, (output, dropped) = self._made.popleft()
                yield Merged(work.run, output, dropped)

    def take_back(self) -> None:
        """Delete what tasks have put and `merge` has not given."""
        self._target.take_back([output for _, (output, _) in self._made if output is not None])
        self._made.clear()

    def _work(self, start: int, end: int) -> Work:
        mask = self._chosen.mask(start, end)
        return Work(self._chosen.run(start, end), None if mask is None else np.packbits(mask).tobytes())


# --- which records are the latest ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyReader:
    """A task's part of the keys: of files to their records' keys, each with its place among all; it pickles."""

    store: ObjectStore
    topic: Topic
    partition: int

    @property
    def key_type(self) -> pa.DataType:
        """Under which type keys are compared: equal ones, and no others, are equal as the topic's own."""
        kind = self.topic.held.schema.field(self.topic.key or "").type
        return pa.int64() if pa.types.is_integer(kind) else pa.binary()

    def __call__(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: pickled places and files in. Raises `CorruptObjectError` as every reader does."""
        try:
            with reasons_in_text(), ThreadPoolExecutor(_READERS) as pool:
                files = FileMerger(Objects(self.store), pool, self.topic, self.partition)
                for part in parts:
                    for packed in part.column(0):
                        first, run = pickle.loads(packed.as_buffer())
                        yield from self._keys(files, run, first)
        finally:
            self.store.close()

    def _keys(self, files: FileMerger, run: Run, first: int) -> Iterator[pa.RecordBatch]:
        key = self.topic.key or ""
        schema = pa.schema([("key", self.key_type), ("position", pa.int64())])
        for _, tables in files.read(run, [key]):
            for table in tables:
                positions = pa.array(np.arange(first, first + table.num_rows, dtype=np.int64))
                first += table.num_rows
                keys = table.column(key).cast(self.key_type)
                yield from pa.Table.from_arrays([keys, positions], schema=schema).to_batches(BATCH_ROWS)


def latest_bits(spark: SparkSession, reader: KeyReader, files: Sequence[LogFile]) -> NDArray[np.uint8]:
    """A bit for each record of the files, the first the highest of its byte: whether it is its key's last."""
    records = sum(file.record_count for file in files)
    parts = [pickle.dumps(part) for part in _parts(files)]
    kind = "long" if pa.types.is_integer(reader.key_type) else "binary"
    with quick_transfer(spark):
        keys = one_a_task(spark, parts).mapInArrow(reader, f"key {kind}, position long")
        tasks = max(-(-records // KEYS_A_TASK), 1)
        last = (
            keys.repartition(tasks, "key")
            .groupBy("key")
            .agg(sf.max("position").alias("position"), sf.count(sf.lit(1)).alias("records"))
        )
        placed = last.select(
            sf.shiftright("position", _CHUNK_BITS).alias("chunk"),
            sf.col("position").bitwiseAND(_CHUNK - 1).alias("place"),
            "records",
        )
        chunks = placed.repartition(max(-(-records // (_CHUNK * CHUNKS_A_TASK)), 1), "chunk")
        found = chunks.mapInArrow(_packed, "chunk long, bits binary, records long")
        return _gathered(found, records)


def _gathered(found: DataFrame, records: int) -> NDArray[np.uint8]:
    bits = np.zeros(-(-records // _CHUNK) * _CHUNK // 8, np.uint8)
    seen = 0
    for chunk, packed, of in found.toLocalIterator():
        at = chunk * _CHUNK // 8
        bits[at : at + _CHUNK // 8] = np.frombuffer(packed, np.uint8)
        seen += of
    if seen != records:
        # A record whose key is not among them would be left out.
        raise SparkJobError(
            f"keys of {seen} records",
            expected=f"{records}",
            action="nothing was changed",
            reason=Reason.KEYS_LOST,
        )
    return bits[: (records + 7) // 8]


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places of records to bits, a chunk of them at a time; and how many records there were of their keys."""
    chunks: dict[int, NDArray[np.uint8]] = {}
    records: dict[int, int] = {}
    for batch in batches:
        numbers, places, counts = (column.to_numpy() for column in batch.columns)
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            held = chunks.setdefault(number, np.zeros(_CHUNK, np.uint8))
            held[places[mine]] = 1
            records[number] = records.get(number, 0) + int(counts[mine].sum())
    for number, held in chunks.items():
        row = {"chunk": number, "bits": np.packbits(held).tobytes(), "records": records[number]}
        yield pa.RecordBatch.from_pylist([row], schema=_BITS)


def _parts(files: Sequence[LogFile]) -> Iterator[tuple[int, Run]]:
    """The files by task: the place of the first record among all, and files of about so many bytes."""
    first = at = size = 0
    held: list[LogFile] = []
    for file in files:
        if held and (size + file.file.data_bytes > PART_BYTES or len(held) == PART_FILES):
            yield first, tuple(held)
            first, size, held = at, 0, []
        held.append(file)
        size += file.file.data_bytes
        at += file.record_count
    yield first, tuple(held)


def one_a_task(spark: SparkSession, parts: Sequence[bytes]) -> DataFrame:
    """A DataFrame with one part in each of its tasks."""
    rows = spark.sparkContext.parallelize(parts, len(parts)).map(lambda part: (part,))
    return spark.createDataFrame(rows, _PARTS, verifySchema=False)


# --- the merging of a run -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """A run, and the bits of its records that stay, None: all of them."""

    run: Run
    bits: bytes | None

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """A bool for each record."""
        if self.bits is None:
            return None
        records = sum(file.record_count for file in self.run)
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=records).view(np.bool_)


@dataclass(frozen=True, slots=True)
class Merger:
    """A task's work on a run; it pickles."""

    store: ObjectStore
    topic: Topic
    partition: int
    rule: Rule

    def __call__(self, works: Iterable[Work]) -> Iterator[tuple[LogFile | None, int]]:
        """For `mapPartitions`: the new file that is on the store by then, and how many records are not in it."""
        try:
            with reasons_in_text(), ThreadPoolExecutor(_READERS) as pool:
                files = FileMerger(Objects(self.store), pool, self.topic, self.partition)
                merger = RunMerger(files, self.topic, self.partition, new_write_id)
                for work in works:
                    merged = merger.merge(work.run, work.mask, self.rule)
                    yield merged.output, merged.dropped
        finally:
            self.store.close()


def _store(target: Target) -> ObjectStore:
    store = target.objects.store
    check_spark_url(store.url)
    return store_for_executors(store)


@contextmanager
def _failures(target: Target) -> Iterator[None]:
    """What the engine raised in a task is raised here; all else is Spark's."""
    try:
        yield
    except SPARK_FAILURES as error:
        raise failure_of_tasks(
            error,
            actor=f"compaction of {target.topic}-{target.partition} by Spark",
            action="run it again; what was rewritten before stays so",
        ) from error
