"""A topic's columns by Delta's types: each exactly, or the topic is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import OFFSET_DELTA, TIMESTAMP, TIMESTAMP_TYPE, Column, Layout
from txn_engine.tables.type_families import family_of

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
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
}
_TIMESTAMP_UNITS: Final = ("s", "ms", "us")
NTZ: Final = "timestamp_ntz"
TYPE_CHANGES: Final = "delta.typeChanges"
_COPY: Final = "`txn-engine topics copy`"
_OTHERWISE: Final = f"publish it as iceberg, or copy it into another topic: {_COPY}"
DECIMAL_DIGITS: Final = 38


def delta_schema(topic: Topic) -> str:
    """The table's schema as a commit has it: the topic's present columns, over the files of all its versions. Raises
    `InvalidRequestError` naming topic, column and type for what Delta has not, or its readers would take wrongly.
    """
    layout = topic.schemas.layout
    _check_names(topic.name, layout)
    fields = [
        *layout.held.arrow,
        pa.field(OFFSET_DELTA, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, TIMESTAMP_TYPE, nullable=False),
    ]
    found = _struct(fields, topic.name, "")
    for held, column in zip(found["fields"], layout.columns, strict=False):
        if changes := _type_changes(topic, column):
            held["metadata"] = {TYPE_CHANGES: changes}
    return json.dumps(found, separators=(",", ":"))


def reader_features(schema: str) -> list[str]:
    """What readers have to know by a feature's name: timestamps without a time zone, and files with narrower types."""
    asked = ((NTZ, "timestampNtz"), (TYPE_CHANGES, "typeWidening"))
    return [feature for text, feature in asked if f'"{text}"' in schema]


def _check_names(topic: str, layout: Layout) -> None:
    """Readers find a column in each file by its present name, and give nulls where there is none, whatever a mapping of
    columns says: deltalake and DuckDB do. Spark's ask for no case.
    """
    for column in layout.columns:
        if column.default is not None:
            seen, expected = "with a default for older records", "nulls there, as Delta has them"
            copy = f"copy it into another topic: {_COPY}"
            raise _refused(topic, column.name, seen, expected, copy, reason=Reason.COLUMN_WITH_DEFAULT)
        for name, owner in layout.retired:
            if owner == column.id:
                seen, expected = (
                    f"which was called {name!r}",
                    "one name in all files: Delta's readers go by it",
                )
                raise _refused(
                    topic, column.name, seen, expected, _OTHERWISE, reason=Reason.COLUMN_WAS_RENAMED
                )
            if name.casefold() == column.name.casefold():
                seen = f"which is {name!r} but for its case, as another was called"
                expected = "names that differ in more: some of Delta's readers do not look at it"
                raise _refused(
                    topic, column.name, seen, expected, _OTHERWISE, reason=Reason.COLUMN_NAMES_ALIKE
                )


def _type_changes(topic: Topic, column: Column) -> list[dict[str, Any]]:
    """Each step from the type that the column had at first to the present one."""
    layouts = topic.held.schemas.layouts[: topic.version + 1]
    held = [each.by_id[column.id].type for each in layouts if column.id in each.by_id]
    names = [_type(kind, topic.name, column.name) for kind in held]
    return [{"fromType": before, "toType": after} for before, after in pairwise(names) if before != after]


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
                reason=Reason.COLUMN_NAMES_ALIKE,
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
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
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
        topic,
        column,
        f"of type {kind}",
        f"a type that Delta has; it has no {family_of(kind)}",
        reason=Reason.UNSUPPORTED_TYPE,
    )


def _refused(
    topic: str,
    column: str,
    what: str,
    expected: str,
    action: str = "publish it in another format",
    *,
    reason: StrEnum,
) -> InvalidRequestError:
    return InvalidRequestError(
        f"column {column!r} {what}",
        actor=f"publish {topic!r} as delta",
        expected=expected,
        action=f"{action}; nothing was written, and what was published before stays",
        reason=reason,
    )
