"""Parquet field ids in data files: right where they are, and not asked for (docs/FORMAT.md, "Data files")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

_FIELD_ID: Final = b"PARQUET:field_id"
_OF_OWN_COLUMNS: Final = (2_147_483_001, 2_147_483_002)


class WrongId(NamedTuple):
    """A field whose id is another than its column's. `is_old`: the file's writer gave no ids of its own."""

    seen: str
    expected: str
    is_old: bool


def wrong_field_id(columns: pa.Schema, ids: Sequence[int], below: Sequence[int]) -> WrongId | None:
    """The first field with a wrong id in a data file with these columns, of which the last two are not its topic's; or
    the first column without one, where another has one: readers that go by ids do not see it. (What is inside an
    extension type has none.)

    ids: of the topic's columns; below: where those of what is inside each of them begin.
    """
    topics = len(columns) - len(_OF_OWN_COLUMNS)
    own = [(column.name, column) for column in columns]
    inside = chain.from_iterable(_inside(column.name, column.type) for column in columns)
    numbers = chain(
        ids,
        _OF_OWN_COLUMNS,
        *(islice(count(first), ids_inside(each.type)) for first, each in zip(below, columns, strict=False)),
    )
    found_ids = [
        (path, (field.metadata or {}).get(_FIELD_ID), str(right).encode())
        for (path, field), right in zip(chain(own, inside), numbers, strict=False)
    ]
    if all(found is None for _, found, _ in found_ids):
        return None
    is_old = all(found is None for _, found, _ in found_ids[topics : len(columns)])
    for number, (path, found, right) in enumerate(found_ids):
        if found != right and (found is not None or number < len(columns)):
            seen = "without a field id" if found is None else f"with field id {found.decode()}"
            return WrongId(f"column {path!r} {seen}", f"{right.decode()}, or none in the whole file", is_old)
    return None


def ids_inside(kind: Any) -> int:
    """How many fields there are inside a type."""
    return sum(1 for _ in _inside("", kind))


def _inside(path: str, kind: Any) -> Iterator[tuple[str, pa.Field[Any]]]:
    """What is inside a type, each before what is inside that; a map's entries are nothing of their own."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_map(kind):
        members = [kind.key_field, kind.item_field]
    else:
        members = [kind.field(at) for at in range(kind.num_fields)]
    for member in members:
        below = f"{path}.{member.name}"
        yield below, member
        yield from _inside(below, member.type)
