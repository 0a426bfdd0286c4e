"""`read_topic`: the committed files of a topic as a native Spark DataFrame, and the offsets that it covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from immutables import Map
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from txn_engine.errors import CorruptObjectError, UnknownTopicOrPartitionError
from txn_engine.log.data_files import OFFSET, OFFSET_DELTA, PARTITION, TIMESTAMP
from txn_engine.spark.columns import check_told_apart, read_schema, spark_schema
from txn_engine.spark.file_list import read_files
from txn_engine.spark.opening import UrlOrEngine, opened, read_options
from txn_engine.types import ConsumerGroupMetadata, IsolationLevel, ScanFile, TopicPartition

_FILE = "_file"
_WRITE_ID_CHARS = 32
_AFTER_WRITE_ID_CHARS = len(".parquet")


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
    base_offsets = {_write_id(file): file.base_offset for file in files}
    if len(base_offsets) != len(files):
        raise CorruptObjectError("a data file named twice", actor="read_topic", expected="fresh names")
    stored = StructType(
        [*schema.fields, StructField(OFFSET_DELTA, LongType()), StructField(TIMESTAMP, TimestampType())]
    )
    columns = [_named(name) for name in schema.names]
    columns += [_partition(), _offset(base_offsets), sf.col(TIMESTAMP)]

    def read(chosen: Sequence[ScanFile]) -> DataFrame:
        # A column of its own, below everything else: above a Python function Spark would already be at a later file.
        # (`_metadata.file_path` is no choice: a plan that mentions `_metadata` reads all of it, pruned or not.)
        return read_files(spark, chosen, stored, options).withColumn(_FILE, sf.input_file_name())

    whole = [file for file in files if _is_whole(file)]
    cut = [file for file in files if not _is_whole(file)]
    frames = []
    if whole:
        frames.append(read(whole).select(*columns))
    if cut:
        frames.append(read(cut).where(_inside(cut)).select(*columns))
    return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


def _is_whole(file: ScanFile) -> bool:
    return file.first_row == 0 and file.end_row == file.record_count


def _named(name: str) -> Column:
    return sf.col("`" + name.replace("`", "``") + "`")


def _write_id(file: ScanFile) -> str:
    return file.uri[-_AFTER_WRITE_ID_CHARS - _WRITE_ID_CHARS : -_AFTER_WRITE_ID_CHARS]


def _write_id_column() -> Column:
    """The part of a file's name that no other file has."""
    return sf.substring(_FILE, -_AFTER_WRITE_ID_CHARS - _WRITE_ID_CHARS, _WRITE_ID_CHARS)


def _partition() -> Column:
    """From the path, `.../<partition>/data/<file>`."""
    return sf.substring_index(sf.substring_index(_FILE, "/", -3), "/", 1).cast("int").alias(PARTITION)


def _offset(base_offsets: Mapping[str, int]) -> Column:
    """The file's base offset, looked up by its write id, and the record's place in the file."""

    def offset(delta: pa.Array, write_id: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        ids = write_id.dictionary_encode()
        bases = pa.array([base_offsets[str(key)] for key in ids.dictionary.to_pylist()], pa.int64())
        return pc.add(delta, bases.take(ids.indices))

    # Not that it were random: Spark computes a deterministic one again for every filter on it.
    compute = arrow_udf(offset, LongType()).asNondeterministic()  # type: ignore[call-overload]
    column: Column = compute(sf.col(OFFSET_DELTA), _write_id_column())
    return column.alias(OFFSET)


def _inside(files: Sequence[ScanFile]) -> Column:
    """The rows of files with a bound inside that belong to the read."""
    delta = sf.col(OFFSET_DELTA)
    chosen = sf.lit(False)
    for file in files:
        first, behind = file.start_offset - file.base_offset, file.end_offset - file.base_offset
        rows = (delta >= first) & (delta < behind)
        chosen = chosen | ((_write_id_column() == _write_id(file)) & rows)
    return chosen
