"""A topic's columns by Iceberg's types, under the ids that its data files have: exactly, or the topic is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.schemas.column_names import given_twice
from txn_engine.schemas.field_ids import OWN_IDS, field_id
from txn_engine.schemas.layout import Layout
from txn_engine.tables.type_families import family_of

LOG_PARTITION: Final = "log_partition"
LOG_BASE_OFFSET: Final = "log_base_offset"
"""Not in the data files: readers have them from the manifests. `_partition` is a name that Iceberg keeps."""
_VIEW_COLUMNS: Final = ((LOG_PARTITION, "int"), (LOG_BASE_OFFSET, "long"))
_PLAIN: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.time64("us"): "time",
}
_ANNOTATED: Final = (pa.int8(), pa.int16())
_TIMESTAMP_UNITS: Final = ("s", "ms", "us")
_DECIMAL_DIGITS: Final = 38


def iceberg_schemas(topic: Topic) -> list[dict[str, Any]]:
    """The table's schemas as metadata has them: one for each version of the topic's that can have been published, the
    present one last. Raises `InvalidRequestError` naming topic, column and type for what Iceberg has not, and where
    files may have no ids.
    """
    if topic.layouts and not topic.has_field_ids:
        raise InvalidRequestError(
            f"topic {topic.name!r}, whose columns were changed and whose first files may have no field ids",
            actor=f"publish {topic.name!r} as iceberg",
            expected="files with the ids of their columns: Iceberg's readers go by them",
            action="copy it into another topic and publish that; nothing was written",
        )
    *before, now = topic.schemas.layouts
    found = []
    for layout in before:
        with suppress(InvalidRequestError):  # what was never published
            found.append(_schema(topic, layout))
    return [*found, _schema(topic, now)]


def _schema(topic: Topic, layout: Layout) -> dict[str, Any]:
    taken = [name for name, _ in _VIEW_COLUMNS if name in layout.by_name]
    if taken:
        raise _refused(
            topic,
            taken[0],
            "of a name that the Iceberg table has itself",
            "another name",
            reason=Reason.NAME_TAKEN_BY_TABLE,
        )
    filled = [column.name for column in layout.columns if column.default is not None]
    if filled:
        raise _refused(
            topic,
            filled[0],
            "with a default for older records",
            "nulls there, as Iceberg's format 2 has them",
            "copy it into another topic: `txn-engine topics copy`",
            reason=Reason.COLUMN_WITH_DEFAULT,
        )
    fields = _fields(layout.physical, topic, "")
    if alike := given_twice([*_paths(layout.physical)]):
        raise _refused(
            topic,
            alike[0],
            "and a field of a struct of the same path",
            "paths that differ: Iceberg writes a field inside another one with a dot",
            reason=Reason.COLUMN_NAMES_ALIKE,
        )
    view = [
        {"id": OWN_IDS[name], "name": name, "required": False, "type": kind} for name, kind in _VIEW_COLUMNS
    ]
    return {"type": "struct", "schema-id": layout.version, "fields": fields + view}


def reader_properties(topic: Topic) -> dict[str, str]:
    """What the table asks of readers. Spark's batches of columns fail on an int8 or int16 that became a long (Iceberg's
    issue 16341), where its rows are right. A version that had such a column can be read for a while.
    """
    every = [each for layout in topic.schemas.layouts for each in layout.columns]
    narrow = {each.id for each in every if each.type in _ANNOTATED}
    if any(each.id in narrow and each.type == pa.int64() for each in every):
        return {"read.parquet.vectorization.enabled": "false"}
    return {}


def partition_spec() -> dict[str, Any]:
    """By partition and first offset: a file's values of them stand in its manifest, and readers skip files by them."""
    fields = [
        {"source-id": OWN_IDS[name], "field-id": number, "transform": "identity", "name": name}
        for number, (name, _) in enumerate(_VIEW_COLUMNS, 1000)
    ]
    return {"spec-id": 0, "fields": fields}


def name_mapping(topic: Topic) -> str:
    """By names the ids, for files that have none of their own."""
    return json.dumps(_mapped(topic.schemas.layout.physical), separators=(",", ":"))


def _mapped(fields: Iterable[pa.Field[Any]]) -> list[dict[str, Any]]:
    found = []
    for field in fields:
        mapped: dict[str, Any] = {"field-id": field_id(field), "names": [field.name]}
        if inside := _mapped(_inside(field.type)):
            mapped["fields"] = inside
        found.append(mapped)
    return found


def _paths(fields: Iterable[pa.Field[Any]], inside: str = "") -> Iterator[str]:
    """The names of the fields and of those inside them, as Iceberg has them."""
    for field in fields:
        yield inside + field.name
        yield from _paths(_inside(field.type), f"{inside}{field.name}.")


def _inside(kind: Any) -> Iterator[pa.Field[Any]]:
    """What is inside a type, by the names that Iceberg has for it."""
    if pa.types.is_struct(kind):
        yield from (kind.field(at) for at in range(kind.num_fields))
    elif pa.types.is_map(kind):
        yield kind.key_field.with_name("key")
        yield kind.item_field.with_name("value")
    elif _is_list(kind):
        yield kind.value_field.with_name("element")


def _fields(fields: Iterable[pa.Field[Any]], topic: Topic, inside: str) -> list[dict[str, Any]]:
    return [
        {
            "id": field_id(field),
            "name": field.name,
            "required": not field.nullable,
            "type": _type(field.type, topic, inside + field.name),
        }
        for field in fields
    ]


def _type(kind: Any, topic: Topic, column: str) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit in _TIMESTAMP_UNITS:
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if pa.types.is_struct(kind) and kind.num_fields:
        return {"type": "struct", "fields": _fields(_inside(kind), topic, f"{column}.")}
    if pa.types.is_map(kind):
        key, value = _inside(kind)
        return {
            "type": "map",
            "key-id": field_id(key),
            "key": _type(key.type, topic, f"{column}.key"),
            "value-id": field_id(value),
            "value-required": not value.nullable,
            "value": _type(value.type, topic, f"{column}.value"),
        }
    if _is_list(kind):
        (element,) = _inside(kind)
        return {
            "type": "list",
            "element-id": field_id(element),
            "element-required": not element.nullable,
            "element": _type(element.type, topic, f"{column}.element"),
        }
    raise _refused(
        topic,
        column,
        f"of type {kind}",
        f"a type that Iceberg has; it has no {family_of(kind, has_times=True)}",
        reason=Reason.UNSUPPORTED_TYPE,
    )


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _refused(
    topic: Topic,
    column: str,
    what: str,
    expected: str,
    action: str = "publish it in another format",
    *,
    reason: StrEnum,
) -> InvalidRequestError:
    return InvalidRequestError(
        f"column {column!r} {what}",
        actor=f"publish {topic.name!r} as iceberg",
        expected=expected,
        action=f"{action}; nothing was written",
        reason=reason,
    )
