"""A topic's columns as Spark has them, and a DataFrame's schema against a topic's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.exact import InexactError, cast_exactly
from txn_engine.files import is_convertible
from txn_engine.held import held_type
from txn_engine.log.data_files import conform
from txn_engine.reasons import Reason
from txn_engine.scan import TOPIC
from txn_engine.schemas.column_names import given_twice, names_unlike
from txn_engine.schemas.layout import OFFSET, PARTITION, TIMESTAMP, Schemas

_SIMPLE: dict[pa.DataType, DataType] = {
    pa.bool_(): spark_types.BooleanType(),
    pa.int8(): spark_types.ByteType(),
    pa.int16(): spark_types.ShortType(),
    pa.int32(): spark_types.IntegerType(),
    pa.int64(): spark_types.LongType(),
    pa.uint8(): spark_types.ShortType(),
    pa.uint16(): spark_types.IntegerType(),
    pa.uint32(): spark_types.LongType(),
    pa.uint64(): spark_types.DecimalType(20, 0),
    pa.float32(): spark_types.FloatType(),
    pa.float64(): spark_types.DoubleType(),
    pa.string(): spark_types.StringType(),
    pa.large_string(): spark_types.StringType(),
    pa.binary(): spark_types.BinaryType(),
    pa.large_binary(): spark_types.BinaryType(),
    pa.date32(): spark_types.DateType(),
    pa.date64(): spark_types.DateType(),
}
_DECIMAL_DIGITS_MAX = 38


def spark_schema(schema: pa.Schema, *, topic: str) -> StructType:
    """The topic's columns under Spark's types. Raises `InvalidRequestError` for a type that Spark has none for."""
    fields = []
    for field in schema:
        kind = _spark_type(held_type(field.type))
        if kind is None:
            raise InvalidRequestError(
                f"column {field.name!r} of type {field.type}",
                actor=f"spark with topic {topic!r}",
                expected="types that Spark has",
                action="use engine.scan() and a producer for this topic",
                reason=Reason.TYPE_UNKNOWN_TO_SPARK,
            )
        fields.append(StructField(field.name, kind, nullable=True))
    return StructType(fields)


def check_told_apart(spark: SparkSession, schema: pa.Schema, *, topic: str) -> None:
    """Raise `InvalidRequestError` for columns that this session takes for one: names that differ by case alone."""
    if str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return
    twins = _differing_by_case(schema)
    if twins is not None:
        raise InvalidRequestError(
            f"columns {twins[0]!r} and {twins[1]!r}",
            actor=f"spark with topic {topic!r}",
            expected="names that differ by more than case",
            action="set spark.sql.caseSensitive to true, or use engine.scan()",
            reason=Reason.COLUMN_NAMES_ALIKE,
        )


def _differing_by_case(fields: Iterable[pa.Field[Any]]) -> tuple[str, str] | None:
    """The first two columns, or members of one struct, whose names do."""
    seen: dict[str, str] = {}
    for field in fields:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            return other, field.name
        members = [field.type.field(number) for number in range(field.type.num_fields)]
        if (within := _differing_by_case(members)) is not None:
            return within
    return None


def check_same_columns(schemas: Mapping[str, StructType]) -> None:
    """Raise `InvalidRequestError` unless all these topics have the first one's columns, in whatever order: one
    DataFrame holds them all. It names the first that differs.
    """
    (first, wanted), *others = schemas.items()
    for topic, seen in others:
        for name in dict.fromkeys([*wanted.names, *seen.names]):
            kinds_of = [
                schema[name].dataType.simpleString() if name in schema.names else None
                for schema in (wanted, seen)
            ]
            if kinds_of[0] != kinds_of[1]:
                there, here = ("no such column" if kind is None else f"one of {kind}" for kind in kinds_of)
                raise InvalidRequestError(
                    f"column {name!r}: topic {topic!r} has {here}, topic {first!r} has {there}",
                    actor="read_topic",
                    expected="topics with the same columns",
                    action="read them one by one, and unite what they have in common",
                    reason=Reason.DIFFERENT_COLUMNS,
                )


def read_schema(schema: StructType, *, with_topic: bool) -> StructType:
    """What a read returns: the topic's columns, `_partition`, `_offset`, `_timestamp`; of several topics `_topic`."""
    own = [
        StructField(PARTITION, spark_types.IntegerType()),
        StructField(OFFSET, spark_types.LongType()),
        StructField(TIMESTAMP, spark_types.TimestampType()),
        StructField(TOPIC, spark_types.StringType()),
    ]
    return StructType([*schema.fields, *(own if with_topic else own[:-1])])


_READ_TYPES: dict[str, str] = {TOPIC: "string", PARTITION: "int", OFFSET: "bigint", TIMESTAMP: "timestamp"}
"""Columns that a read adds, by which a dead letter says where its row is from."""


def check_columns(seen: StructType, schema: pa.Schema, *, topic: str, has_letters: bool = False) -> None:
    """Raise `InvalidRecordError` unless these are the topic's columns, by name, of Spark's types for them.

    `has_letters`: rows that do not fit have a place to go, so a column may have a type of which some values may; and
    those that a read adds may be there too.
    """
    actor = f"write_topic to {topic!r}"
    wanted = spark_schema(schema, topic=topic)
    missing = [name for name in wanted.names if name not in seen.names]
    read = {
        field.name for field in seen if has_letters and _READ_TYPES.get(field.name) == _told(field.dataType)
    }
    extra = [name for name in seen.names if name not in wanted.names and name not in read]
    twice = given_twice(seen.names)
    if missing or extra or twice:
        raise InvalidRecordError(
            names_unlike(missing, extra, twice),
            actor=actor,
            expected=f"the columns {wanted.names}",
            reason=Reason.OTHER_COLUMNS,
        )
    for field in wanted:
        # simpleString leaves nullability out: whether there are nulls is seen in the rows
        given = seen[field.name].dataType
        is_wider = has_letters and _may_fit(given, schema.field(field.name).type)
        if _in_any_order(given) != _in_any_order(field.dataType) and not is_wider:
            raise InvalidRecordError(
                f"column {field.name!r} of type {_told(given)}",
                actor=actor,
                expected=_told(field.dataType),
                action="cast it; nothing was written",
                reason=Reason.TYPE_MISMATCH,
            )


def _told(kind: DataType) -> str:
    return kind.simpleString()


def _in_any_order(kind: DataType) -> object:
    """What is equal for equal types, whatever the order of a struct's members."""
    if isinstance(kind, StructType):
        members = [(field.name, _in_any_order(field.dataType)) for field in kind]
        return StructType, sorted(members, key=lambda member: member[0])
    if isinstance(kind, ArrayType):
        return ArrayType, _in_any_order(kind.elementType)
    if isinstance(kind, MapType):
        return MapType, _in_any_order(kind.keyType), _in_any_order(kind.valueType)
    return _told(kind)


def _may_fit(kind: DataType, wanted: pa.DataType) -> bool:
    """Whether a topic's type may hold values of a type of Spark's."""
    try:
        return is_convertible(to_arrow_type(kind, timezone="UTC"), wanted)
    except PySparkException:  # of which Arrow has none
        return False


def conform_to_topic(records: pa.Table, schemas: Schemas, *, topic: str) -> pa.Table:
    """Spark's records in the topic's Arrow types, nothing lost on the way. Raises `InvalidRecordError`."""
    columns, fields = [], []
    for name in records.schema.names:
        column, field = records.column(name), schemas.arrow.field(name)
        try:
            column = cast_exactly(column, field.type)
        except InexactError:
            raise InvalidRecordError(
                f"a value of column {name!r} that does not fit",
                actor=f"write_topic to {topic!r}",
                expected=str(field.type),
                action="round it as you mean it, or leave it out; nothing was written",
                reason=Reason.INEXACT_VALUE,
            ) from None
        columns.append(column)
        fields.append(pa.field(name, field.type))
    return conform(pa.Table.from_arrays(columns, schema=pa.schema(fields)), schemas, topic=topic)


def _spark_type(kind: pa.DataType) -> DataType | None:
    """Spark's type for what the Parquet file of such a column holds; None where there is none."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kinds.is_fixed_size_binary(kind):
        return spark_types.BinaryType()
    if kinds.is_decimal(kind):
        fits = kind.precision <= _DECIMAL_DIGITS_MAX and kind.scale >= 0
        return spark_types.DecimalType(kind.precision, kind.scale) if fits else None
    if kinds.is_timestamp(kind):
        if kind.unit == "ns":  # Spark counts microseconds
            return None
        return spark_types.TimestampNTZType() if kind.tz is None else spark_types.TimestampType()
    return _nested_type(kind)


def _nested_type(kind: pa.DataType) -> DataType | None:
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        element = _spark_type(kind.value_type)
        return None if element is None else ArrayType(element)
    if kinds.is_map(kind):
        key, item = _spark_type(kind.key_type), _spark_type(kind.item_type)
        return None if key is None or item is None else MapType(key, item)
    if kinds.is_struct(kind):
        members = [(field.name, _spark_type(field.type)) for field in kind]
        if any(member is None for _, member in members):
            return None
        return StructType([StructField(name, member) for name, member in members if member is not None])
    return None
