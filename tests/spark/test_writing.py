"""write_topic writes each row once, with the input's offsets, in one transaction or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType

from tests.spark.conftest import balances_of, load, payments, sums
from tests.support.field_ids import field_ids
from tests.support.refusals import refused
from txn_engine.engine import Engine, connect
from txn_engine.errors import (
    InvalidGroupIdError,
    InvalidRecordError,
    InvalidRequestError,
    OffsetsMovedError,
    OffsetsPendingError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.topics import Topic
from txn_engine.producer.partitioner import choose_partitions
from txn_engine.reasons import Reason
from txn_engine.spark import read_topic, register, write_topic, writing
from txn_engine.spark.balances import balances
from txn_engine.spark.errors import SparkJobError
from txn_engine.spark.layout import FileLayout
from txn_engine.spark.uploading import Uploader
from txn_engine.types import TopicPartition

pytestmark = pytest.mark.spark


def small(spark: SparkSession, count: int = 10) -> DataFrame:
    """Rows in the schema of `balances`."""
    return spark.range(count).select(
        sf.col("id").alias("account_id"),
        (sf.col("id") + sf.lit("0.10").cast("decimal(18,2)")).cast("decimal(18,2)").alias("turnover"),
        sf.lit(1).cast("long").alias("payments"),
    )


def data_files(engine: Engine, topic: str) -> int:
    return len(list(Path(engine.url.removeprefix("file://"), "topics", topic).rglob("data/*.parquet")))


def test_rows_and_offsets_go_together(spark: SparkSession, ledger: Engine) -> None:
    """One transaction commits the output and the group's position, and records go to the partitions that a
    producer would choose."""
    load(ledger, 0, 200)
    read = read_topic(spark, ledger, "payments", group_id="balances")
    result = write_topic(
        balances(read.df), ledger, "balances", transactional_id="job", offsets=read.offsets, run_id="monday"
    )
    written = ledger.scan("balances").to_table()
    assert balances_of(ledger) == sums(payments(0, 200))
    ids = {"account_id": 1, "turnover": 2, "payments": 3}
    assert list(field_ids(ledger.store, "balances").values()) == [ids] * result.files
    assert (result.records, result.files) == (7, len(result.batches))
    assert result.partitions == tuple(sorted(set(written.column("_partition").to_pylist())))
    expected = choose_partitions(written.column("account_id").combine_chunks(), 2, 0).tolist()
    assert written.column("_partition").to_pylist() == expected
    assert dict(result.offsets) == dict(read.offsets.end)
    committed = ledger.consumer(group_id="balances").committed(read.offsets.end)
    assert {tp: at.offset for tp, at in committed.items()} == dict(read.offsets.end)
    assert ledger.admin.describe_transaction("job").state == "CompleteCommit"
    again = write_topic(small(spark), ledger, "balances", transactional_id="job", run_id="monday")
    assert again.already_committed
    assert again.records == 0
    assert balances_of(ledger) == sums(payments(0, 200))


@pytest.mark.shard("spark")
def test_runs_that_are_forgotten_and_topics_made_again(
    spark: SparkSession, ledger: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without offsets is refused if the log may have forgotten it. A topic that was created again has no runs
    yet.
    """
    monkeypatch.setattr("txn_engine.protocol.transactions.MAX_RUN_IDS", 1)
    made = ledger.admin.describe_topic("balances")
    with connect(f"file://{tmp_path}/own") as engine:
        engine.admin.create_topic("balances", partitions=2, schema=made.schema, key=made.key)

        def write(run_id: str, **more: Any) -> int:
            options = {"transactional_id": "job", "run_id": run_id, **more}
            return write_topic(small(spark), engine, "balances", **options).records

        assert min(write("monday"), write("tuesday")) > 0
        with refused(InvalidRequestError, Reason.RUN_FORGOTTEN):
            write("monday")
        assert write("wednesday", forgotten_runs="load") > 0
        engine.admin.delete_topic("balances")
        engine.admin.create_topic("balances", partitions=2, schema=made.schema, key=made.key)
        assert write("wednesday", forgotten_runs="load") > 0
        assert write("wednesday") == 0


def test_large_writes_roll_over_to_several_files(
    spark: SparkSession, ledger: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's rows become one file for each partition, and several files if they are more than a part
    holds."""

    class SmallParts(Uploader):
        def upload(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from super().upload(iter([batch]))

    one = write_topic(small(spark, 30_000).coalesce(1), ledger, "balances", transactional_id="job")
    assert one.files == 2
    monkeypatch.setattr(writing, "Uploader", SmallParts)
    several = write_topic(small(spark, 30_000).coalesce(1), ledger, "balances", transactional_id="job")
    assert several.files > 2
    assert several.records == 30_000
    accounts = ledger.scan("balances").to_table(["account_id"]).column("account_id").to_pylist()
    assert sorted(accounts) == sorted([*range(30_000)] * 2)


@pytest.mark.shard("spark")
def test_tasks_split_what_the_topic_does_not_take(spark: SparkSession, ledger: Engine) -> None:
    """Spark's files obey `max.message.bytes` too: rows are split into several files, and a row that is too
    large alone fails the job with the limit, and nothing is visible."""
    ledger.admin.alter_configs({"max.message.bytes": 20_000}, topic="balances")
    written = write_topic(small(spark, 30_000).coalesce(1), ledger, "balances", transactional_id="job")
    assert written.files > 4
    assert max(file.bytes for file in ledger.scan("balances").files()) <= 20_000
    accounts = ledger.scan("balances").to_table(["account_id"]).column("account_id").to_pylist()
    assert sorted(accounts) == [*range(30_000)]
    ledger.admin.alter_configs({"max.message.bytes": 100}, topic="balances")
    with refused(SparkJobError, Reason.ROW_TOO_LARGE):
        write_topic(small(spark), ledger, "balances", transactional_id="job")
    assert ledger.scan("balances").to_table().num_rows == 30_000
    assert not ledger.admin.verify().findings


def test_an_empty_result_still_moves_the_group(spark: SparkSession, ledger: Engine) -> None:
    """If there is no output, the offsets are committed and no file is written."""
    load(ledger, 0, 10)
    read = read_topic(spark, ledger, "payments", group_id="balances")
    result = write_topic(
        balances(read.df.where("amount < 0")),
        ledger,
        "balances",
        transactional_id="job",
        offsets=read.offsets,
    )
    assert (result.records, result.files) == (0, 0)
    assert read_topic(spark, ledger, "payments", group_id="balances").record_count == 0
    assert data_files(ledger, "balances") == 0


@pytest.mark.shard("spark")
def test_a_run_without_rows_may_write_what_comes_late(spark: SparkSession, ledger: Engine) -> None:
    """A run without rows is not remembered, with offsets or without, so it may write later. A run that wrote
    rows is remembered."""
    load(ledger, 0, 10)
    read = read_topic(spark, ledger, "payments", group_id="balances")
    nothing = small(spark).where("account_id < 0")
    for number, (frame, offsets) in enumerate(
        [(nothing, None), (nothing, read.offsets), (small(spark), None)]
    ):
        result = write_topic(
            frame, ledger, "balances", transactional_id="job", run_id="monday", offsets=offsets
        )
        assert (result.already_committed, result.records) == (False, 10 if number == 2 else 0)
    assert read_topic(spark, ledger, "payments", group_id="balances").record_count == 0
    assert write_topic(
        small(spark), ledger, "balances", transactional_id="job", run_id="monday"
    ).already_committed


@pytest.mark.shard("spark")
def test_a_task_that_fails_leaves_only_orphans(
    spark: SparkSession, ledger: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that fails after its upload is tried again: each row is there once, and the first files are
    orphans."""

    class FailsAtFirst(Uploader):
        def upload(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            uploaded = list(super().upload(batches))
            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                raise RuntimeError("this executor is lost")
            yield from uploaded

    monkeypatch.setattr(writing, "Uploader", FailsAtFirst)
    result = write_topic(small(spark, 100).repartition(2), ledger, "balances", transactional_id="job")
    accounts = ledger.scan("balances").to_table(["account_id"]).column("account_id").to_pylist()
    assert sorted(accounts) == list(range(100))
    assert data_files(ledger, "balances") == 2 * result.files
    assert ledger.admin.verify().stats.orphan_files == result.files


def test_a_job_that_fails_leaves_no_transaction(spark: SparkSession, ledger: Engine) -> None:
    """A job that fails for good raises one readable line, opens no transaction, and does not move the
    group."""
    load(ledger, 0, 10)
    read = read_topic(spark, ledger, "payments", group_id="balances")

    def wrong(number: int) -> int:
        raise ValueError(f"cannot do {number}")

    broken = small(spark).withColumn("payments", sf.udf(wrong, "long")("account_id"))
    with pytest.raises(SparkJobError, match=r"ValueError: cannot do \d") as failed:
        write_topic(broken, ledger, "balances", transactional_id="job", offsets=read.offsets)
    assert "\n" not in str(failed.value)
    assert ledger.admin.describe_transaction("job").state == "Empty"
    assert ledger.scan("balances").offsets == {TopicPartition("balances", number): 0 for number in range(2)}
    assert read_topic(spark, ledger, "payments", group_id="balances").record_count == 10


def test_of_two_overlapping_runs_one_commits(spark: SparkSession, ledger: Engine) -> None:
    """Of two runs that read the same range, with any transactional ids, the second is refused and leaves no
    trace."""
    load(ledger, 0, 100)
    first = read_topic(spark, ledger, "payments", group_id="balances")
    second = read_topic(spark, ledger, "payments", group_id="balances")
    write_topic(balances(first.df), ledger, "balances", transactional_id="one", offsets=first.offsets)
    before = ledger.scan("balances").to_table()
    with pytest.raises(OffsetsMovedError) as caught:
        write_topic(balances(second.df), ledger, "balances", transactional_id="two", offsets=second.offsets)
    assert "\n" not in str(caught.value)
    assert ledger.scan("balances").to_table() == before
    assert ledger.admin.describe_transaction("two").state == "CompleteAbort"


@pytest.mark.shard("spark")
def test_a_run_whose_range_is_pending_elsewhere(spark: SparkSession, ledger: Engine) -> None:
    """If another run is about to commit the range, this one is refused with a retriable error and leaves
    nothing."""
    load(ledger, 0, 100)
    read = read_topic(spark, ledger, "payments", group_id="balances")
    other = read_topic(spark, ledger, "payments", group_id="balances").offsets
    assert other.group is not None
    with ledger.producer(transactional_id="other") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(other.end, other.group)
        with pytest.raises(OffsetsPendingError) as caught:
            write_topic(balances(read.df), ledger, "balances", transactional_id="job", offsets=read.offsets)
        assert caught.value.retriable
        producer.abort_transaction()
    assert ledger.scan("balances").to_table().num_rows == 0


def test_a_run_that_was_overtaken_is_fenced(spark: SparkSession, ledger: Engine) -> None:
    """A run cannot commit if a newer run took over its transactional id while its executors worked."""

    def taken_over(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    frame = small(spark).mapInArrow(taken_over, small(spark).schema)
    with ledger.producer(transactional_id="job") as old, ledger.producer(transactional_id="job") as new:
        old.init_transactions()
        new.init_transactions()
        with pytest.raises(ProducerFencedError):
            writing.write_with(ledger, old, {"balances": frame}, offsets=None, run_id=None)
    assert ledger.scan("balances").to_table().num_rows == 0


def test_columns_that_do_not_fit(spark: SparkSession, ledger: Engine) -> None:
    """Missing, unknown, doubled and wrongly typed columns are refused on the driver, before anything is written."""
    good = small(spark)
    bad = {
        "without": (good.drop("payments"), Reason.OTHER_COLUMNS, "payments"),
        "unknown": (good.withColumn("x", sf.lit(1)), Reason.OTHER_COLUMNS, "x"),
        "twice": (good.select("*", "payments"), Reason.OTHER_COLUMNS, "payments"),
        "narrow": (good.withColumn("payments", sf.lit(1)), Reason.TYPE_MISMATCH, "payments"),
        "float": (good.withColumn("turnover", sf.lit(0.5)), Reason.TYPE_MISMATCH, "turnover"),
        "wide": (
            good.withColumn("turnover", sf.col("turnover").cast("decimal(20,2)")),
            Reason.TYPE_MISMATCH,
            "turnover",
        ),
    }
    for name, (frame, reason, column) in bad.items():
        with pytest.raises(InvalidRecordError) as refused:
            write_topic(frame, ledger, "balances", transactional_id="job")
        assert refused.value.reason is reason, name
        assert repr(column) in refused.value.seen, name
    with pytest.raises(UnknownTopicOrPartitionError):
        write_topic(good, ledger, "nowhere", transactional_id="job")
    assert ledger.admin.list_transactions() == []
    assert data_files(ledger, "balances") == 0
    assert write_topic(
        good.select("payments", "turnover", "account_id"), ledger, "balances", transactional_id="job"
    ).records


def test_values_that_do_not_fit(spark: SparkSession, ledger: Engine) -> None:
    """A null in a column that is not nullable, or a value that the topic's type would cut, fails the job. Nothing is
    visible.
    """
    schema = pa.schema(
        [pa.field("at", pa.timestamp("ms", tz="UTC"), nullable=False), pa.field("small", pa.uint8())]
    )
    ledger.admin.create_topic("strict", partitions=1, schema=schema)
    rows = spark.sql("select timestamp'2026-01-01 00:00:00.123' at, smallint(7) small")
    write_topic(rows, ledger, "strict", transactional_id="job")
    for column, value, reason in (
        ("at", "timestamp(null)", Reason.NULL_IN_NOT_NULL),
        ("at", "timestamp'2026-01-01 00:00:00.123456'", Reason.INEXACT_VALUE),
        ("small", "smallint(300)", Reason.INEXACT_VALUE),
    ):
        with refused(SparkJobError, reason):
            write_topic(rows.withColumn(column, sf.expr(value)), ledger, "strict", transactional_id="job")
    assert ledger.scan("strict").to_table().num_rows == 1


def test_bad_calls(spark: SparkSession, ledger: Engine) -> None:
    """Offsets without a group and stores in memory are refused before anything is written."""
    load(ledger, 0, 10)
    read = read_topic(spark, ledger, "payments")
    with refused(InvalidGroupIdError, Reason.NO_GROUP):
        write_topic(small(spark), ledger, "balances", transactional_id="job", offsets=read.offsets)
    with refused(InvalidRequestError, Reason.STORE_IN_MEMORY):
        write_topic(small(spark), "memory://somewhere", "balances", transactional_id="job")


@pytest.mark.shard("spark")
def test_names_that_are_hard_to_look_up(spark: SparkSession, ledger: Engine) -> None:
    """Columns are matched by their position, so a name may have backticks and dots, or differ from another
    only in case."""
    names = ["tick`", "a.b", "x", "X"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    ledger.admin.create_topic("odd", schema=schema)
    given = [names[number] for number in (2, 0, 3, 1)]
    rows = spark.createDataFrame(
        [(3, 1, 4, 2)], StructType([StructField(name, LongType()) for name in given])
    )
    assert write_topic(rows, ledger, "odd", transactional_id="job").records == 1
    assert ledger.scan("odd").to_table().select(names).to_pylist() == [
        dict(zip(names, (1, 2, 3, 4), strict=True))
    ]


def test_a_topic_made_again_meanwhile(spark: SparkSession, ledger: Engine) -> None:
    """Offsets of a topic that was deleted and created again are not committed for the new one."""
    load(ledger, 0, 10)
    read = read_topic(spark, ledger, "payments", group_id="balances")
    ledger.admin.delete_topic("payments")
    ledger.admin.create_topic("payments", partitions=3, schema=payments(0, 1).schema, key="account_id")
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_MADE_AGAIN):
        write_topic(small(spark), ledger, "balances", transactional_id="job", offsets=read.offsets)
    assert ledger.scan("balances").to_table().num_rows == 0


def test_all_types_go_and_come_back(spark: SparkSession, ledger: Engine) -> None:
    """Rows of a topic, with Kafka's columns and nested types, can be written to another topic with the same
    schema."""
    schema = pa.schema(
        [
            pa.field("small", pa.uint16()),
            pa.field("when", pa.timestamp("us")),
            pa.field("tags", pa.map_(pa.string(), pa.int32())),
            pa.field("list", pa.list_(pa.struct([pa.field("x", pa.float64())]))),
            pa.field("word", pa.large_string()),
            pa.field("money", pa.decimal128(38, 10)),
            pa.field("pair", pa.struct([pa.field("a", pa.int32(), nullable=False)])),
            pa.field("pairs", pa.list_(pa.struct([pa.field("a", pa.string(), nullable=False)]))),
        ]
    )
    value = {
        "small": 9,
        "when": 1,
        "tags": [("a", 1)],
        "list": [{"x": 0.5}],
        "word": "w",
        "money": Decimal("0.1"),
        "pair": {"a": 1},
        "pairs": [{"a": "x"}, None],
    }
    for name, kind in (("from", schema), ("to", schema), ("kafka", None), ("kafka2", None)):
        ledger.admin.create_topic(name, partitions=1, schema=kind)
    with ledger.producer() as producer:
        producer.produce("from", pa.Table.from_pylist([value, dict.fromkeys(value)], schema=schema)).result()
        record = {"key": b"k", "value": None, "headers": [{"key": "h", "value": b"\x00"}]}
        kafka = ledger.admin.describe_topic("kafka").schema
        producer.produce("kafka", pa.Table.from_pylist([record], schema=kafka)).result()
    for source, target in (("from", "to"), ("kafka", "kafka2")):
        names = ledger.admin.describe_topic(source).schema.names  # type: ignore[attr-defined]
        frame = read_topic(spark, ledger, source).df.select(*names)
        write_topic(frame, ledger, target, transactional_id="copy")
        assert ledger.scan(target).to_table(names) == ledger.scan(source).to_table(names)


@pytest.mark.shard("spark")
def test_members_of_a_struct_in_another_order(spark: SparkSession, ledger: Engine) -> None:
    """They are found by their names, also inside lists and maps; a member too many is refused."""
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    columns = [("one", kind), ("some", pa.list_(kind)), ("named", pa.map_(pa.string(), kind))]
    ledger.admin.create_topic("pairs", partitions=1, schema=pa.schema(columns))
    pair = "named_struct('b', 'x', 'a', 1L)"
    df = spark.sql(f"SELECT {pair} one, array({pair}, NULL) some, map('k', {pair}) named")
    write_topic(df, ledger, "pairs", transactional_id="job")
    register(spark)
    df.write.format("txn_engine").mode("append").options(url=ledger.url, topic="pairs").save()
    given = {"a": 1, "b": "x"}
    rows = ledger.scan("pairs").to_table(["one", "some", "named"]).to_pylist()
    assert rows == [{"one": given, "some": [given, None], "named": [("k", given)]}] * 2
    wider = df.withColumn("one", sf.expr("named_struct('b', 'x', 'a', 1L, 'c', 2)"))
    with refused(InvalidRecordError, Reason.TYPE_MISMATCH):
        write_topic(wider, ledger, "pairs", transactional_id="job")


def test_the_sessions_settings_are_as_they_were(spark: SparkSession, ledger: Engine) -> None:
    """A write sends small batches without a limit of bytes. It restores the session's own settings at its
    end."""
    records, most = (f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Records", "Bytes"))
    seen: list[tuple[str | None, ...]] = []
    arrange = FileLayout.arrange

    def looking(layout: FileLayout, df: DataFrame, names: Sequence[str], topic: Topic) -> DataFrame:
        seen.append((spark.conf.get(records), spark.conf.get(most)))
        return arrange(layout, df, names, topic)

    before = (spark.conf.get(records), spark.conf.get(most))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileLayout, "arrange", looking)
        write_topic(small(spark), ledger, "balances", transactional_id="job")
        assert seen[0] == ("2000", str(2**31 - 1))
        assert (spark.conf.get(records), spark.conf.get(most)) == before
        with pytest.raises(SparkJobError):
            write_topic(
                small(spark).withColumn("payments", sf.expr("raise_error('no')").cast("long")),
                ledger,
                "balances",
                transactional_id="job",
            )
        assert (spark.conf.get(records), spark.conf.get(most)) == before
        spark.conf.set(records, "77")
        try:
            write_topic(small(spark), ledger, "balances", transactional_id="job")
            assert seen[-1] == ("77", before[1])
            assert spark.conf.get(records) == "77"
        finally:
            spark.conf.unset(records)


def test_a_task_that_runs_twice(spark: SparkSession, ledger: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a task runs twice, like a speculated one, the files of the attempt that Spark counts are named, and
    the others are left for clean-up."""

    class Twice(Uploader):
        __slots__ = ()

        def upload(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            held = list(batches)
            list(Uploader.upload(self, iter(held)))
            yield from Uploader.upload(self, iter(held))

    monkeypatch.setattr(writing, "Uploader", Twice)
    written = write_topic(small(spark, 200), ledger, "balances", transactional_id="twice")
    assert written.records == 200
    ids = ledger.scan("balances").to_table(["account_id"]).column("account_id").to_pylist()
    assert sorted(ids) == list(range(200))
    uploaded = list(Path(ledger.url.removeprefix("file://")).glob("topics/balances/0/*/data/*.parquet"))
    assert len(uploaded) == 2 * written.files
    assert not [found for found in ledger.admin.verify().findings if found.severity == "error"]
