"""The columns of a read by `format("txn_engine")`, and a file's records under them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as kinds
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from txn_engine.errors import InvalidRecordError, InvalidRequestError, SchemaChangedError
from txn_engine.exact import InexactError, cast_exactly
from txn_engine.held import laid_out
from txn_engine.log.topics import KAFKA_SCHEMA, Topic
from txn_engine.reasons import Reason
from txn_engine.scan import TOPIC
from txn_engine.schemas.layout import OFFSET, PARTITION, TIMESTAMP
from txn_engine.spark.columns import spark_schema
from txn_engine.spark.source.options import ACTOR, ReadOptions

OWN: Final = (
    StructField(TOPIC, kinds.StringType()),
    StructField(PARTITION, kinds.IntegerType()),
    StructField(OFFSET, kinds.LongType()),
    StructField(TIMESTAMP, kinds.TimestampType()),
)
KAFKAS: Final = (
    StructField("topic", kinds.StringType()),
    StructField("partition", kinds.IntegerType()),
    StructField("offset", kinds.LongType()),
    StructField("timestamp", kinds.TimestampType()),
    StructField("timestampType", kinds.IntegerType()),
)
RANGES: Final = StructType(
    [
        StructField("topic", kinds.StringType()),
        StructField("incarnation", kinds.LongType()),
        StructField("partition", kinds.IntegerType()),
        StructField("start", kinds.LongType()),
        StructField("end", kinds.LongType()),
    ]
)
_KAFKA_FROM: Final = {"topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "timestamp": TIMESTAMP}
_CREATE_TIME: Final = 0
_ROWS: Final = 65_536


def source_schema(topics: Sequence[Topic], options: ReadOptions) -> StructType:
    """The columns of a read of these topics. Raises `InvalidRequestError` where they are not the same in all, and where
    a topic has one of Kafka's names itself.
    """
    first, *others = topics
    fields = spark_schema(first.schema, topic=first.name)
    for other in others:
        _check_same(first.name, fields, other.name, spark_schema(other.schema, topic=other.name))
    if options.headers and "headers" not in fields.names:
        raise InvalidRequestError(
            f"option 'includeHeaders': topic {first.name!r} has no column 'headers'",
            actor=ACTOR,
            expected="a topic with Kafka's columns",
            action="leave it out",
            reason=Reason.NO_HEADERS,
        )
    kafkas = KAFKAS if options.kafka_columns else ()
    own = {name.lower(): name for name in fields.names}  # to Spark, names that differ by case alone are one
    for field in kafkas:
        twin = own.get(field.name.lower())
        if twin is not None:
            raise InvalidRequestError(
                f"option 'includeKafkaColumns': topic {first.name!r} has a column {twin!r} of its own",
                actor=ACTOR,
                expected="a topic without Kafka's names",
                action=f"leave it out, and use _{field.name}",
                reason=Reason.COLUMN_OF_KAFKAS_NAME,
            )
    return StructType([*fields, *OWN, *kafkas])


@dataclass(frozen=True, slots=True)
class KafkaRows:
    """What Spark's Kafka sink takes, as rows of a topic that has Kafka's columns: text is its bytes in UTF-8, and a key
    or headers that are not there are null. `given`: the columns that come, by place.
    """

    given: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        for batch in batches:
            seen = dict(zip(self.given, batch.columns, strict=True))
            columns = [_kafkas(seen.get(field.name), field.type, batch.num_rows) for field in KAFKA_SCHEMA]
            yield pa.RecordBatch.from_arrays(columns, names=KAFKA_SCHEMA.names)


def kafka_rows(seen: StructType, topic: Topic) -> KafkaRows | None:
    """How rows of these columns become the topic's; None where they are not what Spark's Kafka sink takes."""
    own = {
        field.name: field.dataType.simpleString() for field in spark_schema(topic.schema, topic=topic.name)
    }
    if topic.schema != KAFKA_SCHEMA or "value" not in seen.names or len(set(seen.names)) < len(seen.names):
        return None
    for field in seen:
        kind = field.dataType.simpleString()
        if kind != own.get(field.name) and not (kind == "string" and field.name in ("key", "value")):
            return None
    return KafkaRows(tuple(seen.names))


def _kafkas(column: Any, kind: Any, rows: int) -> Any:
    if column is None:
        return pa.nulls(rows, kind)
    return column.cast(kind) if pa.types.is_binary(kind) else column


def check_wanted(wanted: StructType, full: StructType) -> None:
    """Raise unless each column that a read was given by `.schema(...)` is one of the topic's, of its type."""
    found = _unlike(wanted, full)
    if found is not None:
        seen, expected, action, reason = found
        raise InvalidRequestError(
            f"{seen} in .schema(...)", actor=ACTOR, expected=expected, action=action, reason=reason
        )


def check_still_there(known: StructType, full: StructType) -> None:
    """Raise `SchemaChangedError` unless each column that a stream began with is still one of the topic's, of its type:
    Spark lets no running query have others.
    """
    found = _unlike(known, full)
    if found is not None:
        seen, expected, _, reason = found
        raise SchemaChangedError(
            f"a running stream with {seen}, of a topic whose columns changed",
            actor=ACTOR,
            expected=expected,
            action="start the query again: it goes on from its checkpoint, in the columns of now",
            reason=reason,
        )


def _unlike(wanted: StructType, full: StructType) -> tuple[str, str, str | None, Reason] | None:
    """The first column that is not one of the topic's as it is: what was seen, what expected, what to do, and why."""
    for field in wanted:
        if field.name not in full.names:
            return f"column {field.name!r}", f"some of {full.names}", None, Reason.UNKNOWN_COLUMN
        kind = full[field.name].dataType.simpleString()
        if field.dataType.simpleString() != kind:
            seen = f"column {field.name!r} of type {field.dataType.simpleString()}"
            return seen, kind, "read it as it is, and cast it", Reason.TYPE_MISMATCH
    return None


def stored_columns(wanted: StructType) -> list[str]:
    """What has to be read of a file for these columns; its offsets where nothing of it is asked for."""
    names = [_KAFKA_FROM.get(name, name) for name in wanted.names]
    return list(dict.fromkeys(name for name in names if name not in (TOPIC, "timestampType"))) or [OFFSET]


def shaped(table: pa.Table, topic: Topic, wanted: StructType) -> Iterator[pa.RecordBatch]:
    """Records under these columns, in the types that Spark takes."""
    target = to_arrow_schema(wanted, timezone="UTC")
    columns = [_as_spark_has_it(_column(table, topic, field.name), field, topic) for field in target]
    yield from pa.Table.from_arrays(columns, schema=target).to_batches(max_chunksize=_ROWS)


def _as_spark_has_it(column: pa.ChunkedArray[Any], field: pa.Field[Any], topic: Topic) -> Any:
    try:
        return laid_out(column, field.type, cast_exactly)
    except InexactError:
        raise InvalidRecordError(
            f"column {field.name!r} of topic {topic.name!r} has a value that Spark's type does not have",
            actor=ACTOR,
            expected="times of at most 292,000 years from 1970: Spark counts microseconds",
            action="leave the column out in .schema(...), or read it by engine.scan()",
            reason=Reason.INEXACT_VALUE,
        ) from None


def _column(table: pa.Table, topic: Topic, name: str) -> pa.ChunkedArray[Any]:
    if name in topic.schema.names:
        return table.column(name)
    if name in (TOPIC, "topic"):
        return pa.chunked_array([pa.repeat(pa.scalar(topic.name, pa.string()), table.num_rows)])
    if name == "timestampType":
        return pa.chunked_array([pa.repeat(pa.scalar(_CREATE_TIME, pa.int32()), table.num_rows)])
    return table.column(_KAFKA_FROM.get(name, name))


def _check_same(name: str, fields: StructType, other: str, others: StructType) -> None:
    if fields.simpleString() == others.simpleString():
        return
    ours, theirs = ({f"{f.name} {f.dataType.simpleString()}" for f in each} for each in (fields, others))
    odd = sorted(ours ^ theirs)
    what = f"{odd[0]!r} is in one alone" if odd else "their order differs"
    raise InvalidRequestError(
        f"topics {name!r} and {other!r} have different columns: {what}",
        actor=ACTOR,
        expected="topics with the same columns",
        action="read them apart",
        reason=Reason.DIFFERENT_COLUMNS,
    )
