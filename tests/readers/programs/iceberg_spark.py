"""Spark with Iceberg reads a topic's table: the newest state, older ones, and a stream. Then it tries every
kind of write."""

from __future__ import annotations

import tempfile

from rows import answer, digest, refusal, request
from spark import session

COLUMNS = (
    "account",
    "cast(amount AS string)",
    "unix_millis(_timestamp)",
    "log_partition",
    "log_base_offset + _offset_delta",
)

asked = request()
root = asked["root"]
folder, _, name = root.rpartition("/")
warehouse, _, incarnation = folder.rpartition("/")
spark = session(
    **{
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.views": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.views.type": "hadoop",
        "spark.sql.catalog.views.warehouse": warehouse,
        **asked.get("settings", {}),
    }
)


def of(frame) -> list[object]:
    return digest(frame.selectExpr(*COLUMNS).collect())


def streamed() -> list[object]:
    """All records that a stream of the table gets from its first snapshot on."""
    rows: list = []
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = spark.readStream.format("iceberg").option("streaming-skip-overwrite-snapshots", "true")
        query = (
            stream.option("streaming-skip-delete-snapshots", "true")
            .option("streaming-max-files-per-micro-batch", 3)
            .load(root)
            .writeStream.foreachBatch(lambda frame, _: rows.extend(frame.selectExpr(*COLUMNS).collect()))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return digest(rows)


names = {"table": f"views.`{incarnation}`.{name}", "quoted": f"`{incarnation}`.{name}"}
answer(
    {
        "iceberg": of(spark.read.format("iceberg").load(asked["iceberg"])),
        "root": of(spark.read.format("iceberg").load(root)),
        "snapshots": [
            of(spark.read.format("iceberg").option("versionAsOf", each).load(root))
            for each in asked["snapshots"]
        ],
        "tags": [
            of(spark.sql(f"SELECT * FROM {names['table']} VERSION AS OF '{each}'"))
            for each in asked.get("tags", ())
        ],
        "stream": streamed() if asked.get("stream") else None,
        "refused": {
            statement: refusal(lambda statement=statement: spark.sql(statement.format(**names)).collect())
            for statement in asked.get("statements", ())
        },
    }
)
