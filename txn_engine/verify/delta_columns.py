"""What a Delta table says of its columns, held against the versions of its topic's schema (docs/FORMAT.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from txn_engine.verify.schema_versions import Version

_TYPES: Final = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
    "date64[ms]": "date",
}
_OWN: Final = {"_offset_delta": ("long", False), "_timestamp": ("timestamp", False)}
_WIDENING: Final = "typeWidening"
Wrong = tuple[str, str] | None


def wrong_columns(
    metadata: Mapping[str, Any], protocol: Mapping[str, Any], number: int, versions: Sequence[Version]
) -> Wrong:
    """What the table says of version `number` of the topic's columns and should not, and what it should; None where it
    is right, in files of all versions up to it.
    """
    if not 0 <= number < len(versions):
        return f"version {number} of the columns", f"at most {len(versions) - 1}, as the topic's changes have"
    version = versions[number]
    right = {column.name: (_type(column.type), column.nullable) for column in version.columns} | _OWN
    fields = json.loads(metadata["schemaString"])["fields"]
    said = {field["name"]: (_outer(field["type"]), field["nullable"]) for field in fields}
    if list(said) != list(right) or said != right:
        return f"columns {said}"[:200], f"{right}, as the topic has in version {number}"[:200]
    lost = _not_found(version)
    if lost is not None:
        return lost, "columns that readers find in each file by their names, or as nulls"
    narrow = _narrower(versions[: number + 1])
    told = {field["name"]: field["metadata"]["delta.typeChanges"] for field in fields if field["metadata"]}
    if told != narrow:
        return f"changes of types {told}"[:200], f"{narrow}"[:200]
    asked = protocol.get("readerFeatures", ()) if protocol.get("minReaderVersion") == 3 else ()
    if narrow and _WIDENING not in asked:
        return f"reader features {list(asked)}"[:200], f"{_WIDENING}: files have narrower types"
    return None


def _type(kind: Any) -> str:
    """Delta's name of a type; of one with something inside, what kind of it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_map(kind):
        return "map"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "array"
    return "struct" if pa.types.is_struct(kind) else _TYPES.get(str(kind), f"nothing for {kind}")


def _outer(said: Any) -> Any:
    return said["type"] if isinstance(said, dict) else said


def _not_found(version: Version) -> str | None:
    """A column that readers would find by its name in some files alone, or for which they would take another one."""
    for column, number in zip(version.columns, version.ids, strict=True):
        if number in version.filled:
            return f"column {column.name!r}, which has a default in older files"
        for name, owner in version.retired.items():
            if owner == number or name.casefold() == column.name.casefold():
                return f"column {column.name!r}, and {name!r} in older files"
    return None


def _narrower(versions: Sequence[Version]) -> dict[str, list[dict[str, str]]]:
    """By the last version's columns the steps from their first type, of those that had another one."""
    last = versions[-1]
    found = {}
    for column, number in zip(last.columns, last.ids, strict=True):
        types = [
            _type(each.columns.field(each.ids.index(number)).type) for each in versions if number in each.ids
        ]
        steps = [
            {"fromType": before, "toType": after} for before, after in pairwise(types) if before != after
        ]
        if steps:
            found[column.name] = steps
    return found
