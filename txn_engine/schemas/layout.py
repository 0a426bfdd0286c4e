"""The columns of a topic as of one version of its schema, and all versions that it has had (docs/SCHEMAS.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa

from txn_engine.held import held_type
from txn_engine.schemas.field_ids import with_id, with_own_id

TIMESTAMP_TYPE: Final = pa.timestamp("ms", tz="UTC")
OFFSET_DELTA: Final = "_offset_delta"
TIMESTAMP: Final = "_timestamp"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a topic: the same one, by its id, whatever it is called.

    inside: the id of the first field inside its type. default: a scalar of the type that its values are held under,
    which stands for it in every file from before there was the column; None: that has nulls there.
    """

    id: int
    inside: int
    name: str
    type: pa.DataType
    nullable: bool = True
    default: Any = None

    @property
    def held(self) -> Column:
        """The column under the type that its values are held under."""
        kind = held_type(self.type)
        return self if kind == self.type else replace(self, type=kind)


@dataclass(frozen=True)
class Layout:
    """The columns of a topic as of one version of its schema; version 0 is what the topic was made with.

    next_id: ids from there on were never given. retired: names that a column has had, and the id of each: no other
    column ever gets them.
    """

    version: int
    columns: tuple[Column, ...]
    next_id: int
    retired: tuple[tuple[str, int], ...] = ()

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns' names and types."""
        return pa.schema([pa.field(each.name, each.type, each.nullable) for each in self.columns])

    @cached_property
    def held(self) -> Layout:
        """The same columns under the types that their values are held under."""
        columns = tuple(each.held for each in self.columns)
        return self if columns == self.columns else replace(self, columns=columns)

    @cached_property
    def physical(self) -> pa.Schema:
        """The schema of a data file of this version, with field ids; of the types that values are held under."""
        own = (
            pa.field(OFFSET_DELTA, pa.int64(), nullable=False),
            pa.field(TIMESTAMP, TIMESTAMP_TYPE, nullable=False),
        )
        fields = [
            with_id(pa.field(each.name, held_type(each.type), each.nullable), each.id, each.inside)[0]
            for each in self.columns
        ]
        return pa.schema([*fields, *map(with_own_id, own)])

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by their names."""
        return {each.name: each for each in self.columns}

    @cached_property
    def by_id(self) -> Mapping[int, Column]:
        """The columns by their ids."""
        return {each.id: each for each in self.columns}

    @cached_property
    def owners(self) -> Mapping[str, int]:
        """Every name that a column has or has had, and the column's id."""
        return owners_of(self)


def owners_of(layout: Layout) -> dict[str, int]:
    """As the layout's own, which it keeps."""
    return dict(layout.retired) | {each.name: each.id for each in layout.columns}


@lru_cache(maxsize=256)
def original(schema: pa.Schema) -> Layout:
    """What a topic is made with: columns 1 to n in their order; what is inside them goes on from there."""
    columns: list[Column] = []
    free = len(schema) + 1
    for number, field in enumerate(schema, 1):
        columns.append(Column(number, free, field.name, field.type, field.nullable))
        _, free = with_id(field.with_type(held_type(field.type)), number, free)
    return Layout(0, tuple(columns), free)


@dataclass(frozen=True, slots=True)
class Schemas:
    """Every version of a topic's schema, by its number, and the one that is asked for."""

    layouts: tuple[Layout, ...]
    version: int

    @classmethod
    def of(cls, schema: pa.Schema) -> Schemas:
        """Of a topic that never changed."""
        return cls((original(schema),), 0)

    @property
    def held(self) -> Schemas:
        """The same versions, with the types that values are held under."""
        return Schemas(tuple(each.held for each in self.layouts), self.version)

    @property
    def layout(self) -> Layout:
        """The version that is asked for."""
        return self.layouts[self.version]

    @property
    def arrow(self) -> pa.Schema:
        """The columns that are asked for."""
        return self.layout.arrow

    def dropped_in(self, column_id: int) -> int:
        """The version in which a column went."""
        return 1 + max(each.version for each in self.layouts if column_id in each.by_id)
