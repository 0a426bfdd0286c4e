"""The two streams that copy `payments`: by `stream_topic` into `copies`, and by source and sink into `others`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tests.spark.conftest import SCHEMA
from txn_engine.engine import Engine
from txn_engine.spark import register, stream_topic


def copy_by_stream_topic(spark: SparkSession, engine: Engine, folder: str, **options: Any) -> None:
    """Copy everything that is there now. `folder` holds the checkpoint, and `options` are passed to
    `stream_topic`."""
    given = {"transactional_id": "copier", "output_topic": "copies"} | options
    stream_topic(
        spark,
        engine,
        "payments",
        each=lambda rows, _: rows.select(*SCHEMA.names),
        checkpoint=f"{folder}/topic",
        trigger={"availableNow": True},
        **given,
    ).awaitTermination()


def copy_by_format(spark: SparkSession, url: str, folder: str, topic: str = "others") -> None:
    """Copy everything that is there now. `folder` holds the checkpoint."""
    register(spark)
    source = {"url": url, "subscribe": "payments", "startingOffsets": "earliest"}
    rows = spark.readStream.format("txn_engine").options(**source).load().select(*SCHEMA.names)
    sink = {"url": url, "topic": topic, "checkpointLocation": f"{folder}/format"}
    writer = rows.writeStream.format("txn_engine").options(**sink)
    writer.trigger(availableNow=True).start().awaitTermination()
