"""Versions of a topic's schema as its changes have them, judged by the auditor's own rules (docs/FORMAT.md)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from storage.arrow_schema import read_schema
from txn_engine.held import held_schema
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.field_ids import ids_inside

_INTEGERS: Final = ("int8", "int16", "int32", "int64")
_WIDER: Final = (
    _INTEGERS,
    tuple(f"u{kind}" for kind in _INTEGERS),
    ("float", "double"),
)


_UNSOUND: Final = (
    pa.ArrowException,
    ValueError,
    TypeError,
    KeyError,
    OSError,
    IndexError,
    AttributeError,
)


class Version(NamedTuple):
    """The columns of one version, under the types that their values are held under, each with its id and the first id
    of what is inside it; the names of others, each with the id of the column that has had it. filled: ids of columns
    that have a default in older files.
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
    columns, free = held_schema(columns), len(columns) + 1
    inside = []
    for column in columns:
        inside.append(free)
        free += ids_inside(column.type)
    return Version(columns, tuple(range(1, len(columns) + 1)), tuple(inside), free, {})


def versions_of(columns: pa.Schema, changes: Sequence[Mapping[str, Any]]) -> list[Version]:
    """All versions of a topic's schema, by its sound changes in order. MalformedError for what cannot be."""
    found = [first_version(columns)]
    said: list[Any] = []
    says_all = True
    for change in changes:
        schema, number = change.get("schema"), change.get("number")
        if schema is None and len(found) == 1:
            continue
        if not isinstance(schema, dict):
            raise MalformedError(f"change {number!r} without the version of the schema before it")
        if "versions" in schema:
            held = schema["versions"]
            if not says_all or not _goes_on(held, said):
                raise MalformedError(f"change {number!r} with other versions than those before it")
            found += [_version(at + 1, held[at], found[-1]) for at in range(len(said), len(held))]
            said = held
            continue
        says_all = False
        if schema.get("change") is not None:
            found.append(_changed(len(found), schema, found[-1]))
        version = schema.get("version")
        if type(version) is not int or version != len(found) - 1 or version == 0:
            raise MalformedError(f"change {number!r} of version {version!r:.40} of the schema")
    return found


def _goes_on(held: object, said: Sequence[Any]) -> bool:
    """Whether these are the versions that were said before, and one more at the most."""
    return isinstance(held, list) and held[: len(said)] == said and 0 < len(held) <= len(said) + 1


def _version(number: int, held: Any, before: Version) -> Version:
    """A version that its change says all of."""
    try:
        columns, ids, inside, filled = _columns(held)
        found = Version(columns, ids, inside, _number(held["next_id"]), _retired(held), filled)
        if _number(held["version"]) != number:
            raise MalformedError(f"version {held['version']!r}")
    except _UNSOUND as error:
        raise MalformedError(f"version {number}: {' '.join(str(error).split())[:120]}") from error
    _judge(number, found, before)
    return found


def _changed(number: int, schema: Any, before: Version) -> Version:
    """A version of which its change says what is other than in the one before it."""
    try:
        held = schema["change"]
        columns, ids, inside, filled = _columns(held)
        places = {each: (before.columns.field(at), before.inside[at]) for at, each in enumerate(before.ids)}
        places |= {each: (columns.field(at), inside[at]) for at, each in enumerate(ids)}
        for each in held["dropped"]:
            del places[each]
        order = list(places) if held["order"] is None else list(held["order"])
        if sorted(order) != sorted(places):
            raise MalformedError(f"version {number} with an order of {len(order)} of {len(places)} columns")
        now = pa.schema([places[each][0] for each in order])
        names = set(now.names)
        retired = {name: owner for name, owner in before.retired.items() if name not in names}
        found = Version(
            now,
            tuple(order),
            tuple(places[each][1] for each in order),
            _number(held["next_id"]),
            retired | _retired(held),
            (before.filled - set(ids) | filled) & set(order),
        )
    except _UNSOUND as error:
        raise MalformedError(f"version {number}: {' '.join(str(error).split())[:120]}") from error
    _judge(number, found, before)
    return found


def _columns(held: Any) -> tuple[pa.Schema, tuple[int, ...], tuple[int, ...], frozenset[int]]:
    """The columns that are described, their ids, the first ids inside them, and which have a default."""
    columns = held_schema(read_schema(base64.b64decode(held["arrow_schema"], validate=True)))
    ids = tuple(_number(each["id"]) for each in held["columns"])
    inside = tuple(_number(each["inside"]) for each in held["columns"])
    names = [each["name"] for each in held["columns"]]
    if names != columns.names:
        raise MalformedError(f"columns {names!r:.80}")
    return columns, ids, inside, frozenset(each["id"] for each in held["columns"] if "default" in each)


def _retired(held: Any) -> dict[str, int]:
    return {name: _number(owner) for name, owner in held["retired"].items()}


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
    wrong = wrong or any(owner >= found.free for owner in found.retired.values())
    owners = found.owners
    wrong = wrong or any(owners.get(name) != owner for name, owner in before.owners.items())
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
