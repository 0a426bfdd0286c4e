"""Spark with Delta reads a topic's table: the newest state, older ones, and a stream. Then it tries every
kind of write."""

from __future__ import annotations

import tempfile

from rows import answer, digest, refusal, request
from spark import session

COLUMNS = ("account", "cast(amount AS string)", "unix_millis(_timestamp)")

asked = request()
root = asked["delta"]
spark = session(
    **{
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        **asked.get("settings", {}),
    }
)


def of(frame) -> list[object]:
    return digest(frame.selectExpr(*COLUMNS).collect())


def streamed() -> list[object]:
    """All records that a stream of the table gets from its first version on."""
    rows: list = []
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = (
            spark.readStream.format("delta").option("startingVersion", 0).option("skipChangeCommits", "true")
        )
        query = (
            stream.option("maxFilesPerTrigger", 3)
            .load(root)
            .writeStream.foreachBatch(lambda frame, _: rows.extend(frame.selectExpr(*COLUMNS).collect()))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return digest(rows)


table = f"delta.`{root}`"
answer(
    {
        "delta": of(spark.read.format("delta").load(root)),
        "versions": [
            of(spark.read.format("delta").option("versionAsOf", each).load(root))
            for each in asked["versions"]
        ],
        "stream": streamed() if asked.get("stream") else None,
        "refused": {
            statement: refusal(lambda statement=statement: spark.sql(statement.format(table=table)).collect())
            for statement in asked.get("statements", ())
        },
    }
)
