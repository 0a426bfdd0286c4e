"""Parquet field ids of a topic's data files: by them columns are told apart where names do not do (docs/FORMAT.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

_KEY: Final = b"PARQUET:field_id"
OWN_IDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "_offset_delta": 2_147_483_001,
        "_timestamp": 2_147_483_002,
        "log_partition": 2_147_483_003,
        "log_base_offset": 2_147_483_004,
    }
)
"""Of what is not a topic's column: the first two are in data files, the others are columns of the Iceberg view alone.

No topic has so many columns that it gets there; Iceberg keeps those above 2,147,483,447 for itself.
"""


def with_id(field: pa.Field[Any], number: int, inside: int) -> tuple[pa.Field[Any], int]:
    """The field with this id and no other metadata, and the first id that is free behind those inside it.

    What is inside has ids from `inside` on, depth first: a struct's members, a list's elements, a map's keys and
    values.
    """
    ids = count(inside)
    found = _with_id(field, number, ids)
    return found, next(ids)


def with_own_id(field: pa.Field[Any]) -> pa.Field[Any]:
    """The field of this name, which is not a topic's column, with its id."""
    return field.with_metadata({_KEY: str(OWN_IDS[field.name]).encode()})


def field_id(field: pa.Field[Any]) -> int:
    """The id that the field was given."""
    return int((field.metadata or {})[_KEY])


def other_field_id(found: pa.Schema, right: pa.Schema) -> str | None:
    """What of the ids of a data file's columns is not as it is in `right`, both as they are stored; None where nothing
    is, or where the file has none at all: then columns go by their names.
    """
    ids = dict(_ids(found, ""))
    if not any(number is not None for number in ids.values()):
        return None
    for path, number in _ids(right, ""):
        if ids.get(path) != number:
            seen = "no field id" if ids.get(path) is None else f"field id {ids[path]}"
            return f"column {path!r} with {seen}, not {number}"
    return None


def _ids(fields: Iterable[pa.Field[Any]], above: str) -> Iterator[tuple[str, int | None]]:
    """The ids of the fields and of those inside them, by their dotted paths."""
    for field in fields:
        held = (field.metadata or {}).get(_KEY)
        yield above + field.name, None if held is None else int(held)
        kind: Any = field.type
        is_map = pa.types.is_map(kind)
        inside = [kind.key_field, kind.item_field] if is_map else map(kind.field, range(kind.num_fields))
        yield from _ids(inside, f"{above}{field.name}.")


def _with_id(field: pa.Field[Any], number: int, inside: Iterator[int]) -> pa.Field[Any]:
    metadata = {_KEY: str(number).encode()}
    return pa.field(field.name, _inside(field.type, inside), field.nullable, metadata)


def _inside(kind: Any, ids: Iterator[int]) -> Any:
    """The type with ids for what is inside it."""
    if pa.types.is_struct(kind):
        return pa.struct([_with_id(kind.field(at), next(ids), ids) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        key: Any = _with_id(kind.key_field, next(ids), ids)
        item: Any = _with_id(kind.item_field, next(ids), ids)
        return pa.map_(key, item, kind.keys_sorted)
    for is_such, such in _LISTS:
        if is_such(kind):
            return such(_with_id(kind.value_field, next(ids), ids))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_with_id(kind.value_field, next(ids), ids), kind.list_size)
    if isinstance(kind, pa.BaseExtensionType):
        _inside(kind.storage_type, ids)  # which are counted, though Arrow takes none for them
    return kind


_LISTS: Final[tuple[tuple[Any, Any], ...]] = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
)
