"""Topics with changed columns, read by Spark: the rows are those of a naive model, and streams keep their
columns."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import txn_engine
from tests.schemas.model import ModelTopic
from tests.suite.tiers import in_shard
from txn_engine import AddColumn, DropColumn, Engine, RenameColumn, WidenColumn
from txn_engine.maintain import MaintenancePolicy
from txn_engine.spark import read_topic, register, write_topic

EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)


def native(spark: SparkSession, engine: Engine, url: str) -> DataFrame:
    del url
    return read_topic(spark, engine, "t").df


def source(spark: SparkSession, engine: Engine, url: str) -> DataFrame:
    del engine
    register(spark)
    return spark.read.format("txn_engine").option("url", url).option("subscribe", "t").load()


def rows_of(frame: DataFrame, names: list[str]) -> list[dict[str, Any]]:
    table: pa.Table = frame.select(*(f"`{name}`" for name in names)).toArrow()
    return sorted(table.to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("seed", in_shard("spark", [3, 11, 17], keep=1))
def test_every_reader_gives_the_models_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Native reads, which unite the files of all schema versions, and the data source give the model's
    rows."""
    model = ModelTopic(random.Random(seed))
    url = tmp_path.as_uri()
    with txn_engine.connect(url) as engine:
        engine.admin.create_topic("t", partitions=1, schema=model.schema)
        producer = engine.producer()
        for step in range(5):
            producer.produce("t", model.produce(3)).result()
            engine.admin.alter_topic("t", model.change())
            if step == 2:
                engine.maintenance.compact("t", policy=EAGER)
        producer.produce("t", model.produce(2)).result()
        names = model.schema.names
        readers: list[Callable[[SparkSession, Engine, str], DataFrame]] = [native, source]
        for reader in readers:
            frame = reader(spark, engine, url)
            assert rows_of(frame, names) == model.expected()
        assert native(spark, engine, url).where("id >= 4").count() == len(model.rows) - 4


def test_as_of_a_cut_by_the_columns_of_the_cut(spark: SparkSession, tmp_path: Path) -> None:
    """A read as of a cut can have the columns of the cut or of any version. By default it has the present
    columns."""
    with txn_engine.connect(str(tmp_path)) as engine:
        engine.admin.create_topic(
            "t", partitions=1, schema=pa.schema([("id", pa.int64()), ("b", pa.int32())])
        )
        producer = engine.producer()
        producer.produce("t", pa.table({"id": [1, 2], "b": pa.array([5, 6], pa.int32())})).result()
        cut = engine.cut()
        engine.admin.alter_topic("t", [WidenColumn("b", pa.int64()), RenameColumn("b", "c")])
        engine.admin.alter_topic("t", DropColumn("c"))
        producer.produce("t", pa.table({"id": [3]})).result()
        engine.maintenance.compact("t", policy=EAGER)
        then = read_topic(spark, engine, "t", cut=cut, schema_version="cut").df
        assert rows_of(then, ["id", "b"]) == [{"id": 1, "b": 5}, {"id": 2, "b": 6}]
        assert dict(then.dtypes)["b"] == "int"
        assert rows_of(read_topic(spark, engine, "t", cut=cut, schema_version=1).df, ["id", "c"])[0]["c"] == 5
        assert rows_of(read_topic(spark, engine, "t", cut=cut).df, ["id"]) == [{"id": 1}, {"id": 2}]


@pytest.mark.shard("spark")
def test_what_spark_writes_says_its_version(spark: SparkSession, tmp_path: Path) -> None:
    with txn_engine.connect(str(tmp_path)) as engine:
        engine.admin.create_topic(
            "t", partitions=1, schema=pa.schema([("id", pa.int64()), ("b", pa.string())])
        )
        engine.admin.alter_topic(
            "t", [RenameColumn("b", "c"), AddColumn(pa.field("n", pa.int32()), default=7)]
        )
        write_topic(
            spark.createDataFrame([(1, "x", 5)], "id long, c string, n int"),
            engine,
            "t",
            transactional_id="load",
        )
        assert [file.schema_version for file in engine.scan("t").files()] == [1]
        assert rows_of(read_topic(spark, engine, "t").df, ["id", "c", "n"]) == [{"id": 1, "c": "x", "n": 5}]
        assert engine.admin.verify().findings == ()
