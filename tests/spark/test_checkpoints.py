"""A micro-batch that Spark plans again is the committed one only if it has the committed rows."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import load, payments
from tests.spark.counted_source import CountedSource
from tests.spark.test_source import copy, ids, stream
from tests.suite.tiers import in_shard
from tests.support.refusals import refused_by_spark
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, InvalidTxnStateError
from txn_engine.reasons import Reason
from txn_engine.spark import register
from txn_engine.spark.source.checkpoint import Checkpoint, Plan
from txn_engine.spark.source.options import StoreOptions

pytestmark = pytest.mark.spark

COLUMNS = "trans_id bigint, account_id bigint, date date, type string, amount decimal(18,2)"
LOG_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def put_file(folder: Path, first: int, count: int, *, age_s: int = 0) -> Path:
    """A file of these payments, written so long ago."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{first}.parquet"
    pq.write_table(payments(first, count), path)
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def files(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of a folder, one file a micro-batch."""
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "1").parquet(str(folder))


def relative(spark: SparkSession, path: Path) -> Path:
    """The path as seen from the working directory of Spark's JVM."""
    assert spark._jvm is not None
    return Path(os.path.relpath(path, spark._jvm.java.lang.System.getProperty("user.dir")))


def forget(checkpoint: Path, *names: str) -> None:
    """Remove files of a checkpoint, and the checksums beside them."""
    for name in names:
        path = checkpoint / name
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("is_relative", in_shard("spark", [True, False], keep=1))
def test_a_batch_of_other_files(
    spark: SparkSession, copies: Engine, tmp_path: Path, is_relative: bool
) -> None:
    """An older state of a checkpoint is restored, and the batch after it has another file with as many rows. It is
    refused, and each row is there once.
    """
    folder, ck = tmp_path / "in", tmp_path / "ck"
    named = relative(spark, ck) if is_relative else ck
    put_file(folder, 0, 20)
    copy(files(spark, folder), copies, named)
    shutil.copytree(ck, tmp_path / "older")
    second = put_file(folder, 100, 20)
    copy(files(spark, folder), copies, named)
    done = [*range(20), *range(100, 120)]
    assert ids(copies) == done
    shutil.rmtree(ck)
    (tmp_path / "older").rename(ck)
    second.unlink()
    put_file(folder, 200, 20)
    with refused_by_spark(InvalidTxnStateError, Reason.OLDER_CHECKPOINT):
        copy(files(spark, folder), copies, named)
    assert ids(copies) == done


def test_a_file_that_was_replaced(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """An older state of a checkpoint is restored, and the file of the batch after it has other rows by now, under its
    path and its time. It is refused. With the rows that are committed it is the committed batch.
    """
    folder, ck = tmp_path / "in", tmp_path / "ck"
    put_file(folder, 0, 20, age_s=300)
    copy(files(spark, folder), copies, ck)
    shutil.copytree(ck, tmp_path / "older")
    second = put_file(folder, 100, 20, age_s=100)
    time, content = second.stat().st_mtime_ns, second.read_bytes()
    copy(files(spark, folder), copies, ck)
    shutil.rmtree(ck)
    (tmp_path / "older").rename(ck)
    put_file(folder, 200, 20).replace(second)
    os.utime(second, ns=(time, time))
    with refused_by_spark(InvalidTxnStateError, Reason.UNKNOWN_ROWS):
        copy(files(spark, folder), copies, ck)
    assert ids(copies) == [*range(20), *range(100, 120)]
    second.write_bytes(content)
    os.utime(second, ns=(time, time))
    copy(files(spark, folder), copies, ck)
    assert ids(copies) == [*range(20), *range(100, 120)]


@pytest.mark.shard("spark")
def test_a_batch_of_other_records_at_a_relative_location(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """The offsets of a topic are compared at a relative location, too. One checkpoint is gone on with under another
    spelling.
    """
    ck = tmp_path / "ck"
    load(copies, 0, 50)
    rows = stream(spark, copies, maxOffsetsPerTrigger=50)
    copy(rows, copies, relative(spark, ck))
    shutil.copytree(ck, tmp_path / "older")
    load(copies, 50, 50)
    copy(rows, copies, Path(f"file://{ck}"))
    assert ids(copies) == list(range(100))
    shutil.rmtree(ck)
    (tmp_path / "older").rename(ck)
    with copies.producer() as producer:
        producer.produce("payments", payments(1_000, 400), partition=1).result()
    with refused_by_spark(InvalidTxnStateError, Reason.OLDER_CHECKPOINT):
        copy(rows, copies, relative(spark, ck))
    assert ids(copies) == list(range(100))


@pytest.mark.shard("spark")
def test_files_that_are_read_again(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """The last batch of files is run again because Spark's note of it was lost, from a log that is compacted every
    second batch. It is found committed, and the query goes on.
    """
    folder, ck = tmp_path / "in", tmp_path / "ck"
    before = spark.conf.get(LOG_INTERVAL, None)
    spark.conf.set(LOG_INTERVAL, "2")
    try:
        for number in range(4):
            put_file(folder, number * 10, 10)
            copy(files(spark, folder), copies, ck)
            forget(ck, f"commits/{number}")
            copy(files(spark, folder), copies, ck)
            assert ids(copies) == list(range(10 * number + 10))
        assert (ck / "sources/0/3.compact").exists()
        forget(ck, "commits/3", "offsets/3", "sources/0/3.compact")
        copy(files(spark, folder), copies, ck)
        assert ids(copies) == list(range(40))
    finally:
        spark.conf.unset(LOG_INTERVAL) if before is None else spark.conf.set(LOG_INTERVAL, before)


@pytest.mark.shard("spark")
def test_a_batch_that_has_no_rows_the_second_time(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """An older state is restored, and the batch after it has a file without a row that passes the filter. It writes
    nothing, and it is refused all the same: the batch after it would write the committed file again.
    """
    folder, ck = tmp_path / "in", tmp_path / "ck"
    put_file(folder, 0, 20, age_s=300)
    copy(files(spark, folder).where("trans_id < 500"), copies, ck)
    shutil.copytree(ck, tmp_path / "older")
    put_file(folder, 100, 20, age_s=100)
    copy(files(spark, folder).where("trans_id < 500"), copies, ck)
    done = [*range(20), *range(100, 120)]
    shutil.rmtree(ck)
    (tmp_path / "older").rename(ck)
    put_file(folder, 500, 20, age_s=200)
    with refused_by_spark(InvalidTxnStateError, Reason.OLDER_CHECKPOINT):
        copy(files(spark, folder).where("trans_id < 500"), copies, ck)
    assert ids(copies) == done


@pytest.mark.shard("spark")
def test_a_source_whose_offsets_do_not_name_its_rows(
    spark: SparkSession, copies: Engine, tmp_path: Path
) -> None:
    """The offsets of such a source say nothing of its rows. A batch that is run again is the committed one if it has
    the same rows, in whatever order. With other rows, as many, it is refused.
    """
    spark.dataSource.register(CountedSource)
    ck, numbers = tmp_path / "ck", tmp_path / "rows"
    numbers.write_text(" ".join(map(str, range(30))))
    rows = spark.readStream.format("counted").option("rows", str(numbers)).load()
    copy(rows, copies, ck)
    for order in (range(30), reversed(range(30))):
        numbers.write_text(" ".join(map(str, order)))
        forget(ck, "commits/0")
        copy(rows, copies, ck)
        assert ids(copies) == list(range(30))
    numbers.write_text(" ".join(map(str, range(30, 60))))
    forget(ck, "commits/0")
    with refused_by_spark(InvalidTxnStateError, Reason.UNKNOWN_ROWS):
        copy(rows, copies, ck)
    assert ids(copies) == list(range(30))


@pytest.mark.shard("spark")
def test_what_a_plan_consists_of(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A plan of files says which files. With state it also says when it was planned, because the watermark and the
    timers decide which rows come out.
    """
    folder, ck = tmp_path / "in", tmp_path / "ck"
    put_file(folder, 0, 20)
    copy(files(spark, folder), copies, ck)
    checkpoint = Checkpoint(f"file://{ck}", StoreOptions(copies.url))
    plan = checkpoint.plan(0)
    assert not plan.names_rows
    assert not checkpoint.names_rows()
    journal = ck / "offsets" / "0"
    later = journal.read_text().replace('"batchTimestampMs":1', '"batchTimestampMs":2')
    journal.write_text(later)
    assert checkpoint.plan(0) == plan
    (ck / "state" / "0").mkdir(parents=True)
    assert checkpoint.plan(0) != plan
    log = ck / "sources" / "0" / "0"
    entries = log.read_text()
    shutil.rmtree(ck / "state")
    log.write_text(entries.replace("/in/0.parquet", "/in/1.parquet"))
    assert checkpoint.plan(0).digest not in ("", plan.digest)
    forget(ck, "sources/0/0")
    assert checkpoint.plan(0) == Plan()


@pytest.mark.shard("spark")
def test_the_output_mode_complete(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """It is refused by its name, with what to use instead."""
    load(copies, 0, 10)
    totals = stream(spark, copies).groupBy("account_id").count()
    sink = {"url": copies.url, "topic": "copies", "checkpointLocation": str(tmp_path / "ck")}
    writer = totals.writeStream.format("txn_engine").outputMode("complete").options(**sink)
    with refused_by_spark(InvalidRequestError, Reason.APPEND_ONLY) as failed:
        writer.trigger(availableNow=True).start().awaitTermination()
    assert 'outputMode("complete")' in str(failed.value)
    assert "stream_topic" in str(failed.value)
