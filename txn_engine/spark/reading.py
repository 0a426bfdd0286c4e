"""`read_topic`: the committed files of topics as a native Spark DataFrame, and the offsets that it covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from immutables import Map
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, UnknownTopicOrPartitionError
from txn_engine.log.cut_format import Cut
from txn_engine.log.topics import Topic
from txn_engine.quality.rows import FileRows
from txn_engine.reasons import Reason
from txn_engine.scan import TOPIC, SchemaVersion
from txn_engine.schemas.layout import OFFSET, OFFSET_DELTA, PARTITION, TIMESTAMP, Layout, Schemas
from txn_engine.spark.columns import check_same_columns, check_told_apart, read_schema, spark_schema
from txn_engine.spark.evolved import made_of
from txn_engine.spark.file_list import pinned, read_files
from txn_engine.spark.opening import UrlOrEngine, check_classic, opened, read_options
from txn_engine.spark.stamps import Stamps, looked_up, number_files, stamp_files
from txn_engine.spark.uploading import UploadedFile
from txn_engine.types import ConsumerGroupMetadata, IsolationLevel, ScanFile, TopicPartition


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """What a read covers, `start` inclusive, `end` exclusive; with a group, also what a commit of it names.

    `write_topic(offsets=...)` commits `end` for every partition. It pickles, and holds no connection.
    """

    topics: tuple[str, ...]
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    group: ConsumerGroupMetadata | None = None


@dataclass(frozen=True, slots=True)
class TopicRead:
    """A bounded read: `df` may be used as often as needed and always holds the same rows.

    `df` is plain Parquet over whole files to Spark: columns are pruned and predicates pushed down, and `_partition`,
    `_offset`, `_timestamp` and `_topic` cost nothing unless they are selected.
    """

    df: DataFrame
    offsets: ReadOffsets
    record_count: int
    file_count: int


def read_topic(
    spark: SparkSession,
    url_or_engine: UrlOrEngine,
    topic: str | Sequence[str],
    *,
    group_id: str | None = None,
    start: Mapping[TopicPartition, int] | None = None,
    end: Mapping[TopicPartition, int] | None = None,
    start_timestamp: int | None = None,
    end_timestamp: int | None = None,
    isolation_level: IsolationLevel = "read_committed",
    cut: Cut | int | None = None,
    schema_version: SchemaVersion | None = None,
    **connect_kwargs: Any,
) -> TopicRead:
    """What a topic holds from the group's position (else `start`, else its beginning) to `end`, else to its end now.

    read_committed: up to the last stable offset, nothing aborted, each record once. With a group the read begins where
    the group is, or at the earliest record where it never committed (`start` is stronger, partition by partition),
    and `.offsets` names the rows it fetched, so that of two overlapping runs one commits.

    `start_timestamp`, in place of `start`, and `end_timestamp`, in place of `end` (milliseconds since the epoch): in
    every partition the offset of the first record that is as new, as `Consumer.offsets_for_times` has it; the end
    where none is. An older record that stands behind that one is in the read: a time chooses an offset.

    `topic`: a list of names reads them all, with a column `_topic`; their columns must be the same.

    `cut`: what is inside, as of then; `start` and `end` choose a part of it. A group has no position as of then.
    `schema_version`: the columns as of that version of each topic's schema, or (`"cut"`) of when the cut was made; else
    those that it has now.

    Raises:
        UnknownTopicOrPartitionError, OffsetOutOfRangeError: no such topic or bound.
        InvalidRequestError: topics with other columns than the first one's, two starts or two ends; no such cut, or
            one with a group.
        UnstableOffsetCommitError: a transaction with offsets of this group is undecided; try again.
        SparkSessionError: a bucket, and a session without its connector's jars; a session of Spark Connect.
    """
    check_classic(spark, "read_topic")
    with opened(url_or_engine, **connect_kwargs) as engine:
        names = [topic] if isinstance(topic, str) else list(dict.fromkeys(topic))
        if not names:
            raise InvalidRequestError(
                "no topic",
                actor="read_topic",
                expected="a name, or a list of names",
                reason=Reason.BAD_ARGUMENT,
            )
        infos = [engine.logs.topics.look_up(name) for name in names]
        if schema_version is None:
            _checked_columns(spark, infos)
        if cut is not None and group_id is not None:
            raise InvalidRequestError(
                f"group {group_id!r} as of a cut",
                actor="read_topic",
                expected="one of group_id and cut",
                reason=Reason.GROUP_AND_CUT,
            )
        begin, group = dict(start or {}), None
        if cut is None:
            with engine.consumer(group_id=group_id, isolation_level=isolation_level) as consumer:
                consumer.subscribe(names)
                begin = {tp: at.offset for tp, at in consumer.positions().items()} | begin
                group = None if group_id is None else consumer.group_metadata()
        scan = engine.scan(
            names,
            start=begin if start_timestamp is None else start,
            end=end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            isolation_level=isolation_level,
            cut=cut,
            schema_version=schema_version,
        )
        files = [file for file in scan.files() if file.end_row > file.first_row]
        _checked_columns(spark, scan.topics)
        schemas = {info.name: info.schemas for info in scan.topics}
        offsets = ReadOffsets(tuple(names), Map(scan.start_offsets), Map(scan.offsets), group)
        for info in infos:
            if not engine.logs.topics.is_current(info.name, info.incarnation):
                # The look-ups above may have met different topics of that name: positions of one, files of another.
                raise UnknownTopicOrPartitionError(
                    f"topic {info.name!r} was deleted while its read was planned",
                    actor="read_topic",
                    place=engine.url,
                    action="read again, where it was made again",
                    reason=Reason.DELETED_MEANWHILE,
                )
        options = read_options(spark, engine.store) if files else {}
    count = sum(file.end_row - file.first_row for file in files)
    frame = _frame(spark, files, schemas, options, None if isinstance(topic, str) else names)
    return TopicRead(frame, offsets, count, len(files))


def uploaded_rows(
    spark: SparkSession, engine: Engine, topic: Topic, files: Sequence[UploadedFile]
) -> DataFrame:
    """The rows of data files that no entry names yet, as a read of them will have them: all but their offsets."""
    check_told_apart(spark, topic.schema, topic=topic.name)
    listed = [
        ScanFile(
            uri=engine.store.uri(f"{topic.prefix(file.partition)}/{file.data_path}"),
            topic=topic.name,
            partition=file.partition,
            base_offset=0,
            record_count=file.record_count,
            bytes=file.data_bytes,
            first_row=0,
            end_row=file.record_count,
            start_offset=0,
            end_offset=file.record_count,
            schema_version=topic.version,
        )
        for file in files
    ]
    options = read_options(spark, engine.store) if listed else {}
    return _frame(spark, listed, {topic.name: topic.schemas}, options, None).drop(OFFSET)


def part_rows(
    spark: SparkSession, rows: FileRows, uri_of: Callable[[str], str], options: Mapping[str, str]
) -> DataFrame:
    """Files and parts of files as a proof lists them: the topic's columns, `_partition` and `_offset`.

    `uri_of`: what Spark opens a key by. Raises `InvalidRequestError` for a column of a type that Spark has none for.
    """
    listed = [
        ScanFile(
            uri=uri_of(part.key),
            topic="_",
            partition=part.partition,
            base_offset=part.base_offset,
            record_count=2,
            bytes=part.size,
            first_row=0,
            end_row=2 if part.is_whole else 1,
            start_offset=part.start,
            end_offset=part.end,
            schema_version=part.schema_version,
        )
        for part in rows.parts
    ]
    return _frame(spark, listed, {"_": rows.schemas}, options, None).drop(TIMESTAMP)


def _checked_columns(spark: SparkSession, topics: Sequence[Topic]) -> None:
    """Raise for columns that Spark does not have, or does not tell apart, and for topics with others than the first."""
    schemas = {topic.name: spark_schema(topic.schema, topic=topic.name) for topic in topics}
    check_told_apart(spark, topics[0].schema, topic=topics[0].name)
    check_same_columns(schemas)


def _frame(
    spark: SparkSession,
    files: Sequence[ScanFile],
    schemas: Mapping[str, Schemas],
    options: Mapping[str, str],
    topics: Sequence[str] | None,
) -> DataFrame:
    """Whole files as they are; those with a bound inside apart, with a filter; those of another version of a topic's
    schema apart, made into the one that is asked for. `topics`: those that `_topic` tells.
    """
    if not files:
        name, asked = next(iter(schemas.items()))
        schema = spark_schema(asked.arrow, topic=name)
        return spark.createDataFrame([], read_schema(schema, with_topic=topics is not None))
    of_version: dict[tuple[str, int], list[ScanFile]] = {}
    for file in files:
        of_version.setdefault((file.topic, file.schema_version), []).append(file)
    alike: dict[tuple[Layout, Layout], list[ScanFile]] = {}
    for (name, version), found in of_version.items():
        of = schemas[name]
        alike.setdefault((of.layouts[version], of.layout), []).extend(found)
    frames = [
        frame
        for together in alike.values()
        for frame in _frames_of_one_version(spark, together, schemas[together[0].topic], options, topics)
    ]
    return pinned(reduce(DataFrame.unionAll, frames))


def _frames_of_one_version(
    spark: SparkSession,
    files: Sequence[ScanFile],
    schemas: Schemas,
    options: Mapping[str, str],
    topics: Sequence[str] | None,
) -> Iterator[DataFrame]:
    version, name = files[0].schema_version, files[0].topic
    columns = spark_schema(schemas.layouts[version].arrow, topic=name)
    stored = StructType(
        [*columns.fields, StructField(OFFSET_DELTA, LongType()), StructField(TIMESTAMP, TimestampType())]
    )
    made = made_of(schemas, version, topic=name)

    def read(chosen: Sequence[ScanFile], stamps: Stamps, inside: Column | None = None) -> DataFrame:
        frame = read_files(spark, chosen, stamps.millis, stored, options)
        rows = frame if inside is None else frame.where(inside)
        return rows.select(
            *made,
            stamps.partition.alias(PARTITION),
            (stamps.base_offset + sf.col(OFFSET_DELTA)).alias(OFFSET),
            sf.col(TIMESTAMP),
            *([] if topics is None else [stamps.topic.alias(TOPIC)]),
        )

    if whole := [file for file in files if _is_whole(file)]:
        yield read(whole, stamp_files(whole))
    if cut := [file for file in files if not _is_whole(file)]:
        yield read(cut, number_files(cut), _inside(cut))


def _is_whole(file: ScanFile) -> bool:
    return file.first_row == 0 and file.end_row == file.record_count


def _inside(files: Sequence[ScanFile]) -> Column:
    """The rows of files with a bound inside, numbered, that belong to the read.

    What holds for all of the files says nothing new, but it is a range of a stored column: Parquet skips by it.
    """
    firsts = [file.start_offset - file.base_offset for file in files]
    behinds = [file.end_offset - file.base_offset for file in files]
    delta, number = sf.col(OFFSET_DELTA), Stamps.column()
    return (
        (delta >= min(firsts))
        & (delta < max(behinds))
        & (delta >= looked_up(firsts, "bigint", number))
        & (delta < looked_up(behinds, "bigint", number))
    )
