"""Every type goes through Spark exactly, in all of its forms, or is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.types.columns import Column
from tests.types.features import parquet_file
from tests.types.wide import Wide, exact_columns, wrong_refusals
from tests.types.world import World
from txn_engine import Engine
from txn_engine.spark import load_files, read_topic, register, write_topic

pytestmark = [pytest.mark.spark, pytest.mark.shard("spark")]


@pytest.fixture(scope="module")
def wide() -> Wide:
    """All that Spark takes."""
    return exact_columns("spark")


@pytest.fixture(scope="module")
def engine(world: World, wide: Wide) -> Engine:
    """The store on the disk, with the topic `kinds` of all these columns."""
    engine = world.on_disk()
    engine.admin.create_topic("kinds", partitions=1, schema=wide.schema)
    engine.partition("kinds", 0).append(wide.records)
    return engine


def fresh(engine: Engine, wide: Wide, name: str) -> str:
    """A topic of all these columns, without records."""
    engine.admin.create_topic(name, partitions=1, schema=wide.schema)
    return name


def wrong_in(engine: Engine, wide: Wide, topic: str) -> dict[str, str]:
    """What of the topic is not as it was given; its columns have the topic's own types."""
    found = engine.scan(topic).to_table(wide.names)
    assert found.schema.types == wide.schema.types
    return wide.wrong_in(found)


def read(spark: SparkSession, engine: Engine, wide: Wide) -> DataFrame:
    """The topic as Spark has it."""
    return read_topic(spark, engine, "kinds").df.select(*wide.names)


def test_read_and_write(spark: SparkSession, engine: Engine, wide: Wide) -> None:
    """`read_topic`, and `write_topic` of what it read."""
    frame = read(spark, engine, wide)
    assert wide.wrong_in(frame.toArrow()) == {}
    write_topic(frame, engine, fresh(engine, wide, "written"), transactional_id="written")
    assert wrong_in(engine, wide, "written") == {}


def test_source_and_sink(spark: SparkSession, engine: Engine, wide: Wide) -> None:
    """`spark.read` and `DataFrame.write` of the data source."""
    register(spark)
    source = spark.read.format("txn_engine").options(url=engine.url, subscribe="kinds")
    frame = source.option("startingOffsets", "earliest").load().select(*wide.names)
    assert wide.wrong_in(frame.toArrow()) == {}
    topic = fresh(engine, wide, "sunk")
    frame.write.format("txn_engine").mode("append").options(url=engine.url, topic=topic).save()
    assert wrong_in(engine, wide, topic) == {}


def test_streams(spark: SparkSession, engine: Engine, wide: Wide, tmp_path: Path) -> None:
    """`readStream` and `writeStream` of the data source."""
    register(spark)
    topic = fresh(engine, wide, "streamed")
    source = spark.readStream.format("txn_engine").options(url=engine.url, subscribe="kinds")
    frame = source.option("startingOffsets", "earliest").load().select(*wide.names)
    sink = frame.writeStream.format("txn_engine").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = (
        sink.options(url=engine.url, topic=topic, transactionalId="streamed")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert wrong_in(engine, wide, topic) == {}


def test_load(spark: SparkSession, world: World, engine: Engine) -> None:
    """`load_files` of a Parquet file takes every type: the records do not become Spark's."""
    every = exact_columns("spark_load")
    path = parquet_file(world, every.records)
    load_files(spark, engine, fresh(engine, every, "loaded"), str(path), run_id="1")
    assert wrong_in(engine, every, "loaded") == {}


@pytest.mark.parametrize("form", ["read", "write"])
def test_types_that_spark_does_not_have(spark: SparkSession, world: World, engine: Engine, form: str) -> None:
    """They are refused before a job runs."""
    frame = spark.range(1)

    def run(column: Column) -> list[Any]:
        topic = world.disk_topic_of(column)
        forms: dict[str, Callable[[], object]] = {
            "read": lambda: read_topic(spark, engine, topic),
            "write": lambda: write_topic(frame, engine, topic, transactional_id=topic),
        }
        forms[form]()
        return column.values

    assert wrong_refusals("spark", run) == {}
