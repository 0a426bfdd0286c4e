"""Which rows a task writes, and in which order: so that files have a good size, and statistics that prune."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from txn_engine.arguments import check_flags, checked_texts
from txn_engine.errors import InvalidRequestError
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.spark.open_files import FILE_BYTES

SMALL_FILE_BYTES: Final = 16 << 20
ONE_TASK_BYTES: Final = 2 << 20
"""So little is written by one task before a second has begun."""
FEW_FILES: Final = 16
_MERGED_BYTES: Final = 64 << 20
"""What Spark's adaptive execution makes of a shuffle's small partitions."""
_NO_IDEA_BYTES: Final = 1 << 50
TASKS_ASKED_MAX: Final = 500
"""Up to this many tasks are asked where they would run."""
_ALL: Final = 0xFFFFFFFF
_MIX: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How the caller wants the files.

    sort_within_files: rows of a file in the order of the topic's key (True), or of these columns; rows that are equal
    in them stay in the DataFrame's order.

    by_partition: whether rows are brought together first, those of a partition of the topic to one task: a shuffle.
    None decides: each task writes a file into each partition that it has rows for, and where these would be more than
    16, and more than one a partition, of less than 16 MiB each by Spark's own estimate, there are fewer tasks, if that
    leaves one for each core or if all is less than 2 MiB, else a shuffle. A topic without a key, or of one partition,
    and keys other than int32 and int64, are not shuffled.
    """

    sort_within_files: bool | Sequence[str] = False
    by_partition: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sort_within_files, bool):
            checked_texts("write_topic", "sort_within_files", self.sort_within_files)
        if self.by_partition is not None:
            check_flags("write_topic", by_partition=self.by_partition)

    def check(self, topic: Topic) -> None:
        """Raise `InvalidRequestError` for what this topic cannot have."""
        columns = self.sort_columns(topic)
        unknown = [name for name in columns if name not in topic.schema.names]
        if unknown or (self.sort_within_files is True and not columns):
            raise InvalidRequestError(
                f"sort_within_files {self.sort_within_files!r}",
                actor=f"write_topic to {topic.name!r}",
                expected=f"True for a topic with a key, or columns of {topic.schema.names}",
                reason=Reason.BAD_SORT_COLUMNS,
            )
        if self.by_partition and not _has_spark_hash(topic):
            raise InvalidRequestError(
                f"by_partition for the key {topic.key!r} and {topic.partitions} partitions",
                actor=f"write_topic to {topic.name!r}",
                expected="a key of int32 or int64, and more than one partition",
                reason=Reason.NO_PARTITION_BY_SPARK,
            )

    def sort_columns(self, topic: Topic) -> tuple[str, ...]:
        """The columns to sort by."""
        if isinstance(self.sort_within_files, bool):
            return (topic.key,) if self.sort_within_files and topic.key is not None else ()
        return tuple(self.sort_within_files)

    def arrange(self, df: DataFrame, names: Sequence[str], topic: Topic) -> DataFrame:
        """The DataFrame's rows as they are to be written; `names`: the topic's, of its columns by place.

        A record's place in the DataFrame decides where nothing else does, so records of one key keep their order.
        """
        columns = [df.columns[names.index(name)] for name in self.sort_columns(topic)]
        fewer, shuffled = self._tasks(df, topic)
        if fewer:
            df = df.coalesce(fewer)
        if not shuffled and not columns:
            return df
        placed = df.withColumn("place", sf.monotonically_increasing_id())
        if shuffled:
            key = sf.col(df.columns[names.index(str(topic.key))])
            task = _task_of(key, topic, shuffled // topic.partitions)
            placed = placed.withColumn("task", task).repartitionById(shuffled, "task")
        return placed.sortWithinPartitions(*columns, "place").select(*df.columns)

    def _tasks(self, df: DataFrame, topic: Topic) -> tuple[int, int]:
        """Into how many tasks the present ones are put together, and over how many rows are shuffled; 0: not at all."""
        if self.by_partition is False:
            return 0, 0
        estimate = _estimated_bytes(df)
        if self.by_partition is None:
            tasks = _Tasks.of(df, estimate)
            files_each = 1 if topic.key is None else topic.partitions
            files = tasks.count * files_each
            if tasks.count <= 1 or files <= FEW_FILES or estimate >= files * SMALL_FILE_BYTES:
                return 0, 0
            fewer = max(1, FEW_FILES // files_each)
            if tasks.are_in_order and estimate < ONE_TASK_BYTES:
                return 1, 0
            if tasks.are_in_order and fewer >= _cores(df):
                return fewer, 0
        if not _has_spark_hash(topic):
            return 0, 0
        whole = topic.partitions * FILE_BYTES
        each = 1 if estimate > _NO_IDEA_BYTES else max(1, -(-estimate // whole))
        return 0, topic.partitions * each


@dataclass(frozen=True, slots=True)
class _Tasks:
    """How many tasks will write a DataFrame, and whether Spark puts neighbours together when they are to be fewer.

    It does where no task has a place that it would rather run at. Nothing is run to find out.
    """

    count: int
    are_in_order: bool

    @classmethod
    def of(cls, df: DataFrame, estimate: int) -> Self:
        execution = df._jdf.queryExecution()
        plan = execution.executedPlan()
        if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            most = int(plan.outputPartitioning().numPartitions())
            return cls(min(most, max(1, estimate // _MERGED_BYTES)), are_in_order=False)
        rows = execution.toRdd()
        count = int(rows.getNumPartitions())
        if count > TASKS_ASKED_MAX:
            return cls(count, are_in_order=False)
        parts = rows.partitions()
        placed = any(rows.preferredLocations(parts[number]).nonEmpty() for number in range(count))
        return cls(count, are_in_order=not placed)


def _cores(df: DataFrame) -> int:
    return int(df.sparkSession.sparkContext.defaultParallelism)


def _has_spark_hash(topic: Topic) -> bool:
    if topic.key is None or topic.partitions == 1:
        return False
    return topic.held.schema.field(topic.key).type in (pa.int32(), pa.int64())


def _estimated_bytes(df: DataFrame) -> int:
    """By Spark's optimizer; very many where it has no idea."""
    return int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def _task_of(key: Column, topic: Topic, tasks_each: int) -> Column:
    """A number of a task for each row: `tasks_each` for a partition, and all of a key in one.

    Only where a row is written depends on it: what partition a record belongs to, the executor computes anew. A key of
    a wider type than the topic's, which may not fit, is that of a dead letter.
    """
    partition = sf.coalesce(
        partition_of(key.try_cast("long"), topic.held.schema.field(str(topic.key)).type, topic.partitions),
        (sf.spark_partition_id() % topic.partitions).cast("long"),
    )
    among = sf.pmod(sf.xxhash64(key), sf.lit(tasks_each).cast("long"))
    return (partition * tasks_each + among).cast("int")


def partition_of(key: Column, kind: pa.DataType, partitions: int) -> Column:
    """`choose_partitions` of an int32 or int64 column, as Spark computes it; null for null.

    Kafka's murmur2 over the key's bytes, big-endian. 32 bits are kept in a long, where no product overflows.
    """
    whole = key.cast("long")
    words = [whole] if kind == pa.int32() else [sf.shiftrightunsigned(whole, 32), whole]
    value: Column = sf.lit(_SEED ^ 4 * len(words)).cast("long")
    for word in words:
        mixed = _mixed(_reversed(word))
        value = _mixed(value).bitwiseXOR(_mixed(mixed.bitwiseXOR(sf.shiftright(mixed, 24))))
    value = _mixed(value.bitwiseXOR(sf.shiftright(value, 13)))
    value = value.bitwiseXOR(sf.shiftright(value, 15))
    return value.bitwiseAND(sf.lit(0x7FFFFFFF).cast("long")) % partitions


def _mixed(value: Column) -> Column:
    return (value * sf.lit(_MIX).cast("long")).bitwiseAND(sf.lit(_ALL).cast("long"))


def _reversed(word: Column) -> Column:
    """The lower four bytes, the other way round."""

    def byte(number: int) -> Column:
        return sf.shiftright(word, 8 * number).bitwiseAND(sf.lit(0xFF).cast("long"))

    found = sf.shiftleft(byte(0), 24)
    for number in range(1, 4):
        found = found.bitwiseOR(sf.shiftleft(byte(number), 24 - 8 * number))
    return found
