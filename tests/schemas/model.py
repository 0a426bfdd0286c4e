"""A naive model of a topic whose columns change: rows are dicts by the columns' numbers, and changes are
random."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from txn_engine.schemas.changes import (
    AddColumn,
    Change,
    DropColumn,
    MakeNullable,
    RenameColumn,
    ReorderColumns,
    WidenColumn,
)

_STEPS: dict[str, tuple[pa.DataType, ...]] = {
    "int": (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    "float": (pa.float32(), pa.float64()),
    "decimal": (pa.decimal128(6, 2), pa.decimal128(12, 2), pa.decimal128(30, 2)),
    "string": (pa.string(),),
    "binary": (pa.binary(),),
    "bool": (pa.bool_(),),
    "date": (pa.date32(),),
    "time": (pa.timestamp("ms", tz="UTC"),),
}
_VALUES: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda chance: chance.randint(-100, 100),
    "float": lambda chance: chance.randint(-100, 100) / 4,
    "decimal": lambda chance: Decimal(chance.randint(-9999, 9999)) / 100,
    "string": lambda chance: chance.choice(["", "a", "it's", 'sa"y', "ß", "NULL"]),
    "binary": lambda chance: bytes(chance.randrange(256) for _ in range(chance.randrange(4))),
    "bool": lambda chance: chance.random() < 0.5,
    "date": lambda chance: date(1960, 1, 1) + timedelta(days=chance.randrange(40_000)),
    "time": lambda chance: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=chance.randrange(10**9)),
}


@dataclass(frozen=True)
class ModelColumn:
    """A column in the model. Its number is its identity, and `step` says how wide it is now."""

    number: int
    name: str
    kind: str
    step: int = 0
    nullable: bool = True
    default: Any = None

    @property
    def type(self) -> pa.DataType:
        """The column's present type."""
        return _STEPS[self.kind][self.step]

    @property
    def field(self) -> pa.Field[Any]:
        """The column as an Arrow field."""
        return pa.field(self.name, self.type, self.nullable)


@dataclass
class ModelTopic:
    """A topic with its columns, the names that are taken, and every row, by the columns' numbers."""

    chance: random.Random
    columns: list[ModelColumn] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    rows: list[dict[int, Any]] = field(default_factory=list)
    made: int = 0
    with_defaults: bool = True
    without: frozenset[str] = frozenset()
    """Changes that are not made: some of `rename`, `drop`, `widen`."""

    def __post_init__(self) -> None:
        self.columns = [ModelColumn(self._number(), "id", "int", 3, nullable=False)]
        self.columns += [self._column() for _ in range(3)]
        self.taken = {each.name for each in self.columns}

    def _number(self) -> int:
        self.made += 1
        return self.made

    def _name(self) -> str:
        name = f"{self.chance.choice(['a', 'b', 'Mixed', 'with space', 'ß'])}{self.made}"
        while name in self.taken:
            name += "x"
        return name

    def _column(self) -> ModelColumn:
        kind = self.chance.choice(list(_STEPS))
        return ModelColumn(self._number(), self._name(), kind, nullable=self.chance.random() < 0.7)

    @property
    def schema(self) -> pa.Schema:
        """The present columns."""
        return pa.schema([each.field for each in self.columns])

    def _value(self, column: ModelColumn) -> Any:
        if column.nullable and self.chance.random() < 0.3:
            return None
        return _VALUES[column.kind](self.chance)

    def produce(self, count: int) -> pa.Table:
        """Write this many rows in the present columns."""
        first = len(self.rows)
        made = [
            {each.number: first + at if each.number == 1 else self._value(each) for each in self.columns}
            for at in range(count)
        ]
        self.rows += made
        named = [{each.name: row[each.number] for each in self.columns} for row in made]
        return pa.Table.from_pylist(named, schema=self.schema)

    def expected(self) -> list[dict[str, Any]]:
        """What a reader has to return, in the order of `id`."""
        return [{each.name: row.get(each.number, each.default) for each in self.columns} for row in self.rows]

    def change(self) -> list[Change]:
        """Make one to three random changes, in the model too."""
        named = {"rename": self._rename, "drop": self._drop, "widen": self._widen}
        chosen = [step for name, step in named.items() if name not in self.without]
        steps = [self._add, *chosen, self._make_nullable, self._reorder]
        found: list[Change] = []
        wanted = self.chance.randint(1, 3)
        while len(found) < wanted:
            change = self.chance.choice(steps)()
            if change is not None:
                found.append(change)
        return found

    def _others(self) -> list[ModelColumn]:
        return self.columns_of(lambda each: each.number != 1)

    def columns_of(self, is_wanted: Callable[[ModelColumn], bool]) -> list[ModelColumn]:
        """The columns for which the condition holds."""
        return [each for each in self.columns if is_wanted(each)]

    def _replace(self, column: ModelColumn, other: ModelColumn) -> None:
        self.columns[self.columns.index(column)] = other

    def _add(self) -> Change:
        column = self._column()
        if not self.with_defaults:
            column = replace(column, nullable=True)
        elif not column.nullable or self.chance.random() < 0.5:
            column = replace(column, default=_VALUES[column.kind](self.chance))
        self.columns.append(column)
        self.taken.add(column.name)
        return AddColumn(column.field, column.default)

    def _rename(self) -> Change | None:
        others = self._others()
        if not others:
            return None
        column = self.chance.choice(others)
        name = self._name()
        self.taken.add(name)
        self._replace(column, replace(column, name=name))
        return RenameColumn(column.name, name)

    def _drop(self) -> Change | None:
        others = self._others()
        if len(others) < 2:
            return None
        column = self.chance.choice(others)
        self.columns.remove(column)
        return DropColumn(column.name)

    def _widen(self) -> Change | None:
        narrow = self.columns_of(lambda each: each.step + 1 < len(_STEPS[each.kind]))
        if not narrow:
            return None
        column = self.chance.choice(narrow)
        wider = replace(column, step=self.chance.randint(column.step + 1, len(_STEPS[column.kind]) - 1))
        self._replace(column, wider)
        return WidenColumn(column.name, wider.type)

    def _make_nullable(self) -> Change | None:
        strict = [each for each in self._others() if not each.nullable]
        if not strict:
            return None
        column = self.chance.choice(strict)
        self._replace(column, replace(column, nullable=True))
        return MakeNullable(column.name)

    def _reorder(self) -> Change | None:
        before = list(self.columns)
        self.chance.shuffle(self.columns)
        return None if self.columns == before else ReorderColumns([each.name for each in self.columns])
