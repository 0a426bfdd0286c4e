"""Versions of a topic's schema as its changes have them, judged by the auditor's own rules (docs/FORMAT.md)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from storage.arrow_schema import read_schema
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.field_ids import ids_inside

_INTEGERS: Final = ("int8", "int16", "int32", "int64")
_WIDER: Final = (
    _INTEGERS,
    tuple(f"u{kind}" for kind in _INTEGERS),
    ("float", "double"),
)


class Version(NamedTuple):
    """The columns of one version, each with its id and the first id of what is inside it; the names of others, each
    with the id of the column that has had it. filled: ids of columns that have a default in older files.
    """

    columns: pa.Schema
    ids: tuple[int, ...]
    inside: tuple[int, ...]
    free: int
    retired: Mapping[str, int]
    filled: frozenset[int] = frozenset()

    @property
    def owners(self) -> dict[str, int]:
        """Every name, and the id of the column whose it is or was."""
        return dict(self.retired) | dict(zip(self.columns.names, self.ids, strict=True))


def first_version(columns: pa.Schema) -> Version:
    """What a topic is made with: 1 to n, and on from there what is inside."""
    free = len(columns) + 1
    inside = []
    for column in columns:
        inside.append(free)
        free += ids_inside(column.type)
    return Version(columns, tuple(range(1, len(columns) + 1)), tuple(inside), free, {})


def versions_of(columns: pa.Schema, changes: Sequence[Mapping[str, Any]]) -> list[Version]:
    """All versions of a topic's schema, by its sound changes in order. MalformedError for what cannot be."""
    found = [first_version(columns)]
    said: list[Any] = []
    for change in changes:
        schema = change.get("schema")
        if schema is None and said:
            raise MalformedError(f"change {change.get('number')!r} without the versions of those before it")
        if schema is None:
            continue
        held = schema.get("versions") if isinstance(schema, dict) else None
        if not isinstance(held, list) or held[: len(said)] != said or len(held) > len(said) + 1 or not held:
            raise MalformedError(f"change {change.get('number')!r} with other versions than those before it")
        for number in range(len(said), len(held)):
            found.append(_version(number + 1, held[number], found[-1]))
        said = held
    return found


def _version(number: int, held: Any, before: Version) -> Version:
    try:
        columns = read_schema(base64.b64decode(held["arrow_schema"], validate=True))
        ids = tuple(_number(each["id"]) for each in held["columns"])
        inside = tuple(_number(each["inside"]) for each in held["columns"])
        names = [each["name"] for each in held["columns"]]
        filled = frozenset(each["id"] for each in held["columns"] if "default" in each)
        found = Version(columns, ids, inside, _number(held["next_id"]), dict(held["retired"]), filled)
        if _number(held["version"]) != number or names != columns.names:
            raise MalformedError(f"version {held['version']!r} with columns {names!r:.80}")
    except (pa.ArrowException, ValueError, TypeError, KeyError, OSError, IndexError) as error:
        raise MalformedError(f"version {number}: {' '.join(str(error).split())[:120]}") from error
    _judge(number, found, before)
    return found


def _judge(number: int, found: Version, before: Version) -> None:
    was = dict(zip(before.ids, zip(before.columns, before.inside, strict=True), strict=True))
    wrong = found.free < before.free or len(set(found.ids)) < len(found.ids) or not found.ids
    wrong = wrong or len(set(found.columns.names)) < len(found.ids)
    for column, number_of, inside in zip(found.columns, found.ids, found.inside, strict=True):
        if number_of not in was:
            wrong = wrong or not before.free <= number_of < found.free
            continue
        old, old_inside = was[number_of]
        wrong = wrong or inside != old_inside or (old.nullable and not column.nullable)
        wrong = wrong or not (column.type == old.type or _is_wider(old.type, column.type))
    wrong = wrong or not set(found.retired).isdisjoint(found.columns.names)
    wrong = wrong or any(found.owners.get(name) != owner for name, owner in before.owners.items())
    if wrong:
        raise MalformedError(f"version {number} of the schema, which no change makes of the one before it")


def _is_wider(kind: Any, other: Any) -> bool:
    pairs = {pair for ladder in _WIDER for low in range(len(ladder)) for pair in _above(ladder, low)}
    if (str(kind), str(other)) in pairs:
        return True
    both = pa.types.is_decimal128(kind) and pa.types.is_decimal128(other)
    return bool(both and kind.scale == other.scale and kind.precision <= other.precision)


def _above(ladder: Sequence[str], low: int) -> list[tuple[str, str]]:
    return [(ladder[low], high) for high in ladder[low + 1 :]]


def _number(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise MalformedError(f"the number {value!r:.40}")
    return value
