"""FileLayout decides how many files a write makes, which rows they have, and in which order."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types

from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.producer.partitioner import choose_partitions
from txn_engine.reasons import Reason
from txn_engine.spark import layout, write_topic
from txn_engine.spark.layout import partition_of

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("key", pa.int64()), ("number", pa.int64())])


@pytest.fixture
def wide(ledger: Engine) -> Engine:
    """`ledger` with a topic of 8 partitions, and another one of 8 whose key is text."""
    ledger.admin.create_topic("wide", partitions=8, schema=SCHEMA, key="key")
    named = pa.schema([("key", pa.string()), ("number", pa.int64())])
    ledger.admin.create_topic("named", partitions=8, schema=named, key="key")
    return ledger


def rows(spark: SparkSession, tasks: int, count: int = 8_000) -> DataFrame:
    """Numbers in the DataFrame's order, each with one of 100 keys, one of which is null."""
    number = sf.col("id")
    key = sf.when(number % 100 != 99, (number * 37) % 100)
    return spark.range(0, count, 1, tasks).select(key.alias("key"), number.alias("number"))


def numbers_by_key(engine: Engine, topic: str) -> dict[object, list[int]]:
    found: dict[object, list[int]] = defaultdict(list)
    for row in (
        engine.scan(topic)
        .to_table()
        .sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        .to_pylist()
    ):
        found[row["key"]].append(row["number"])
    return dict(found)


@pytest.mark.parametrize(
    ("kind", "name"), in_shard("spark", [(pa.int64(), "bigint"), (pa.int32(), "int")], keep=1)
)
def test_spark_computes_the_partition_that_we_do(spark: SparkSession, kind: pa.DataType, name: str) -> None:
    """Spark's expressions compute the same partition as Kafka's murmur2 for every integer type, and null for
    null."""
    random = np.random.default_rng(3)
    least, most = (np.iinfo(kind.to_pandas_dtype()).min, np.iinfo(kind.to_pandas_dtype()).max)
    values = [0, 1, -1, 255, 256, -256, int(least), int(most), None]
    values += random.integers(least, most, 2_000, endpoint=True).tolist()
    frame = spark.createDataFrame([(value,) for value in values], f"key {name}")
    for partitions in (2, 7, 50):
        found = frame.select(partition_of(sf.col("key"), kind, partitions).alias("at")).toArrow()
        mine = choose_partitions(pa.array(values[:8] + values[9:], kind), partitions, 0).tolist()
        seen = found.column("at").to_pylist()
        assert seen[8] is None
        assert seen[:8] + seen[9:] == mine


@pytest.mark.shard("spark")
def test_few_files_where_each_task_has_rows_for_each_partition(
    spark: SparkSession, wide: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 tasks x 8 partitions give 64 files without the layout, and 8 with it: from one task, or after a
    shuffle if the rows are too many for one."""
    as_it_comes = write_topic(rows(spark, 8), wide, "wide", transactional_id="b", by_partition=False)
    assert as_it_comes.files == 64
    one_task = write_topic(rows(spark, 8), wide, "wide", transactional_id="a")
    monkeypatch.setattr(layout, "FEW_FILES", 8)
    monkeypatch.setattr(layout, "ONE_TASK_BYTES", 0)
    shuffled = write_topic(rows(spark, 8), wide, "wide", transactional_id="a")
    for result in (one_task, shuffled):
        assert (result.files, result.records) == (8, 8_000)
        assert result.partitions == as_it_comes.partitions
    written = wide.scan("wide").to_table()
    where = dict(
        zip(written.column("key").to_pylist(), written.column("_partition").to_pylist(), strict=True)
    )
    keys = [key for key in where if key is not None]
    assert [where[key] for key in keys] == choose_partitions(pa.array(keys, pa.int64()), 8, 0).tolist()


@pytest.mark.shard("spark")
def test_a_task_for_each_core_is_left(
    spark: SparkSession, wide: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If 8 files are few, a layout leaves a task for each core: 8 tasks with 2 partitions and 2 cores become
    4, and without a key 8."""
    monkeypatch.setattr(layout, "FEW_FILES", 8)
    monkeypatch.setattr(layout, "ONE_TASK_BYTES", 0)
    wide.admin.create_topic("two", partitions=2, schema=SCHEMA, key="key")
    wide.admin.create_topic("keyless", partitions=2, schema=SCHEMA)
    assert write_topic(rows(spark, 8), wide, "two", transactional_id="a").files == 8
    assert write_topic(rows(spark, 20), wide, "keyless", transactional_id="a").files == 8
    for topic in ("two", "keyless"):
        assert wide.scan(topic).to_table().num_rows == 8_000


@pytest.mark.shard("spark")
def test_tasks_with_places_are_not_put_together(
    spark: SparkSession, wide: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks with preferred places are not combined, because Spark would group them by place, and the records
    of a key would change their order."""
    monkeypatch.setattr(layout, "TASKS_ASKED_MAX", 1)  # as many as are not asked for their places
    assert write_topic(rows(spark, 8), wide, "wide", transactional_id="a").files == 8
    found = numbers_by_key(wide, "wide")
    found.pop(None)
    assert all(numbers == sorted(numbers) for numbers in found.values())


def test_when_no_shuffle_is_made(spark: SparkSession, wide: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shuffled for few files, for large ones, or for a key that cannot be hashed.
    `by_partition=True` asks for a shuffle."""
    assert layout.FEW_FILES == 16
    monkeypatch.setattr(layout, "FEW_FILES", 8)
    monkeypatch.setattr(layout, "ONE_TASK_BYTES", 0)
    assert layout.SMALL_FILE_BYTES == 16 << 20
    assert write_topic(rows(spark, 1), wide, "wide", transactional_id="a").files == 8
    assert write_topic(rows(spark, 1), wide, "wide", transactional_id="a", by_partition=True).files == 8
    named = rows(spark, 8).withColumn("key", sf.col("key").cast("string"))
    assert write_topic(named, wide, "named", transactional_id="a").files > 56
    with refused(InvalidRequestError, Reason.NO_PARTITION_BY_SPARK):
        write_topic(named, wide, "named", transactional_id="a", by_partition=True)
    large = rows(spark, 2, 100).withColumn("number", sf.expr("octet_length(repeat('x', 10))").cast("long"))
    joined = large.crossJoin(spark.range(10)).select("key", "number")
    assert write_topic(joined, wide, "wide", transactional_id="a", by_partition=False).files > 8


@pytest.mark.parametrize("by_partition", in_shard("spark", [None, False, True], keep=[True]))
@pytest.mark.parametrize("is_sorted", in_shard("spark", [False, True], keep=[True]))
def test_records_of_a_key_keep_their_order(
    spark: SparkSession, wide: Engine, by_partition: bool | None, is_sorted: bool
) -> None:
    """The records of a key keep the DataFrame's order, across its partitions too, whether or not they are
    shuffled or sorted."""
    write_topic(
        rows(spark, 8),
        wide,
        "wide",
        transactional_id="a",
        by_partition=by_partition,
        sort_within_files=is_sorted,
    )
    found = numbers_by_key(wide, "wide")
    nulls = found.pop(None)
    assert sorted(nulls) == list(range(99, 8_000, 100))
    assert len(found) == 99
    assert all(numbers == sorted(numbers) and len(numbers) == 80 for numbers in found.values())


@pytest.mark.shard("spark")
def test_sorted_files_tell_apart_what_they_hold(spark: SparkSession, wide: Engine) -> None:
    """Within a file, rows are sorted by the key or by the named columns. Equal ones stay in the DataFrame's
    order."""
    for number, wanted in enumerate((True, ["key"], ["number", "key"])):
        topic = f"sorted{number}"
        wide.admin.create_topic(topic, partitions=1, schema=SCHEMA, key="key")
        frame = rows(spark, 2).withColumn("number", 8_000 - sf.col("number"))
        result = write_topic(frame, wide, topic, transactional_id="a", sort_within_files=wanted)
        assert result.files == 2
        for file in wide.scan(topic).files():
            held = pq.read_table(file.uri, columns=["key", "number"]).to_pylist()
            low = -1
            order = [
                (row["number"],)
                if number == 2
                else (low if row["key"] is None else row["key"], -row["number"])
                for row in held
            ]
            assert order == sorted(order)


def test_columns_that_cannot_be_sorted_by(spark: SparkSession, wide: Engine) -> None:
    """Unknown columns, and a key that the topic does not have, are refused before anything is written."""
    wide.admin.create_topic("keyless", partitions=1, schema=SCHEMA)
    for topic, wanted in (("wide", ["nowhere"]), ("keyless", True)):
        with refused(InvalidRequestError, Reason.BAD_SORT_COLUMNS):
            write_topic(rows(spark, 1), wide, topic, transactional_id="a", sort_within_files=wanted)
    assert wide.admin.list_transactions() == []


def test_shuffled_schema_types(spark: SparkSession, wide: Engine) -> None:
    """A key of type int32 is shuffled in the same way."""
    wide.admin.create_topic(
        "narrow", partitions=8, schema=pa.schema([("key", pa.int32()), ("number", pa.int64())]), key="key"
    )
    frame = rows(spark, 8).withColumn("key", sf.col("key").cast(spark_types.IntegerType()))
    assert write_topic(frame, wide, "narrow", transactional_id="a").files == 8
