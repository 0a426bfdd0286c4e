"""`format("txn_engine")` in a real Spark: batch reads, streams, and the sink."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import txn_engine
from tests.spark.conftest import PLACE, SCHEMA, load, payments
from tests.suite.tiers import in_shard
from tests.support.refusals import refused_by_spark
from txn_engine.engine import Engine
from txn_engine.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.maintain import MaintenancePolicy
from txn_engine.reasons import Reason
from txn_engine.spark import register

pytestmark = pytest.mark.spark

Options = dict[str, str]


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def read(spark: SparkSession, engine: Engine, **options: object) -> DataFrame:
    given = {"url": engine.url, "subscribe": "payments"} | {
        name: str(value) for name, value in options.items()
    }
    if "assign" in options or "subscribePattern" in options:
        del given["subscribe"]
    return spark.read.format("txn_engine").options(**given).load()


def stream(spark: SparkSession, engine: Engine, **options: object) -> DataFrame:
    given = {"url": engine.url, "subscribe": "payments", "startingOffsets": "earliest"}
    given |= {name: str(value) for name, value in options.items()}
    if "subscribePattern" in options:
        del given["subscribe"]
    return spark.readStream.format("txn_engine").options(**given).load()


def copy(
    rows: DataFrame, engine: Engine, checkpoint: Path, *, topic: str = "copies", **options: object
) -> StreamingQuery:
    """Copy everything that is there now, through the sink."""
    given = {"url": engine.url, "topic": topic} | {name: str(value) for name, value in options.items()}
    writer = rows.select(*SCHEMA.names).writeStream.format("txn_engine").options(**given)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def ids(engine: Engine, topic: str = "copies") -> list[int]:
    return sorted(engine.scan(topic).to_table(["trans_id"]).column("trans_id").to_pylist())


# --- batch ------------------------------------------------------------------------------------------------


def test_a_batch_read_is_the_scan(spark: SparkSession, ledger: Engine) -> None:
    """A batch read has each committed record once, with its place, and no aborted ones."""
    load(ledger, 0, 300)
    load(ledger, 300, 50, commit=False)
    load(ledger, 350, 100)
    rows = read(spark, ledger).orderBy("_partition", "_offset").toArrow()
    expected = ledger.scan("payments").to_table().sort_by(PLACE)
    assert rows.column("_topic").unique().to_pylist() == ["payments"]
    for name in (*SCHEMA.names, "_partition", "_offset"):
        assert rows.column(name).to_pylist() == expected.column(name).to_pylist(), name
    stamps = expected.column("_timestamp").cast(pa.timestamp("us", "UTC")).to_pylist()
    assert rows.column("_timestamp").cast(pa.timestamp("us", "UTC")).to_pylist() == stamps


@pytest.mark.parametrize("more", [{}, {"minPartitions": 6}, {"maxRecordsPerPartition": 2}])
def test_bounds_cut_inside_files(spark: SparkSession, ledger: Engine, more: dict[str, int]) -> None:
    """Offsets, -2 and -1 can bound each partition, and the number of tasks does not change the rows."""
    load(ledger, 0, 300)
    ends = {tp.partition: end for tp, end in ledger.scan("payments").offsets.items()}
    start = json.dumps({"payments": {"0": 10, "1": -2, "2": ends[2]}})
    end = json.dumps({"payments": {"0": 15, "1": 3, "2": -1}})
    rows = read(spark, ledger, startingOffsets=start, endingOffsets=end, **more)
    found = sorted((row["_partition"], row["_offset"]) for row in rows.collect())
    assert found == [(0, n) for n in range(10, 15)] + [(1, n) for n in range(3)]


def test_as_many_tasks_as_are_asked_for(spark: SparkSession, ledger: Engine) -> None:
    """A read has at least `minPartitions` tasks, and no task has more than `maxRecordsPerPartition`
    records."""
    load(ledger, 0, 60)
    assert read(spark, ledger, minPartitions=7).rdd.getNumPartitions() >= 7
    per_task = read(spark, ledger, maxRecordsPerPartition=9).rdd.glom().map(len).collect()
    assert max(per_task) <= 9
    assert sum(per_task) == 60


@pytest.mark.shard("spark")
def test_times_bound_a_read(spark: SparkSession, ledger: Engine) -> None:
    """A read begins at the first record of that time or later. A time after the last record is an error, unless the
    strategy `latest` is set.
    """
    load(ledger, 0, 60)
    between = max(ledger.scan("payments").to_table(["_timestamp"]).column(0).cast(pa.int64()).to_pylist()) + 1
    load(ledger, 60, 30)
    assert min(row["trans_id"] for row in read(spark, ledger, startingTimestamp=between).collect()) >= 60
    assert read(spark, ledger, endingTimestamp=between).count() == 60
    late = between + 10**9
    with refused_by_spark(OffsetOutOfRangeError, Reason.NO_RECORD_SINCE) as refused:
        read(spark, ledger, startingTimestamp=late).count()
    assert " payments-0 " in str(refused.value)
    rows = read(spark, ledger, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert rows.count() == 0


@pytest.mark.shard("spark")
def test_several_topics(spark: SparkSession, copies: Engine) -> None:
    """A read takes topics by name or by a pattern, and single partitions. Different columns are refused."""
    load(copies, 0, 90)
    with copies.producer() as producer:
        producer.produce("copies", payments(500, 10)).result()
    by_topic = read(spark, copies, subscribe="payments,copies").groupBy("_topic").count().collect()
    assert {row["_topic"]: row["count"] for row in by_topic} == {"payments": 90, "copies": 10}
    assert read(spark, copies, subscribePattern="pay.*|cop.*").count() == 100
    some = read(spark, copies, assign='{"payments": [1], "copies": [0, 1]}')
    assert {(row["_topic"], row["_partition"]) for row in some.collect()} <= {
        ("payments", 1),
        ("copies", 0),
        ("copies", 1),
    }
    with refused_by_spark(InvalidRequestError, Reason.DIFFERENT_COLUMNS):
        read(spark, copies, subscribe="payments,balances")
    with refused_by_spark(UnknownTopicOrPartitionError, Reason.NO_MATCHING_TOPIC):
        read(spark, copies, subscribePattern="pay")


def test_kafka_s_columns(spark: SparkSession, ledger: Engine) -> None:
    """A notebook for Kafka's source runs after a change of `format`, `url` and `includeKafkaColumns`."""
    ledger.admin.create_topic("events", partitions=2)
    records = pa.table(
        {"key": [b"a", b"b", None], "value": [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']},
    )
    schema = ledger.admin.describe_topic("events").schema
    for field in schema:
        if field.name not in records.schema.names:
            records = records.append_column(field, pa.nulls(3, field.type))
    with ledger.producer() as producer:
        producer.produce("events", records.select(schema.names).cast(schema)).result()
    rows = (
        spark.read.format("txn_engine")
        .option("url", ledger.url)
        .option("subscribe", "events")
        .option("includeKafkaColumns", "true")
        .load()
        .selectExpr(
            "CAST(key AS STRING)",
            "CAST(value AS STRING) AS json",
            "topic",
            "partition",
            "offset",
            "timestampType",
        )
    )
    found = {row["key"]: (row["json"], row["topic"], row["timestampType"]) for row in rows.collect()}
    assert found == {
        "a": ('{"n": 1}', "events", 0),
        "b": ('{"n": 2}', "events", 0),
        None: ('{"n": 3}', "events", 0),
    }
    assert {field.name for field in read(spark, ledger).schema} >= {"_topic", "_offset"}


@pytest.mark.shard("spark")
def test_a_notebook_of_kafkas_source_and_sink(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """A notebook for Kafka's source and sink runs as it is, with another `format` and `url` and with
    `includeKafkaColumns`."""
    for name in ("events", "answers"):
        ledger.admin.create_topic(name, partitions=2)
    url = ledger.url

    written = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "concat('n', id) AS value")
    written.write.format("txn_engine").option("url", url).option("topic", "events").save(mode="append")

    batch = (
        spark.read.format("txn_engine")
        .option("url", url)
        .option("includeKafkaColumns", "true")
        .option("subscribe", "events")
        .option("startingOffsets", """{"events":{"0":3,"1":-2}}""")
        .option("endingOffsets", """{"events":{"0":-1,"1":-1}}""")
        .load()
    )
    assert batch.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "offset").count() == 97

    df = (
        spark.readStream.format("txn_engine")
        .option("url", url)
        .option("includeKafkaColumns", "true")
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40)
        .load()
    )
    for _ in range(2):
        query = (
            df.selectExpr("CAST(key AS STRING)", "upper(CAST(value AS STRING)) AS value")
            .writeStream.format("txn_engine")
            .option("url", url)
            .option("topic", "answers")
            .option("checkpointLocation", str(tmp_path / "ck"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    answers = ledger.scan("answers").to_table(["key", "value", "headers"]).to_pylist()
    assert sorted((row["key"], row["value"]) for row in answers) == sorted(
        (str(number).encode(), f"N{number}".encode()) for number in range(100)
    )
    assert {row["headers"] is None for row in answers} == {True}


@pytest.mark.parametrize(
    "columns",
    in_shard("spark", [["id AS value"], ["'k' AS key"], ["'v' AS value", "'t' AS topic"]], keep=1),
)
def test_what_kafkas_sink_would_not_take(spark: SparkSession, ledger: Engine, columns: list[str]) -> None:
    """A value that is neither text nor bytes, a missing value, and a topic for each row are refused. The
    error names the expected columns."""
    ledger.admin.create_topic("events", partitions=2)
    rows = spark.range(3).selectExpr(*columns)
    writer = rows.write.format("txn_engine").option("url", ledger.url).option("topic", "events")
    with refused_by_spark(InvalidRecordError, Reason.OTHER_COLUMNS) as refused:
        writer.save(mode="append")
    assert "['key', 'value', 'headers']" in str(refused.value)
    assert ledger.scan("events").to_table().num_rows == 0


def test_a_column_of_kafkas_name_in_another_case(spark: SparkSession, ledger: Engine) -> None:
    """A column that has the name of one of Kafka's in another case is refused, because it is the same name to
    Spark."""
    ledger.admin.create_topic("named", schema=pa.schema([("Topic", pa.string())]))
    with refused_by_spark(InvalidRequestError, Reason.COLUMN_OF_KAFKAS_NAME) as refused:
        read(spark, ledger, subscribe="named", includeKafkaColumns="true")
    assert "'Topic'" in str(refused.value)


@pytest.mark.shard("spark")
def test_columns_that_differ_by_case_alone(spark: SparkSession, ledger: Engine) -> None:
    """They are read. Spark refuses to guess which column is meant, until the session is case-sensitive."""
    schema = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    ledger.admin.create_topic("cases", schema=schema)
    ledger.partition("cases", 0).append(pa.table({"a": [1], "A": [3]}, schema=schema))
    assert read(spark, ledger, subscribe="cases").collect()[0][:2] == (1, 3)
    with pytest.raises(AnalysisException) as ambiguous:
        read(spark, ledger, subscribe="cases").select("a")
    assert ambiguous.value.getCondition() == "AMBIGUOUS_REFERENCE"
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert read(spark, ledger, subscribe="cases").select("A", "a").collect() == [(3, 1)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_what_a_write_is_refused_for_is_said_by_name(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """The error is the engine's, not that of pickling. The error of a sink without a topic does not mention views."""
    rows = spark.range(3)
    with refused_by_spark(InvalidRecordError, Reason.OTHER_COLUMNS) as batch:
        rows.write.format("txn_engine").options(url=copies.url, topic="copies").save(mode="append")
    load(copies, 0, 30)
    writer = stream(spark, copies).select("trans_id").writeStream.format("txn_engine")
    writer = writer.options(url=copies.url, topic="copies").option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.trigger(availableNow=True).start()
    with refused_by_spark(InvalidRecordError, Reason.OTHER_COLUMNS) as streamed:
        query.awaitTermination()
    for refused in (batch, streamed):
        assert "'copies'" in str(refused.value)
        assert "Could not serialize" not in str(refused.value)
    with refused_by_spark(InvalidRequestError, Reason.MISSING_OPTION) as no_topic:
        rows.write.format("txn_engine").options(url=copies.url).save(mode="append")
    assert "'topic'" in str(no_topic.value)
    assert "VIEW" not in str(no_topic.value)


def test_sql(spark: SparkSession, ledger: Engine) -> None:
    """SQL can read a topic through a temporary view."""
    load(ledger, 0, 30)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW paid USING txn_engine OPTIONS (url '{ledger.url}', subscribe 'payments')"
    )
    assert spark.sql("SELECT count(*) AS n FROM paid").collect()[0]["n"] == 30
    spark.sql("DROP VIEW paid")


def test_no_table_of_the_catalog(spark: SparkSession, copies: Engine) -> None:
    """CREATE TABLE is refused, because the reads of such a table would lose their options."""
    load(copies, 0, 30)
    options = f"OPTIONS (url '{copies.url}', subscribe 'payments', topic 'copies')"
    create = f"CREATE TABLE paid USING txn_engine {options}"
    for statement, reason in (
        (create, Reason.UNKNOWN_OPTION),
        (f"{create} AS SELECT * FROM range(3)", Reason.MISSING_OPTION),
    ):
        with refused_by_spark(InvalidRequestError, reason) as refused:
            spark.sql(statement)
        assert "CREATE TEMPORARY VIEW" in str(refused.value)
    assert not spark.catalog.tableExists("paid")
    assert ids(copies) == []


@pytest.mark.shard("spark")
def test_a_pruned_read(spark: SparkSession, ledger: Engine) -> None:
    """`.schema(...)` chooses columns by hand, and an unknown column is refused by name."""
    load(ledger, 0, 30)
    reader = spark.read.format("txn_engine").option("url", ledger.url).option("subscribe", "payments")
    assert reader.schema("trans_id long, _offset long").load().count() == 30
    with refused_by_spark(InvalidRequestError, Reason.UNKNOWN_COLUMN) as unknown:
        reader.schema("nope long").load().count()
    assert "'nope'" in str(unknown.value)
    with refused_by_spark(InvalidRequestError, Reason.TYPE_MISMATCH) as mismatch:
        reader.schema("trans_id string").load().count()
    assert "'trans_id'" in str(mismatch.value)


@pytest.mark.parametrize(
    ("options", "kind", "reason", "named"),
    [
        ({"subscribe": "nope"}, UnknownTopicOrPartitionError, None, "'nope'"),
        (
            {"startingOffsets": '{"payments": {"0": 5}}'},
            InvalidRequestError,
            Reason.OTHER_PARTITIONS,
            " payments-1;",
        ),
        (
            {"startingOffsets": '{"payments": {"0": 999, "1": 0, "2": 0}}'},
            OffsetOutOfRangeError,
            Reason.OFFSET_NOT_IN_LOG,
            " 999 of payments-0;",
        ),
        (
            {"kafka.bootstrap.servers": "h:9092"},
            InvalidRequestError,
            Reason.UNKNOWN_OPTION,
            "'kafka.bootstrap.servers'",
        ),
        ({"url": "ledger"}, InvalidRequestError, Reason.BAD_OPTION_VALUE, "'url': 'ledger'"),
    ],
)
def test_bad_input(
    spark: SparkSession,
    ledger: Engine,
    options: Options,
    kind: type[TxnEngineError],
    reason: Reason | None,
    named: str,
) -> None:
    """Each bad option is named in the error."""
    load(ledger, 0, 30)
    with refused_by_spark(kind, reason) as refused:
        read(spark, ledger, **options).count()
    assert named in str(refused.value)


# --- streams ----------------------------------------------------------------------------------------------


def test_a_stream_goes_on_where_it_was(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A stream has each record once over two runs, in batches no larger than the limit, which may cut inside
    files."""
    load(copies, 0, 250)
    query = copy(stream(spark, copies, maxOffsetsPerTrigger=100), copies, tmp_path / "ck")
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert len([count for count in rows if count]) >= 3
    assert max(rows) <= 100
    load(copies, 250, 50)
    load(copies, 300, 50, commit=False)
    copy(stream(spark, copies, maxOffsetsPerTrigger=100), copies, tmp_path / "ck")
    assert ids(copies) == list(range(300))


@pytest.mark.shard("spark")
def test_progress_shows_both_ends(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """Progress has the offsets in Kafka's form, the end of what is committed, and the end of the log."""
    load(copies, 0, 30)
    with copies.producer(transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", payments(30, 30)).result()
        query = copy(stream(spark, copies), copies, tmp_path / "ck")
        source = query.lastProgress["sources"][0]
        latest = source["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        ends = latest.pop("_logEnd")
        assert sum(latest["payments"].values()) < sum(ends["payments"].values())
        producer.abort_transaction()


@pytest.mark.shard("spark")
def test_a_group_follows(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A query with a group commits its positions for anybody who looks at the lag. When the query is started
    again, the group catches up."""
    load(copies, 0, 90)
    for _ in range(2):
        copy(stream(spark, copies, groupId="copier"), copies, tmp_path / "ck")
        load(copies, 1000, 1)
    assert sum(part.committed_offset for part in copies.admin.describe_group("copier").partitions) >= 90


@pytest.mark.shard("spark")
def test_latest_is_where_a_query_began(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """The start options count only once: a query that is started again gets what came while it was
    stopped."""
    load(copies, 0, 90)
    rows = stream(spark, copies, startingOffsets="latest")
    copy(rows, copies, tmp_path / "ck")
    assert ids(copies) == []
    load(copies, 90, 30)
    copy(rows, copies, tmp_path / "ck")
    assert ids(copies) == list(range(90, 120))


@pytest.mark.shard("spark")
def test_a_topic_made_again_is_data_loss(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """This holds even if the new topic is longer than the old one. With `failOnDataLoss` off, the stream continues
    with the new topic.
    """
    load(copies, 0, 30)
    copy(stream(spark, copies), copies, tmp_path / "ck")
    copies.admin.delete_topic("payments")
    copies.admin.create_topic("payments", partitions=3, schema=SCHEMA, key="account_id")
    load(copies, 100, 90)
    with refused_by_spark(OffsetOutOfRangeError, Reason.TOPIC_MADE_AGAIN) as refused:
        copy(stream(spark, copies), copies, tmp_path / "ck")
    assert "failOnDataLoss" in str(refused.value)
    copy(stream(spark, copies, failOnDataLoss="false"), copies, tmp_path / "ck")
    assert ids(copies) == [*range(30), *range(100, 190)]


@pytest.mark.shard("spark")
def test_a_gap_is_no_data_loss(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """Gaps of markers and aborted transactions are not data loss."""
    for first in range(0, 90, 30):
        load(copies, first, 30)
        load(copies, 1000, 10, commit=False)
        copy(stream(spark, copies, maxOffsetsPerTrigger=7), copies, tmp_path / "ck")
    assert ids(copies) == list(range(90))


@pytest.mark.shard("spark")
def test_new_partitions_are_read_from_their_beginning(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """A new partition is read from its beginning, as by Kafka's source."""
    load(copies, 0, 30)
    copy(stream(spark, copies), copies, tmp_path / "ck")
    copies.admin.add_partitions_to_topic("payments", 6)
    load(copies, 30, 60)
    copy(stream(spark, copies), copies, tmp_path / "ck")
    assert ids(copies) == list(range(90))


@pytest.mark.shard("spark")
def test_a_new_topic_whose_log_does_not_begin_at_0(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """A new topic whose first records were removed by retention before the stream saw it is not data loss,
    with a limit too."""
    load(copies, 0, 30)
    rows = stream(spark, copies, subscribePattern="pay.*", maxOffsetsPerTrigger=10)
    copy(rows, copies, tmp_path / "ck")
    copies.admin.create_topic("payments-late", partitions=1, schema=SCHEMA, retention_ms=500)
    with copies.producer() as producer:
        producer.produce("payments-late", payments(100, 500)).result()
    time.sleep(0.8)
    copies.maintenance.retain("payments-late", policy=MaintenancePolicy(trim_step=1))
    with copies.producer() as producer:
        producer.produce("payments-late", payments(700, 25)).result()
    assert copies.partition("payments-late", 0).log_start_offset == 500
    query = copy(rows, copies, tmp_path / "ck")
    assert ids(copies) == [*range(30), *range(700, 725)]
    assert len([1 for progress in query.recentProgress if progress["numInputRows"]]) <= 4


@pytest.mark.shard("spark")
def test_a_small_batch_waits(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """`minOffsetsPerTrigger` holds a batch back, but no longer than `maxTriggerDelay`."""
    load(copies, 0, 30)
    rows = stream(spark, copies, minOffsetsPerTrigger=1000, maxTriggerDelay="1s")
    sink = {"url": copies.url, "topic": "copies", "checkpointLocation": str(tmp_path / "waiting")}
    query = rows.select(*SCHEMA.names).writeStream.format("txn_engine").options(**sink).start()
    try:
        deadline = 60
        while not ids(copies) and deadline:
            query.awaitTermination(1)
            deadline -= 1
    finally:
        query.stop()
    assert ids(copies) == list(range(30))


@pytest.mark.shard("spark")
def test_a_checkpoint_of_another_topic_or_store(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A checkpoint of another topic or another store is refused, and nothing is written."""
    copies.admin.create_topic("refunds", partitions=3, schema=SCHEMA)
    load(copies, 0, 30)
    copy(stream(spark, copies), copies, tmp_path / "ck")
    with refused_by_spark(OffsetOutOfRangeError, Reason.PARTITION_GONE) as gone:
        copy(stream(spark, copies, subscribe="refunds"), copies, tmp_path / "ck")
    assert "payments-0" in str(gone.value)
    with txn_engine.connect(f"file://{tmp_path}/another") as another:
        another.admin.create_topic("payments", partitions=3, schema=SCHEMA, key="account_id")
        load(another, 0, 300)
        with refused_by_spark(InvalidRequestError, Reason.CHECKPOINT_OF_ANOTHER_STORE):
            copy(stream(spark, another), copies, tmp_path / "ck")
    assert ids(copies) == list(range(30))


# --- the sink ---------------------------------------------------------------------------------------------


def test_a_batch_write(spark: SparkSession, copies: Engine) -> None:
    """A batch write is one transaction, which is written once under a run id. Overwriting is refused."""
    load(copies, 0, 90)
    rows = read(spark, copies).select(*SCHEMA.names)
    sink = {"url": copies.url, "topic": "copies"}
    named = sink | {"transactionalId": "copy", "runId": "monday"}
    for _ in range(2):
        rows.write.format("txn_engine").options(**named).mode("append").save()
    assert ids(copies) == list(range(90))
    rows.write.format("txn_engine").options(**sink).mode("append").save()
    assert Counter(ids(copies)) == dict.fromkeys(range(90), 2)
    with refused_by_spark(InvalidRequestError, Reason.APPEND_ONLY):
        rows.write.format("txn_engine").options(**sink).mode("overwrite").save()
    wrong = rows.drop("note").withColumnRenamed("trans_id", "number")
    with refused_by_spark(InvalidRecordError, Reason.OTHER_COLUMNS) as refused:
        wrong.write.format("txn_engine").options(**sink).mode("append").save()
    assert "column 'trans_id' is missing" in str(refused.value)
    assert Counter(ids(copies)) == dict.fromkeys(range(90), 2)


@pytest.mark.shard("spark")
def test_a_batch_without_its_commit_file_is_not_written_twice(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """If Spark died between the transaction's decision and its own commit file, it tries the batch again, and
    nothing is doubled."""
    load(copies, 0, 250)
    rows = stream(spark, copies, maxOffsetsPerTrigger=100)
    copy(rows, copies, tmp_path / "ck")
    commits = sorted((tmp_path / "ck" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (tmp_path / "ck" / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    load(copies, 250, 10)
    copy(rows, copies, tmp_path / "ck")
    assert ids(copies) == list(range(260))


@pytest.mark.shard("spark")
@pytest.mark.parametrize("runs", [2, 3])
def test_an_older_state_of_the_checkpoint(
    spark: SparkSession, copies: Engine, tmp_path: Path, runs: int
) -> None:
    """A checkpoint that was put back by one batch or by several is refused, and nothing is skipped or doubled."""
    ck = tmp_path / "ck"
    rows = stream(spark, copies)
    for number in range(runs):
        load(copies, number * 50, 50)
        copy(rows, copies, ck)
        shutil.copytree(ck, tmp_path / f"state-{number}")
    done = runs * 50
    load(copies, done, 10)
    for number in range(runs - 1):
        shutil.rmtree(ck)
        shutil.copytree(tmp_path / f"state-{number}", ck)
        with refused_by_spark(InvalidTxnStateError, Reason.OLDER_CHECKPOINT):
            copy(rows, copies, ck)
        assert ids(copies) == list(range(done))
    shutil.rmtree(ck)
    shutil.copytree(tmp_path / f"state-{runs - 1}", ck)
    copy(rows, copies, ck)
    assert ids(copies) == list(range(done + 10))


@pytest.mark.shard("spark")
def test_an_older_state_whose_batch_has_as_many_records(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """With a limit every full batch has the same number of records, so the offsets are compared."""
    load(copies, 0, 200)
    rows = stream(spark, copies, maxOffsetsPerTrigger=50)
    copy(rows, copies, tmp_path / "ck")
    before = ids(copies)
    last = max(int(path.name) for path in (tmp_path / "ck" / "commits").glob("[0-9]*"))
    for folder in ("offsets", "commits"):
        for name in (f"{last}", f".{last}.crc", f"{last - 1}", f".{last - 1}.crc"):
            (tmp_path / "ck" / folder / name).unlink(missing_ok=True)
    with copies.producer() as producer:
        producer.produce("payments", payments(1_000, 400), partition=1).result()
    with refused_by_spark(InvalidTxnStateError, Reason.OLDER_CHECKPOINT):
        copy(rows, copies, tmp_path / "ck")
    assert ids(copies) == before


@pytest.mark.shard("spark")
def test_a_batch_that_has_other_rows_the_second_time(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """If a batch has other rows at the second try, as after compaction by key, it is still the same batch and
    is not written again."""
    load(copies, 0, 100)
    copy(stream(spark, copies), copies, tmp_path / "ck")
    for name in ("0", ".0.crc"):
        (tmp_path / "ck" / "commits" / name).unlink(missing_ok=True)
    load(copies, 100, 10)
    copy(stream(spark, copies).where("trans_id % 2 = 0 OR trans_id >= 100"), copies, tmp_path / "ck")
    assert ids(copies) == list(range(110))


@pytest.mark.shard("spark")
def test_a_checkpoint_that_was_moved(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A checkpoint that was moved is refused with its old id, because its last committed micro-batch would be
    written again under a new id."""
    load(copies, 0, 50)
    copy(stream(spark, copies), copies, tmp_path / "ck")
    (tmp_path / "ck" / "commits" / "0").unlink()
    (tmp_path / "ck" / "commits" / ".0.crc").unlink(missing_ok=True)
    shutil.copytree(tmp_path / "ck", tmp_path / "moved")
    with refused_by_spark(InvalidTxnStateError, Reason.QUERY_UNDER_ANOTHER_ID) as refused:
        copy(stream(spark, copies), copies, tmp_path / "moved")
    words = str(refused.value)
    assert ids(copies) == list(range(50))
    (old,) = (
        row.transactional_id
        for row in copies.admin.list_transactions()
        if row.transactional_id in words and "in place of '" + row.transactional_id not in words
    )
    load(copies, 50, 10)
    copy(stream(spark, copies), copies, tmp_path / "moved", transactionalId=old)
    assert ids(copies) == list(range(60))


@pytest.mark.shard("spark")
def test_a_new_checkpoint_under_the_same_id(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A new checkpoint with the id of another query is refused, unless `takeOver` is set. Then the start
    options count again."""
    load(copies, 0, 50)
    copy(stream(spark, copies), copies, tmp_path / "ck")
    shutil.rmtree(tmp_path / "ck")
    with refused_by_spark(InvalidTxnStateError, Reason.ID_OF_ANOTHER_QUERY) as refused:
        copy(stream(spark, copies), copies, tmp_path / "ck")
    assert "takeOver" in str(refused.value)
    assert ids(copies) == list(range(50))
    load(copies, 50, 10)
    ends = {tp.partition: end for tp, end in copies.scan("payments").offsets.items()}
    shutil.rmtree(tmp_path / "ck")
    start = json.dumps({"payments": {str(number): end for number, end in ends.items()}})
    load(copies, 60, 10)
    copy(stream(spark, copies, startingOffsets=start), copies, tmp_path / "ck", takeOver="true")
    load(copies, 70, 10)
    copy(stream(spark, copies), copies, tmp_path / "ck")
    assert ids(copies) == [*range(50), *range(60, 80)]


@pytest.mark.shard("spark")
def test_two_queries_under_one_id(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """Of two queries with one id, the second is refused at its first batch, and the first goes on."""
    load(copies, 0, 50)
    copy(stream(spark, copies), copies, tmp_path / "one", transactionalId="copier")
    with refused_by_spark(InvalidTxnStateError, Reason.ID_OF_ANOTHER_QUERY):
        copy(stream(spark, copies), copies, tmp_path / "two", transactionalId="copier")
    load(copies, 50, 10)
    copy(stream(spark, copies), copies, tmp_path / "one", transactionalId="copier")
    assert ids(copies) == list(range(60))


@pytest.mark.shard("spark")
def test_a_query_that_was_overtaken(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """If another client claims a query's id after the query has planned a batch, the batch's commit is
    refused with what to do."""
    load(copies, 0, 50)
    rows = stream(spark, copies).select(*SCHEMA.names)

    def claim(batches: Any) -> Any:
        with txn_engine.connect(url) as engine, engine.producer(transactional_id="copier") as producer:
            producer.init_transactions()
        yield from batches

    url = copies.url
    overtaken = rows.mapInArrow(claim, rows.schema)
    with refused_by_spark(ProducerFencedError, Reason.QUERY_OVERTAKEN):
        copy(overtaken, copies, tmp_path / "ck", transactionalId="copier")
    assert ids(copies) == []


@pytest.mark.shard("spark")
def test_tasks_that_fail_leave_nothing(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A task that fails after it has read is tried again, and its first upload is not named."""
    load(copies, 0, 200)
    marks = tmp_path / "marks"
    marks.mkdir()

    def fails_once(batches: Any) -> Any:
        yield from batches
        try:
            (marks / "failed").touch(exist_ok=False)
        except FileExistsError:
            return
        raise RuntimeError("this task fails")

    rows = stream(spark, copies).select(*SCHEMA.names)
    copy(rows.mapInArrow(fails_once, rows.schema), copies, tmp_path / "ck")
    assert (marks / "failed").exists()
    assert ids(copies) == list(range(200))


@pytest.mark.shard("spark")
def test_columns_that_changed_under_a_query(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """If a topic is created again with other columns, its query ends with one sentence."""
    load(copies, 0, 30)
    rows = stream(spark, copies, failOnDataLoss="false")
    copy(rows, copies, tmp_path / "ck")
    copies.admin.delete_topic("payments")
    copies.admin.create_topic("payments", schema=pa.schema([("trans_id", pa.string())]))
    with copies.producer() as producer:
        producer.produce("payments", pa.table({"trans_id": ["x"]})).result()
    with refused_by_spark(InvalidRequestError, Reason.TYPE_MISMATCH) as refused:
        copy(rows, copies, tmp_path / "ck")
    assert "'trans_id'" in str(refused.value)
    assert ids(copies) == list(range(30))
