"""What an Iceberg table says of its columns, held against the versions of its topic's schema (docs/FORMAT.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from txn_engine.verify.schema_versions import Version

_OWN: Final = {
    "_offset_delta": (2_147_483_001, "long", True),
    "_timestamp": (2_147_483_002, "timestamptz", True),
    "log_partition": (2_147_483_003, "int", False),
    "log_base_offset": (2_147_483_004, "long", False),
}
_TYPES: Final = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
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


def wrong_schemas(fields: Mapping[str, Any], versions: Sequence[Version]) -> tuple[str, str] | None:
    """What the table's schemas say and should not, and what they should; None where all are right: each of a version of
    the topic's columns, by their ids, the present one the last, and one for each snapshot.
    """
    known = []
    for each in fields["schemas"]:
        wrong = _wrong_schema(each, versions)
        if wrong is not None:
            return wrong
        known.append(each["schema-id"])
    if known != sorted(set(known)) or fields["current-schema-id"] != known[-1]:
        return f"schema {fields['current-schema-id']!r}"[:200], f"the last one of {known}"[:200]
    shown = [each.get("schema-id") for each in fields["snapshots"]]
    if not set(shown) <= set(known) or shown != sorted(shown):
        return f"snapshots of the schemas {shown}"[:200], f"some of {known}, in this order"[:200]
    return None


def _wrong_schema(held: Mapping[str, Any], versions: Sequence[Version]) -> tuple[str, str] | None:
    number = held["schema-id"]
    if type(number) is not int or not 0 <= number < len(versions):
        return f"schema {number!r}"[:200], f"at most {len(versions) - 1}, as the topic's changes have"
    version = versions[number]
    ids = dict(zip(version.columns.names, version.ids, strict=True))
    right = {
        each.name: (ids[each.name], _type(each.type), not each.nullable) for each in version.columns
    } | _OWN
    said = {each["name"]: (each["id"], _outer(each["type"]), each["required"]) for each in held["fields"]}
    if said != right or list(said) != list(right):
        return f"columns {said}"[:200], f"{right}, as the data files have"[:200]
    if version.filled:
        return f"schema {number}, with a column that has a default in older files", "no such version"
    return None


def _type(kind: Any) -> str:
    """Iceberg's name of a type; of one with something inside, what kind of it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if pa.types.is_map(kind):
        return "map"
    if "list" in str(kind).partition("<")[0]:
        return "list"
    return "struct" if pa.types.is_struct(kind) else _TYPES.get(str(kind), f"nothing for {kind}")


def _outer(said: Any) -> Any:
    return said["type"] if isinstance(said, dict) else said
