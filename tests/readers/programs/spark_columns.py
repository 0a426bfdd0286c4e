"""Spark reads each version of the tables of topics whose columns changed, as Delta or as Iceberg."""

from __future__ import annotations

from pyspark.sql import functions as sql
from pyspark.sql.types import TimestampType
from rows import answer, digest_of, request
from spark import session

asked = request()
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
spark = session(**(DELTA if asked["format"] == "delta" else {}))


def of(root: str, version: int | None) -> list[object]:
    reader = spark.read.format(asked["format"])
    frame = (reader if version is None else reader.option("versionAsOf", version)).load(root)
    columns = [
        sql.unix_millis(f"`{field.name}`") if isinstance(field.dataType, TimestampType) else f"`{field.name}`"
        for field in frame.schema.fields
    ]
    return digest_of(frame.columns, frame.select(*columns).collect())


answer([[of(table["root"], each) for each in (None, *table["versions"])] for table in asked["tables"]])
