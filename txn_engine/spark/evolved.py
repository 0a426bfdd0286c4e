"""The columns of a topic in Spark, made of what files of another version of its schema have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from txn_engine.schemas.layout import Schemas
from txn_engine.schemas.plan import Source, sources
from txn_engine.spark.columns import spark_schema


def made_of(schemas: Schemas, file_version: int, *, topic: str) -> list[Column]:
    """The columns that are asked for, in files of that version. Raises what `sources` raises."""
    found = sources(schemas.held, file_version, schemas.arrow.names, topic=topic)
    kinds = spark_schema(schemas.arrow, topic=topic)
    return [_made(each, kinds[each.name].dataType) for each in found]


def _made(source: Source, kind: Any) -> Column:
    if source.stored is None:
        return _value(source.fill).cast(kind).alias(source.name)
    stored = sf.col("`" + source.stored.replace("`", "``") + "`")
    if source.is_cast:
        stored = stored.cast(kind)
    return stored if source.stored == source.name and not source.is_cast else stored.alias(source.name)


def _value(value: Any) -> Column:
    """A scalar, to be cast to its type: whatever zone the session has."""
    if value is None:
        return sf.lit(None)
    if not pa.types.is_temporal(value.type):
        return sf.lit(value.as_py())
    kind: Any = value.type
    if kind == pa.date32():
        return sf.date_from_unix_date(sf.lit(value.cast(pa.int32()).as_py()))
    if kind.tz is None:
        return sf.to_timestamp_ntz(sf.lit(str(value.as_py())))
    return sf.timestamp_micros(sf.lit(value.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py()))
