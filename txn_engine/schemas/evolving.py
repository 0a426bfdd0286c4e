"""(layout, change) to the next layout, or to a refusal that says why and how else to do it. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.held import held_type
from txn_engine.names import NEW_NAME, is_new_name, printable
from txn_engine.reasons import Reason
from txn_engine.schemas.changes import (
    AddColumn,
    Change,
    DropColumn,
    MakeNullable,
    RenameColumn,
    ReorderColumns,
    WidenColumn,
    shown,
)
from txn_engine.schemas.defaults import default_of
from txn_engine.schemas.layout import Column, Layout
from txn_engine.schemas.tombstones import same_tombstones
from txn_engine.schemas.widening import EXPECTED, is_widening

ANOTHER_TOPIC: Final = "make a topic of the columns that you want, and fill it with `txn-engine topics copy`"


@dataclass(frozen=True, slots=True)
class Rules:
    """What of a topic limits how its columns may change."""

    topic: str
    key: str | None
    is_compacted: bool


def evolved(layout: Layout, changes: Sequence[Change], rules: Rules) -> Layout:
    """The next version, after these changes, one after the other.

    Raises `InvalidRequestError` for the first that cannot be.
    """
    evolving = _Evolving(layout, rules)
    if not changes:
        evolving.refuse("no change", "one at the least", Reason.NO_CHANGES)
    for change in changes:
        evolving.apply(change)
    found = evolving.layout
    if rules.is_compacted and not same_tombstones(layout, found, rules.key):
        evolving.refuse(
            f"{', '.join(map(str, changes))}: other records than before would be tombstones",
            "a topic that is compacted to keep what is one",
            Reason.TOMBSTONES_WOULD_CHANGE,
            ANOTHER_TOPIC,
        )
    return replace(found, version=layout.version + 1)


class _Evolving:
    def __init__(self, layout: Layout, rules: Rules) -> None:
        self.layout = layout
        self._rules = rules

    def refuse(self, seen: str, expected: str, reason: Reason, action: str | None = None) -> NoReturn:
        raise InvalidRequestError(
            seen,
            actor=f"alter topic {self._rules.topic!r}",
            expected=expected,
            action=action or "nothing was changed",
            reason=reason,
        )

    def apply(self, change: Change) -> None:
        match change:
            case AddColumn():
                self._add(change)
            case RenameColumn():
                self._rename(change)
            case DropColumn():
                self._drop(change)
            case WidenColumn():
                self._widen(change)
            case MakeNullable():
                self._make_nullable(change)
            case ReorderColumns():
                self._reorder(change)
            case _:
                self.refuse(
                    f"{change!r:.80}",
                    "AddColumn, RenameColumn, DropColumn, WidenColumn, MakeNullable or ReorderColumns",
                    Reason.BAD_ARGUMENT,
                )

    def _add(self, change: AddColumn) -> None:
        field = change.field
        if not isinstance(field, pa.Field):
            self.refuse(f"a column given as {type(field).__name__}", "a pyarrow field", Reason.BAD_ARGUMENT)
        self._check_new_name(field.name, None)
        if not _is_flat(field.type):
            self.refuse(
                f"{change}: a type of that kind",
                "a flat type, as int64 or string",
                Reason.UNSUPPORTED_TYPE,
                ANOTHER_TOPIC,
            )
        default = self._default(field, change.default)
        if default is None and not field.nullable:
            self.refuse(
                f"{change}: older records have no value for it",
                "a column that may be null, or a default",
                Reason.NO_DEFAULT,
            )
        number = self.layout.next_id
        column = Column(number, number + 1, field.name, field.type, field.nullable, default)
        self.layout = replace(self.layout, columns=(*self.layout.columns, column), next_id=number + 1)

    def _default(self, field: pa.Field[Any], value: Any) -> Any:
        """The value as a scalar of the column's type."""
        if value is None:
            return None
        try:
            return default_of(value, held_type(field.type))
        except ValueError as error:
            seen = f"default {shown(value):.80} of column {field.name!r}"
            self.refuse(seen, str(error), Reason.BAD_DEFAULT)

    def _rename(self, change: RenameColumn) -> None:
        column = self._found(change.old)
        self._refuse_key(column, change)
        if change.old == change.new:
            self.refuse(f"{change}", "another name", Reason.UNCHANGED)
        self._check_new_name(change.new, column.id)
        self._replace(column, replace(column, name=change.new))
        self._retire(column)

    def _drop(self, change: DropColumn) -> None:
        column = self._found(change.name)
        self._refuse_key(column, change)
        if len(self.layout.columns) == 1:
            self.refuse(f"{change}, the only column", "one column at the least", Reason.ONLY_COLUMN)
        kept = tuple(each for each in self.layout.columns if each.id != column.id)
        self.layout = replace(self.layout, columns=kept)
        self._retire(column)

    def _widen(self, change: WidenColumn) -> None:
        column = self._found(change.name)
        self._refuse_key(column, change)
        if not isinstance(change.type, pa.DataType):
            self.refuse(f"a type given as {change.type!r:.80}", "a pyarrow type", Reason.BAD_ARGUMENT)
        if not is_widening(column.type, change.type):
            self.refuse(f"{change}, from {column.type}", EXPECTED, Reason.NOT_A_WIDENING, ANOTHER_TOPIC)
        default = None if column.default is None else column.default.cast(change.type)
        self._replace(column, replace(column, type=change.type, default=default))

    def _make_nullable(self, change: MakeNullable) -> None:
        column = self._found(change.name)
        if column.nullable:
            self.refuse(f"{change}, which it may", "a column that may not", Reason.UNCHANGED)
        if self._rules.is_compacted and column.name == self._rules.key:
            self.refuse(
                f"{change}, the key of a topic that is compacted", "a key in every record", Reason.KEY_COLUMN
            )
        self._replace(column, replace(column, nullable=True))

    def _reorder(self, change: ReorderColumns) -> None:
        if isinstance(change.names, str) or not isinstance(change.names, Sequence):
            self.refuse(f"an order given as {change.names!r:.80}", "a list of names", Reason.BAD_ARGUMENT)
        names = list(change.names)
        if sorted(map(str, names)) != sorted(self.layout.by_name) or not all(
            isinstance(each, str) for each in names
        ):
            expected = f"each of {list(self.layout.by_name)} once"[:400]
            self.refuse(f"{change}"[:200], expected, Reason.INCOMPLETE_ORDER)
        ordered = tuple(self.layout.by_name[name] for name in names)
        if ordered == self.layout.columns:
            self.refuse(f"{change}"[:200], "another order than the present one", Reason.UNCHANGED)
        self.layout = replace(self.layout, columns=ordered)

    def _found(self, name: object) -> Column:
        column = self.layout.by_name.get(name) if isinstance(name, str) else None
        if column is None:
            was_there = isinstance(name, str) and name in self.layout.owners
            gone = "was dropped or renamed before" if was_there else "is not there"
            expected = f"one of {list(self.layout.by_name)}"[:400]
            self.refuse(f"column {name!r:.80}, which {gone}", expected, Reason.UNKNOWN_COLUMN)
        return column

    def _check_new_name(self, name: object, column_id: int | None) -> None:
        """Refuse a name that no column may have, or that another one has or has had."""
        if not isinstance(name, str) or not name or name.startswith("_") or not is_new_name(name):
            self.refuse(
                f"column {printable(repr(name)):.80}",
                f"{NEW_NAME}, that do not begin with an underscore (those are ours)",
                Reason.BAD_COLUMN_NAME,
            )
        if name in self.layout.by_name:
            self.refuse(
                f"column {name!r:.80}, which is there", "a name that no column has", Reason.COLUMN_EXISTS
            )
        if self.layout.owners.get(name, column_id) != column_id:
            self.refuse(
                f"column {name!r:.80}, as a column was called before",
                "a name that no column has had",
                Reason.COLUMN_NAME_WAS_USED,
            )
        alike = [
            each for each, owner in self.layout.owners.items() if owner != column_id and are_alike(each, name)
        ]
        if alike:
            self.refuse(
                f"column {name!r:.80}, which SQL and Spark do not tell from {alike[0]!r:.80}",
                "a name that differs by more than case from all that columns have or have had",
                Reason.COLUMN_NAMES_ALIKE,
            )

    def _refuse_key(self, column: Column, change: Change) -> None:
        if column.name == self._rules.key:
            self.refuse(
                f"{change}, the topic's key", "a key that stays as it is", Reason.KEY_COLUMN, ANOTHER_TOPIC
            )

    def _replace(self, column: Column, other: Column) -> None:
        columns = tuple(other if each.id == column.id else each for each in self.layout.columns)
        self.layout = replace(self.layout, columns=columns)

    def _retire(self, column: Column) -> None:
        names = dict(self.layout.retired) | {column.name: column.id}
        current = set(self.layout.by_name)
        self.layout = replace(
            self.layout, retired=tuple(each for each in names.items() if each[0] not in current)
        )


def are_alike(one: str, other: str) -> bool:
    """Whether two names differ at most in upper and lower case."""
    return one.casefold() == other.casefold()


def _is_flat(kind: pa.DataType) -> bool:
    """Whether a column of the type may be added: what every reader here has, and what has a default."""
    types, kind = pa.types, held_type(kind)
    texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return bool(
        types.is_boolean(kind)
        or (types.is_integer(kind))
        or kind in (pa.float32(), pa.float64(), pa.date32(), *texts)
        or types.is_decimal128(kind)
        or (types.is_timestamp(kind) and kind.unit != "s" and kind.tz in (None, "UTC"))
    )
