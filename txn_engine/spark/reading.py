"""`read_topic`: the committed files of a topic as a native Spark DataFrame, and the offsets that it covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from immutables import Map
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from txn_engine.errors import UnknownTopicOrPartitionError
from txn_engine.log.data_files import OFFSET, OFFSET_DELTA, PARTITION, TIMESTAMP
from txn_engine.spark.columns import check_told_apart, read_schema, spark_schema
from txn_engine.spark.file_list import pinned, read_files
from txn_engine.spark.opening import UrlOrEngine, opened, read_options
from txn_engine.spark.stamps import Stamps, stamp_files
from txn_engine.types import ConsumerGroupMetadata, IsolationLevel, ScanFile, TopicPartition


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """What a read covers, `start` inclusive, `end` exclusive; with a group, also what a commit of it names.

    `write_topic(offsets=...)` commits `end` for every partition. It pickles, and holds no connection.
    """

    topic: str
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    group: ConsumerGroupMetadata | None = None


@dataclass(frozen=True, slots=True)
class TopicRead:
    """A bounded read of a topic: `df` may be used as often as needed and always holds the same rows.

    `df` is plain Parquet over whole files to Spark: columns are pruned and predicates pushed down, and `_partition`,
    `_offset` and `_timestamp` cost nothing unless they are selected.
    """

    df: DataFrame
    offsets: ReadOffsets
    record_count: int
    file_count: int


def read_topic(
    spark: SparkSession,
    url_or_engine: UrlOrEngine,
    topic: str,
    *,
    group_id: str | None = None,
    start: Mapping[TopicPartition, int] | None = None,
    end: Mapping[TopicPartition, int] | None = None,
    isolation_level: IsolationLevel = "read_committed",
    **connect_kwargs: Any,
) -> TopicRead:
    """What a topic holds from the group's position (else `start`, else its beginning) to `end`, else to its end now.

    read_committed: up to the last stable offset, nothing aborted, each record once. With a group the read begins where
    the group is, or at the earliest record where it never committed (`start` is stronger, partition by partition),
    and `.offsets` names the rows it fetched, so that of two overlapping runs one commits.

    Raises:
        UnknownTopicOrPartitionError, OffsetOutOfRangeError: no such topic or bound.
        UnstableOffsetCommitError: a transaction with offsets of this group is undecided; try again.
        SparkSessionError: an s3:// store, and a session without the S3A jars.
    """
    with opened(url_or_engine, **connect_kwargs) as engine:
        info = engine.logs.topics.look_up(topic)
        schema = spark_schema(info.schema, topic=topic)
        check_told_apart(spark, info.schema, topic=topic)
        with engine.consumer(group_id=group_id, isolation_level=isolation_level) as consumer:
            consumer.subscribe([topic])
            begin = {tp: at.offset for tp, at in consumer.positions().items()} | dict(start or {})
            group = None if group_id is None else consumer.group_metadata()
        scan = engine.scan(topic, start=begin, end=end, isolation_level=isolation_level)
        files = [file for file in scan.files() if file.end_row > file.first_row]
        offsets = ReadOffsets(topic, Map(begin), Map(scan.offsets), group)
        if not engine.logs.topics.is_current(topic, info.incarnation):
            # The look-ups above may have met different topics of that name: positions of one, files of another.
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} was deleted while its read was planned",
                actor="read_topic",
                place=engine.url,
                action="read again, where it was made again",
            )
        options = read_options(spark, engine.store) if files else {}
    count = sum(file.end_row - file.first_row for file in files)
    return TopicRead(_frame(spark, files, schema, options), offsets, count, len(files))


def _frame(
    spark: SparkSession, files: Sequence[ScanFile], schema: StructType, options: Mapping[str, str]
) -> DataFrame:
    """Whole files as they are; those with a bound inside apart, with a filter."""
    if not files:
        return spark.createDataFrame([], read_schema(schema))
    stored = StructType(
        [*schema.fields, StructField(OFFSET_DELTA, LongType()), StructField(TIMESTAMP, TimestampType())]
    )

    def read(chosen: Sequence[ScanFile], *, cut: bool) -> DataFrame:
        stamps = stamp_files(chosen)
        frame = read_files(spark, chosen, stamps.millis, stored, options)
        rows = frame.where(_inside(chosen, stamps)) if cut else frame
        offset = (stamps.base_offset + sf.col(OFFSET_DELTA)).alias(OFFSET)
        return rows.select(
            *map(_named, schema.names), stamps.partition.alias(PARTITION), offset, sf.col(TIMESTAMP)
        )

    whole = [file for file in files if _is_whole(file)]
    cut = [file for file in files if not _is_whole(file)]
    frames = [read(chosen, cut=chosen is cut) for chosen in (whole, cut) if chosen]
    return pinned(frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1]))


def _is_whole(file: ScanFile) -> bool:
    return file.first_row == 0 and file.end_row == file.record_count


def _named(name: str) -> Column:
    return sf.col("`" + name.replace("`", "``") + "`")


def _inside(files: Sequence[ScanFile], stamps: Stamps) -> Column:
    """The rows of files with a bound inside that belong to the read."""
    delta, stamp = sf.col(OFFSET_DELTA), stamps.column()
    chosen = sf.lit(False)
    for file, millis in zip(files, stamps.millis, strict=True):
        first, behind = file.start_offset - file.base_offset, file.end_offset - file.base_offset
        chosen = chosen | ((stamp == millis) & (delta >= first) & (delta < behind))
    return chosen
