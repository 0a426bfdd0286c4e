"""What may become of a topic's columns: the changes that `alter_topic` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa


@dataclass(frozen=True)
class AddColumn:
    """A new column, behind all others. Records of before have `default` there, or null where there is none."""

    field: pa.Field[Any]
    default: Any = None

    def __str__(self) -> str:
        kind = f"{self.field.type}{'' if self.field.nullable else ' not null'}"
        default = "" if self.default is None else f" with default {shown(self.default):.80}"
        return f"add {self.field.name!r} {kind}{default}"


def shown(default: Any) -> str:
    """A default as it was given, for a person. Python has no days behind the year 9999, Arrow has."""
    try:
        return repr(default)
    except (OverflowError, ValueError):
        return str(default.cast(pa.string()))


@dataclass(frozen=True)
class RenameColumn:
    """Another name for a column. No other column ever gets the old one."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"rename {self.old!r} to {self.new!r}"


@dataclass(frozen=True)
class DropColumn:
    """The column is read no more, in no file, and never comes back: its name is not given again."""

    name: str

    def __str__(self) -> str:
        return f"drop {self.name!r}"


@dataclass(frozen=True)
class WidenColumn:
    """A type that holds every value of the column's present one."""

    name: str
    type: pa.DataType

    def __str__(self) -> str:
        return f"widen {self.name!r} to {self.type}"


@dataclass(frozen=True)
class MakeNullable:
    """The column may hold nulls from now on."""

    name: str

    def __str__(self) -> str:
        return f"let {self.name!r} hold nulls"


@dataclass(frozen=True)
class ReorderColumns:
    """All columns, in the order in which reads are to give them."""

    names: Sequence[str]

    def __str__(self) -> str:
        return f"order {', '.join(map(str, self.names))}"


Change: TypeAlias = AddColumn | RenameColumn | DropColumn | WidenColumn | MakeNullable | ReorderColumns
