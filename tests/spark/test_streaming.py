"""stream_topic runs micro-batches with native reads, whose output and offsets commit together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.conftest import SCHEMA, accounts_of, balances_of, load, payments, sums, two_outputs
from tests.support.refusals import refused, refused_by_spark
from txn_engine.engine import Engine
from txn_engine.errors import (
    InvalidRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OffsetsMovedError,
    UnknownTopicOrPartitionError,
)
from txn_engine.reasons import Reason
from txn_engine.spark import StreamBatch, stream_topic
from txn_engine.spark.errors import fault_of

pytestmark = pytest.mark.spark


def as_they_are(rows: DataFrame, _batch: StreamBatch) -> DataFrame:
    return rows.select(*SCHEMA.names)


def copy(spark: SparkSession, engine: Engine, checkpoint: Path, **given: Any) -> StreamingQuery:
    """Copy everything that is there now, through `stream_topic`."""
    options: dict[str, Any] = {
        "each": as_they_are,
        "checkpoint": checkpoint,
        "transactional_id": "copier",
        "output_topic": "copies",
        "trigger": {"availableNow": True},
    }
    query = stream_topic(spark, engine, "payments", **options | given)
    query.awaitTermination()
    return query


def ids(engine: Engine) -> list[int]:
    return sorted(engine.scan("copies").to_table(["trans_id"]).column("trans_id").to_pylist())


def lag(engine: Engine, group: str = "copier") -> int:
    return sum(part.lag or 0 for part in engine.admin.describe_group(group).partitions)


def test_each_record_once_and_the_group_with_it(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """Over two runs, with batches that cut inside files, each committed record is copied once, no aborted one
    is, and Spark reads the files natively."""
    seen: list[StreamBatch] = []
    plans: list[str] = []

    def each(rows: DataFrame, batch: StreamBatch) -> DataFrame:
        seen.append(batch)
        plans.append(rows._jdf.queryExecution().toString())
        assert rows.count() == batch.record_count
        return rows.select(*SCHEMA.names)

    load(copies, 0, 250)
    copy(spark, copies, tmp_path / "ck", each=each, max_offsets_per_trigger=100)
    assert len(seen) >= 3
    assert max(batch.record_count for batch in seen) <= 100
    assert all("FileScan parquet" in plan and "Python" not in plan for plan in plans)
    load(copies, 250, 50)
    load(copies, 300, 50, commit=False)
    assert lag(copies) > 0
    copy(spark, copies, tmp_path / "ck", each=each)
    assert ids(copies) == list(range(300))
    assert lag(copies) == 0
    assert sum(batch.record_count for batch in seen) == 300


@pytest.mark.shard("spark")
def test_before_a_commit(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """The hook is called once for each micro-batch, in its open transaction, when nothing of it is visible.
    If the hook raises, the query ends."""
    seen: list[tuple[int, str]] = []

    def look() -> None:
        seen.append((len(ids(copies)), copies.admin.describe_transaction("copier").state))
        if len(seen) == 2:
            raise ValueError("not this one")

    load(copies, 0, 100)
    with pytest.raises(StreamingQueryException, match="not this one"):
        copy(spark, copies, tmp_path / "ck", max_offsets_per_trigger=60, before_commit=look)
    first = len(ids(copies))
    assert seen == [(0, "Ongoing"), (first, "Ongoing")]
    assert 0 < first <= 60
    copy(spark, copies, tmp_path / "ck")
    assert ids(copies) == list(range(100))


@pytest.mark.shard("spark")
def test_a_batch_without_output(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """If a batch returns no output, the group moves with it, and the query goes on."""
    load(copies, 0, 90)
    given: list[int] = []

    def each(rows: DataFrame, batch: StreamBatch) -> dict[str, DataFrame]:
        given.append(batch.record_count)
        return {} if len(given) == 1 else {"copies": as_they_are(rows, batch)}

    copy(spark, copies, tmp_path / "ck", each=each, output_topic=None, max_offsets_per_trigger=30)
    assert sum(given) == 90
    assert len(ids(copies)) == 90 - given[0]
    assert lag(copies) == 0


@pytest.mark.shard("spark")
def test_a_checkpoint_of_another_topic(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """The error says what can be done with `stream_topic`, which has no option to ignore missing data."""
    load(copies, 0, 30)
    copy(spark, copies, tmp_path / "ck")
    with refused_by_spark(OffsetOutOfRangeError, Reason.PARTITION_GONE) as refused:
        stream_topic(
            spark,
            copies,
            "copies",
            each=as_they_are,
            checkpoint=tmp_path / "ck",
            transactional_id="other",
            output_topic="copies",
            trigger={"availableNow": True},
        ).awaitTermination()
    assert "failOnDataLoss" not in str(refused.value)


@pytest.mark.shard("spark")
def test_several_outputs(spark: SparkSession, two_topics: Engine, tmp_path: Path) -> None:
    """Each micro-batch writes both topics and moves the group in one transaction."""
    load(two_topics, 0, 90)
    copy(
        spark,
        two_topics,
        tmp_path / "ck",
        each=lambda rows, _: two_outputs(rows.select(*SCHEMA.names)),
        output_topic=None,
        max_offsets_per_trigger=40,
    )
    assert balances_of(two_topics) == sums(payments(0, 90))
    assert set(accounts_of(two_topics)) == set(range(7))
    assert lag(two_topics) == 0


@pytest.mark.shard("spark")
def test_a_batch_without_its_commit_file(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """If Spark runs a committed batch again, the group is already at the batch's end and nothing is
    written."""
    load(copies, 0, 250)
    copy(spark, copies, tmp_path / "ck", max_offsets_per_trigger=100)
    commits = sorted((tmp_path / "ck" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (tmp_path / "ck" / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    load(copies, 250, 10)
    copy(spark, copies, tmp_path / "ck")
    assert ids(copies) == list(range(260))


@pytest.mark.shard("spark")
@pytest.mark.parametrize("runs", [2, 3])
def test_an_older_state_of_the_checkpoint(
    spark: SparkSession, copies: Engine, tmp_path: Path, runs: int
) -> None:
    """A checkpoint that was put back by one run or by several is refused, and nothing is skipped or doubled. A new
    checkpoint continues where the group is.
    """
    ck = tmp_path / "ck"
    for number in range(runs):
        load(copies, number * 50, 50)
        copy(spark, copies, ck)
        shutil.copytree(ck, tmp_path / f"state-{number}")
    done = runs * 50
    load(copies, done, 10)
    for number in range(runs - 1):
        shutil.rmtree(ck)
        shutil.copytree(tmp_path / f"state-{number}", ck)
        with refused_by_spark(OffsetsMovedError, Reason.GROUP_ELSEWHERE):
            copy(spark, copies, ck)
        assert ids(copies) == list(range(done))
    shutil.rmtree(ck)
    copy(spark, copies, ck)
    assert ids(copies) == list(range(done + 10))


@pytest.mark.shard("spark")
def test_a_group_that_somebody_moved(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """If the group is moved between two runs, or while a batch runs, the batch is refused and nothing of it
    is visible."""
    load(copies, 0, 50)
    copy(spark, copies, tmp_path / "ck")
    load(copies, 50, 50)
    where = dict.fromkeys(copies.scan("payments").offsets, 1)
    copies.admin.reset_offsets("copier", where, execute=True)
    with refused_by_spark(OffsetsMovedError, Reason.GROUP_ELSEWHERE):
        copy(spark, copies, tmp_path / "ck")
    assert ids(copies) == list(range(50))

    def moving(rows: DataFrame, _batch: StreamBatch) -> DataFrame:
        copies.admin.reset_offsets("copier", where, execute=True)
        return rows.select(*SCHEMA.names)

    with refused_by_spark(OffsetsMovedError, None):  # the commit is refused
        copy(spark, copies, tmp_path / "new", each=moving)
    assert ids(copies) == list(range(50))


@pytest.mark.shard("spark")
def test_two_queries_under_one_id(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """The query that was started later fences the other one."""
    load(copies, 0, 50)

    def overtaken(rows: DataFrame, _batch: StreamBatch) -> DataFrame:
        copy(spark, copies, tmp_path / "two")
        return rows.select(*SCHEMA.names)

    with pytest.raises(StreamingQueryException) as ended:
        copy(spark, copies, tmp_path / "one", each=overtaken)
    fault = fault_of(ended.value)
    assert fault is not None
    assert fault.code in ("PRODUCER_FENCED", "OFFSETS_MOVED")
    assert ids(copies) == list(range(50))


@pytest.mark.shard("spark")
def test_a_topic_made_again(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A topic that was created again is data loss, as for every stream. A new checkpoint reads the new topic
    from its beginning."""
    load(copies, 0, 30)
    copy(spark, copies, tmp_path / "ck")
    copies.admin.delete_topic("payments")
    copies.admin.create_topic("payments", partitions=3, schema=SCHEMA, key="account_id")
    load(copies, 100, 90)
    with refused_by_spark(OffsetOutOfRangeError, Reason.TOPIC_MADE_AGAIN):
        copy(spark, copies, tmp_path / "ck")
    copy(spark, copies, tmp_path / "new")
    assert ids(copies) == [*range(30), *range(100, 190)]


@pytest.mark.shard("spark")
def test_batches_without_output(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """The group moves over aborted records, and over records that a filter drops."""
    load(copies, 0, 30, commit=False)
    copy(spark, copies, tmp_path / "ck")
    load(copies, 30, 30)
    copy(spark, copies, tmp_path / "ck", each=lambda rows, _: as_they_are(rows, _).where(sf.lit(False)))
    assert ids(copies) == []
    assert lag(copies) == 0


@pytest.mark.shard("spark")
def test_an_error_of_the_function_ends_the_query(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """If the function raises, nothing of the batch is visible, and the next run does the batch."""
    load(copies, 0, 30)

    def failing(_rows: DataFrame, _batch: StreamBatch) -> DataFrame:
        raise ValueError("not today")

    with pytest.raises(StreamingQueryException, match="not today"):
        copy(spark, copies, tmp_path / "ck", each=failing)
    with refused_by_spark(InvalidRecordError, Reason.OTHER_COLUMNS):
        copy(spark, copies, tmp_path / "ck", each=lambda rows, _: rows.select("trans_id"))
    assert ids(copies) == []
    copy(spark, copies, tmp_path / "ck")
    assert ids(copies) == list(range(30))


def test_what_cannot_be_started(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A stream that cannot be started is refused before anything runs."""
    with pytest.raises(UnknownTopicOrPartitionError):
        stream_topic(
            spark, copies, "nowhere", each=as_they_are, checkpoint=tmp_path / "ck", transactional_id="x"
        )
    with refused(InvalidRequestError, Reason.BAD_ARGUMENT):
        copy(spark, copies, tmp_path / "ck", max_offsets_per_trigger=0)
