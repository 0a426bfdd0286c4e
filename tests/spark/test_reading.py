"""read_topic gives the rows and offsets of engine.scan, with the speed and the plans of plain Parquet."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import txn_engine
from tests.spark.conftest import PLACE, load, payments
from tests.support.refusals import refused, refused_by_spark
from txn_engine.engine import Engine
from txn_engine.errors import (
    InvalidRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.reasons import Reason
from txn_engine.scan import Scan
from txn_engine.spark import TopicRead, read_topic, register, write_topic
from txn_engine.spark.errors import SPARK_FAILURES, SparkJobError, SparkSessionError, reason
from txn_engine.spark.stamps import MILLIS_MAX, stamp_files
from txn_engine.types import TopicPartition

pytestmark = pytest.mark.spark


def rows(read: TopicRead) -> pa.Table:
    """The rows that Spark reads, in the order and with the types of a scan."""
    return read.df.toArrow().sort_by(PLACE)


def same_rows(spark_rows: pa.Table, scanned: pa.Table) -> None:
    assert spark_rows.column_names == scanned.column_names
    assert spark_rows.cast(scanned.schema).to_pylist() == scanned.sort_by(PLACE).to_pylist()


def plan(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())


def test_it_reads_what_a_scan_reads(spark: SparkSession, ledger: Engine) -> None:
    """A read has all columns of committed transactions with exact decimals, and nothing of aborted and open
    ones."""
    load(ledger, 0, 100)
    load(ledger, 1_000, 50, commit=False)
    load(ledger, 100, 100)
    with ledger.producer(transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", payments(2_000, 10)).result()
        read = read_topic(spark, ledger, "payments")
        scan = ledger.scan("payments")
        same_rows(rows(read), scan.to_table())
        producer.abort_transaction()
    assert sorted(rows(read)["trans_id"].to_pylist()) == list(range(200))
    assert (read.record_count, read.file_count) == (200, 6)
    assert dict(read.offsets.end) == scan.offsets
    assert dict(read.offsets.start) == {TopicPartition("payments", number): 0 for number in range(3)}
    assert dict(read.df.dtypes)["amount"] == "decimal(18,2)"


def test_read_uncommitted_sees_the_rest(spark: SparkSession, ledger: Engine) -> None:
    """read_uncommitted also gives aborted and undecided records, as a scan does."""
    load(ledger, 0, 30)
    load(ledger, 1_000, 50, commit=False)
    read = read_topic(spark, ledger, "payments", isolation_level="read_uncommitted")
    same_rows(rows(read), ledger.scan("payments", isolation_level="read_uncommitted").to_table())


def test_a_compacted_topic(spark: SparkSession, ledger: Engine) -> None:
    """In a merged file with gaps, each record has its own offset, and bounds are offsets."""
    load(ledger, 0, 30)
    load(ledger, 1_000, 50, commit=False)
    load(ledger, 30, 30)
    load(ledger, 60, 30)
    before = ledger.scan("payments").to_table()
    ledger.maintenance.compact("payments", policy=MaintenancePolicy(min_files=2))
    read = read_topic(spark, ledger, "payments")
    assert (read.file_count, read.record_count) == (3, 90)
    same_rows(rows(read), before)
    ends = ledger.scan("payments").offsets
    start, end = dict.fromkeys(ends, 3), {tp: offset - 4 for tp, offset in ends.items()}
    cut = read_topic(spark, ledger, "payments", start=start, end=end)
    scanned = ledger.scan("payments", start=start, end=end).to_table()
    assert 0 < scanned.num_rows == cut.record_count < 90
    same_rows(rows(cut), scanned)


def test_a_read_as_of_a_cut(spark: SparkSession, ledger: Engine) -> None:
    load(ledger, 0, 30)
    load(ledger, 30, 30)
    made = ledger.cut()
    inside = ledger.scan("payments").to_table()
    load(ledger, 60, 30)
    ledger.maintenance.compact("payments", policy=MaintenancePolicy(min_files=2))
    read = read_topic(spark, ledger, "payments", cut=made)
    same_rows(rows(read), inside)
    assert dict(read.offsets.end).items() <= made.offsets.items()
    same_rows(rows(read_topic(spark, ledger, "payments", cut=made.number)), inside)
    with refused(InvalidRequestError, Reason.GROUP_AND_CUT):
        read_topic(spark, ledger, "payments", cut=made, group_id="sums")
    with refused(InvalidRequestError, Reason.CUT_NOT_FOUND):
        read_topic(spark, ledger, "payments", cut=7)


def test_columns_are_pruned_and_predicates_pushed_down(spark: SparkSession, ledger: Engine) -> None:
    """The plan of a query without our own columns is that of plain `spark.read.parquet`, except for the
    files' location."""
    load(ledger, 0, 100)
    files = [file.uri for file in ledger.scan("payments").files()]
    read = read_topic(spark, ledger, "payments").df
    plain = spark.read.schema(read.schema).parquet(*files)

    def query(df: DataFrame) -> DataFrame:
        return df.where("amount > 5 and type = 'PRIJEM'").select("account_id", "amount")

    ours, theirs = plan(query(read)), plan(query(plain))
    for line in (
        "PushedFilters: [IsNotNull(amount), IsNotNull(type), GreaterThan(amount,5.00)",
        "ReadSchema: struct<account_id:bigint,type:string,amount:decimal(18,2)>",
    ):
        assert line in ours
        assert line in theirs
    for foreign in ("Python", "file_path", "row_index", "_offset", "Union"):
        assert foreign not in ours
    count = plan(read.groupBy("account_id").count())
    assert "ReadSchema: struct<account_id:bigint>" in count
    assert "Python" not in count


def test_a_filter_is_pushed_whatever_is_selected(spark: SparkSession, ledger: Engine) -> None:
    """A filter is pushed down even if our own columns are selected, without Python, row numbers or paths."""
    load(ledger, 0, 100)
    df = read_topic(spark, ledger, "payments").df
    for query in (
        df.where("trans_id = 7"),
        df.where("trans_id = 7 and _offset >= 0"),
        df.sort("_offset").limit(3),
    ):
        text = plan(query)
        assert not any(costly in text for costly in ("Python", "file_path", "row_index"))
    assert "EqualTo(trans_id,7)" in plan(df.where("trans_id = 7"))
    assert "EqualTo(trans_id,7)" in plan(df.where("trans_id = 7 and _offset >= 0"))
    assert "ReadSchema: struct<>" in plan(df.groupBy("_partition").count())
    assert "ReadSchema: struct<_offset_delta:bigint>" in plan(df.agg(sf.max("_offset")))


def files_read(df: DataFrame) -> int:
    """The number of files that a query opens, as Spark counts them."""
    execution = df._jdf.queryExecution()
    execution.toRdd().count()
    scans = [node for node in nodes(execution.executedPlan()) if node.nodeName().startswith("Scan parquet")]
    return sum(scan.metrics().apply("numFiles").value() for scan in scans)


def nodes(node: Any) -> Iterator[Any]:
    yield node
    children = node.children()
    for number in range(children.size()):
        yield from nodes(children.apply(number))


def test_files_of_other_partitions_are_not_opened(spark: SparkSession, ledger: Engine) -> None:
    """A filter on `_partition`, or bounds of the read, skip files."""
    for first in range(0, 90, 30):
        load(ledger, first, 30)
    read = read_topic(spark, ledger, "payments")
    assert files_read(read.df) == read.file_count == 9
    assert files_read(read.df.where("_partition = 1")) == 3
    assert files_read(read.df.where("_partition in (0, 2) and trans_id > 5")) == 6
    one = TopicPartition("payments", 1)
    third = sorted(ledger.scan("payments").files(), key=lambda file: (file.partition != 1, file.base_offset))[
        2
    ]
    late = read_topic(spark, ledger, "payments", start={one: third.base_offset})
    assert files_read(late.df.where("_partition = 1")) == 1


@pytest.mark.parametrize("base_offset", [MILLIS_MAX >> 2, (MILLIS_MAX >> 2) + 1, 2**63 - 200])
def test_offsets_beyond_what_a_time_can_carry(
    spark: SparkSession, ledger: Engine, monkeypatch: pytest.MonkeyPatch, base_offset: int
) -> None:
    """Offsets too large for a file's stamp are looked up in another way, with the same result."""
    load(ledger, 0, 60)
    files = list(Scan.files(ledger.scan("payments")))
    far = [
        replace(file, base_offset=base_offset, start_offset=base_offset, end_offset=base_offset + 60)
        for file in files
    ]
    stamps = stamp_files(far)
    assert max(stamps.millis) <= MILLIS_MAX
    assert (max(stamps.millis) == 2) == (base_offset > MILLIS_MAX >> 2)
    monkeypatch.setattr(Scan, "files", lambda _: iter(far))
    read = read_topic(spark, ledger, "payments").df
    seen = {(row["_partition"], row["_offset"]) for row in read.select("_partition", "_offset").collect()}
    assert seen == {
        (file.partition, base_offset + delta) for file in files for delta in range(file.record_count)
    }
    assert read.where(f"_offset = {base_offset} and _partition = 2").count() == 1
    assert files_read(read.where("_partition = 1")) == 1


@pytest.mark.shard("spark")
def test_a_cached_read_is_the_read(spark: SparkSession, ledger: Engine) -> None:
    """A cached read is not used for a read of the same files with other bounds, although Spark finds a cached
    frame by its plan."""
    load(ledger, 0, 60)
    one = TopicPartition("payments", 1)
    first = read_topic(spark, ledger, "payments").df.cache()
    try:
        assert first.count() == 60
        again = read_topic(spark, ledger, "payments", start={one: 5}).df
        assert again.count() == 55
        assert again.agg(sf.min("_offset")).where("1 = 1").collect() == first.agg(sf.min("_offset")).collect()
        same_rows(first.toArrow().sort_by(PLACE), ledger.scan("payments").to_table())
    finally:
        first.unpersist()


def test_few_tasks_for_many_small_files(spark: SparkSession, ledger: Engine) -> None:
    """One task reads many small files, and Spark does not list them before."""
    for first in range(0, 120, 3):
        load(ledger, first, 3)
    read = read_topic(spark, ledger, "payments")
    assert read.file_count > 80
    assert read.df.rdd.getNumPartitions() <= 4
    assert "MetadataLogFileIndex(1 paths)" in plan(read.df)
    assert read.df.count() == 120


@pytest.mark.shard("spark")
def test_our_columns_can_be_used_like_any(spark: SparkSession, ledger: Engine) -> None:
    """`_partition`, `_offset` and `_timestamp` can filter, group, join and sort, each alone or together."""
    load(ledger, 0, 60)
    load(ledger, 60, 60)
    df = read_topic(spark, ledger, "payments").df
    scanned = ledger.scan("payments").to_table()
    offsets = scanned.column("_offset").to_pylist()
    assert df.where("_offset >= 10 and amount > 5").select("trans_id").count() == sum(
        1 for row in scanned.to_pylist() if row["_offset"] >= 10 and row["amount"] > 5
    )
    assert df.agg(sf.sum("_offset")).collect()[0][0] == sum(offsets)
    counts = {row["_partition"]: row["count"] for row in df.groupBy("_partition").count().collect()}
    assert counts == {
        number: scanned.column("_partition").to_pylist().count(number)
        for number in set(scanned.column("_partition").to_pylist())
    }
    twice = df.select("_partition", "_offset").join(
        df.select("_partition", "_offset", "trans_id"), ["_partition", "_offset"]
    )
    assert twice.count() == 120
    assert {stamp["_timestamp"].timestamp() for stamp in df.select("_timestamp").distinct().collect()} == {
        stamp.timestamp() for stamp in set(scanned.column("_timestamp").to_pylist())
    }


def test_bounds_inside_files(spark: SparkSession, ledger: Engine) -> None:
    """`start` and `end` cut the files that they lie in. The files between them stay whole, with their plain
    plan."""
    for first in range(0, 300, 100):
        load(ledger, first, 100)
    ends = ledger.scan("payments").offsets
    start = {TopicPartition("payments", 0): 7}
    end = {tp: at - 9 for tp, at in ends.items() if tp.partition != 2}
    read = read_topic(spark, ledger, "payments", start=start, end=end)
    scan = ledger.scan("payments", start=start, end=end)
    same_rows(rows(read), scan.to_table())
    assert read.record_count == scan.to_table().num_rows
    assert dict(read.offsets.end) == scan.offsets
    assert "Union" in plan(read.df.select("amount"))
    spark.conf.set("spark.sql.maxMetadataStringLength", "10000")  # the filters in full
    inside = plan(read.df.where("trans_id = 7"))
    spark.conf.unset("spark.sql.maxMetadataStringLength")
    assert "GreaterThanOrEqual(_offset_delta,0)" in inside  # of all cut files the earliest row, and the last
    assert "LessThan(_offset_delta," in inside


def test_nothing_to_read(spark: SparkSession, ledger: Engine) -> None:
    """An empty selection is an empty DataFrame of the same schema."""
    empty = read_topic(spark, ledger, "payments")
    load(ledger, 0, 10)
    assert empty.record_count == 0
    assert empty.df.count() == 0
    assert empty.df.dtypes == read_topic(spark, ledger, "payments").df.dtypes


def test_a_group_reads_from_its_position(spark: SparkSession, ledger: Engine) -> None:
    """With a group, the read begins at the group's position, and its offsets name the rows that it
    fetched."""
    load(ledger, 0, 100)
    consumer = ledger.consumer(group_id="balances")
    consumer.subscribe(["payments"])
    while consumer.poll(1_000) is not None:
        pass
    consumer.commit()
    load(ledger, 100, 40)
    read = read_topic(spark, ledger, "payments", group_id="balances")
    assert sorted(rows(read)["trans_id"].to_pylist()) == list(range(100, 140))
    group = read.offsets.group
    assert group is not None
    assert group.group_id == "balances"
    assert set(group.fetched) == set(read.offsets.end)
    assert all(row.row_offset >= 0 for row in group.fetched.values())
    assert pickle.loads(pickle.dumps(read.offsets)) == read.offsets
    with pytest.raises(TypeError):
        read.offsets.end[TopicPartition("payments", 0)] = 0  # type: ignore[index]


def test_pending_offsets_are_not_read_over(spark: SparkSession, ledger: Engine) -> None:
    """While a transaction has pending offsets of the group, a read for that group is refused with a retriable
    error."""
    load(ledger, 0, 10)
    consumer = ledger.consumer(group_id="balances")
    consumer.subscribe(["payments"])
    consumer.poll()
    with ledger.producer(transactional_id="other") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        with pytest.raises(UnstableOffsetCommitError):
            read_topic(spark, ledger, "payments", group_id="balances")
        producer.abort_transaction()


def test_a_missing_file_fails_the_read(spark: SparkSession, ledger: Engine) -> None:
    """A committed file that is missing fails the query with one line that names it. Its rows are never left
    out."""
    load(ledger, 0, 10)
    load(ledger, 10, 10)
    read = read_topic(spark, ledger, "payments")
    gone = Path(ledger.scan("payments").files()[0].uri)
    content = gone.read_bytes()
    gone.unlink()
    with pytest.raises(SPARK_FAILURES) as failed:
        read.df.select("amount").agg(sf.sum("amount")).collect()
    assert gone.name in reason(failed.value)
    assert "\n" not in reason(failed.value)
    gone.write_bytes(content)
    assert read.df.count() == 20


def test_a_path_that_looks_like_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """A store's path may have spaces, glob characters, percent signs and `key=value`, and is never a
    pattern."""
    folder = tmp_path / "a b{c}[d]*%20" / "trans_id=7"
    folder.mkdir(parents=True)
    with txn_engine.connect(str(folder)) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=payments(0, 1).schema)
        load(engine, 0, 20)
        same_rows(rows(read_topic(spark, engine, "payments")), engine.scan("payments").to_table())


def test_all_types(spark: SparkSession, ledger: Engine) -> None:
    """Kafka's own schema, nested, unsigned and naive types are read as Arrow has them. Other types are
    refused."""
    schema = pa.schema(
        [
            pa.field("small", pa.uint16()),
            pa.field("when", pa.timestamp("us")),
            pa.field("at", pa.timestamp("ms", tz="UTC")),
            pa.field("tags", pa.map_(pa.string(), pa.int32())),
            pa.field("odd name.", pa.list_(pa.struct([pa.field("x", pa.float64())]))),
            pa.field("word", pa.large_string()),
        ]
    )
    values = [
        {"small": 65_535, "when": 1, "at": 2, "tags": [("a", 1)], "odd name.": [{"x": 0.5}], "word": None}
    ]
    ledger.admin.create_topic("types", partitions=1, schema=schema)
    ledger.admin.create_topic("kafka", partitions=1)
    ledger.admin.create_topic("nanos", partitions=1, schema=pa.schema([pa.field("t", pa.timestamp("ns"))]))
    with ledger.producer() as producer:
        producer.produce("types", pa.Table.from_pylist(values, schema=schema)).result()
        headers = [{"key": "h", "value": b"\x00"}]
        kafka = ledger.admin.describe_topic("kafka").schema
        producer.produce(
            "kafka", pa.Table.from_pylist([{"key": b"k", "value": b"v", "headers": headers}], schema=kafka)
        ).result()
    for topic in ("types", "kafka"):
        same_rows(rows(read_topic(spark, ledger, topic)), ledger.scan(topic).to_table())
    with refused(InvalidRequestError, Reason.TYPE_UNKNOWN_TO_SPARK):
        read_topic(spark, ledger, "nanos")


def test_a_topic_made_again_while_its_read_is_planned(
    spark: SparkSession, ledger: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a topic is created again while its read is planned, the read is refused, because it would have
    positions of one and files of the other."""
    load(ledger, 0, 10)
    scan = ledger.scan

    def scan_of_another(topics: list[str], **how: Any) -> Scan:
        (topic,) = topics
        schema = ledger.admin.describe_topic(topic).schema
        ledger.admin.delete_topic(topic)
        ledger.admin.create_topic(topic, partitions=3, schema=schema, key="account_id")
        return scan(topics, **how)

    monkeypatch.setattr(ledger, "scan", scan_of_another)
    with refused(UnknownTopicOrPartitionError, Reason.DELETED_MEANWHILE):
        read_topic(spark, ledger, "payments")


def test_columns_that_spark_takes_for_one(spark: SparkSession, ledger: Engine) -> None:
    """Columns whose names differ only in case are refused, unless the session is case-sensitive."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("A", pa.int64())])
    ledger.admin.create_topic("cases", schema=schema)
    ledger.partition("cases", 0).append(pa.table({"a": [1], "b": [2], "A": [3]}, schema=schema))
    with refused(InvalidRequestError, Reason.COLUMN_NAMES_ALIKE):
        read_topic(spark, ledger, "cases")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        same_rows(rows(read_topic(spark, ledger, "cases")), ledger.scan("cases").to_table())
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.sources.useV1SourceList", ""),
        ("spark.sql.sources.useV1SourceList", "csv, orc"),
        ("spark.sql.streaming.fileSink.log.compactInterval", "1"),
    ],
)
def test_a_session_that_reads_parquet_another_way(
    spark: SparkSession, ledger: Engine, setting: str, value: str
) -> None:
    """If a session's setting changes how Parquet is read, the error names the setting."""
    load(ledger, 0, 30)
    before = spark.conf.get(setting)
    assert before is not None
    spark.conf.set(setting, value)
    try:
        with refused(SparkSessionError, Reason.SESSION_SETTING):
            read_topic(spark, ledger, "payments")
    finally:
        spark.conf.set(setting, before)
    assert read_topic(spark, ledger, "payments").df.count() == 30


def test_bad_calls(spark: SparkSession, ledger: Engine) -> None:
    """Unknown topics, bounds that do not exist and stores in memory are refused in one line."""
    with pytest.raises(UnknownTopicOrPartitionError):
        read_topic(spark, ledger, "nowhere")
    with pytest.raises(OffsetOutOfRangeError):
        read_topic(spark, ledger, "payments", start={TopicPartition("payments", 0): 5})
    with pytest.raises(InvalidRequestError):
        read_topic(spark, ledger, "payments", start={TopicPartition("payments", 17): 0})
    with refused(InvalidRequestError, Reason.STORE_IN_MEMORY):
        read_topic(spark, "memory://somewhere", "payments")
    with pytest.raises(PySparkException):
        read_topic(spark, ledger, "payments").df.select("no_such_column")


@pytest.mark.shard("spark")
def test_a_time_that_spark_does_not_reach(spark: SparkSession, ledger: Engine) -> None:
    """Spark counts microseconds. A time of milliseconds that these do not reach fails the read, and one sentence of the
    source and of the engine's own jobs says why."""
    schema = pa.schema([("id", pa.int64()), ("t", pa.timestamp("ms"))])
    for topic in ("far", "copy"):
        ledger.admin.create_topic(topic, partitions=1, schema=schema)
    times = pa.array([0, 2**62], pa.timestamp("ms"))
    ledger.partition("far", 0).append(pa.table({"id": pa.array([1, 2]), "t": times}))
    register(spark)
    source = spark.read.format("txn_engine").options(url=ledger.url, subscribe="far")
    with refused_by_spark(InvalidRecordError, Reason.INEXACT_VALUE):
        source.load().select("t").collect()
    assert source.schema("id bigint").load().count() == 2
    with pytest.raises(SparkJobError, match="292,000 years"):
        write_topic(
            read_topic(spark, ledger, "far").df.select("id", "t"), ledger, "copy", transactional_id="x"
        )
