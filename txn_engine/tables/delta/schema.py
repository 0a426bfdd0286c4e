"""A topic's columns by Delta's types: each exactly, or the topic is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.log.topics import Topic
from txn_engine.schemas.layout import OFFSET_DELTA, TIMESTAMP, TIMESTAMP_TYPE

_PLAIN: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
}
_TIMESTAMP_UNITS: Final = ("s", "ms", "us")
NTZ: Final = "timestamp_ntz"
DECIMAL_DIGITS: Final = 38


def delta_schema(topic: Topic) -> str:
    """The table's schema as a commit has it. Raises `InvalidRequestError` naming topic, column and type for one that
    Delta has not.
    """
    fields = [
        *topic.schema,
        pa.field(OFFSET_DELTA, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, TIMESTAMP_TYPE, nullable=False),
    ]
    return json.dumps(_struct(fields, topic.name, ""), separators=(",", ":"))


def has_ntz(schema: str) -> bool:
    """Whether a column is a timestamp without a time zone, which readers have to know by a feature's name."""
    return f'"{NTZ}"' in schema


def _struct(fields: Iterable[pa.Field[Any]], topic: str, inside: str) -> dict[str, Any]:
    every = list(fields)
    folded = Counter(field.name.casefold() for field in every)
    for field in every:
        if folded[field.name.casefold()] > 1:
            raise _refused(
                topic,
                inside + field.name,
                "which another one is but for its case",
                "names that differ in more",
            )
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _type(field.type, topic, inside + field.name),
                "nullable": field.nullable,
                "metadata": {},
            }
            for field in every
        ],
    }


def _type(kind: pa.DataType, topic: str, column: str) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit in _TIMESTAMP_UNITS:
        return NTZ if kind.tz is None else "timestamp"
    if pa.types.is_struct(kind):
        return _struct([kind.field(at) for at in range(kind.num_fields)], topic, f"{column}.")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {
            "type": "array",
            "elementType": _type(kind.value_type, topic, f"{column}.element"),
            "containsNull": kind.value_field.nullable,
        }
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type, topic, f"{column}.key"),
            "valueType": _type(kind.item_type, topic, f"{column}.value"),
            "valueContainsNull": kind.item_field.nullable,
        }
    raise _refused(
        topic, column, f"of type {kind}", "types that Delta has: no unsigned numbers, no nanoseconds"
    )


def _refused(topic: str, column: str, what: str, expected: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"column {column!r} {what}",
        actor=f"publish {topic!r} as delta",
        expected=expected,
        action="publish it in another format; nothing was written",
    )
