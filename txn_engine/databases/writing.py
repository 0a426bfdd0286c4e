"""What `consume_into` writes with, whatever the database: rows inserted, upserted by a key, or a history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.calendar import DAY_SECONDS, PER_SECOND
from txn_engine.databases.errors import DatabaseError
from txn_engine.databases.refused import Driver, write_or_name
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.exact import InexactError
from txn_engine.held import held_table
from txn_engine.reasons import Reason

FIRST_WRITTEN_DAY: Final = -12_687_428
LAST_WRITTEN_DAY: Final = 11_248_737
"""Days since 1970 of the years -32767 to 32767, which Arrow's 16 bits for a year hold."""
PLACE: Final = ("_topic", "_partition", "_offset", "_timestamp")
Connection = TypeVar("Connection")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, and its type as the database calls it. optional: it need not be given."""

    kind: str
    takes_null: bool
    optional: bool
    is_generated: bool = False
    is_identity: bool = False
    """GENERATED ALWAYS AS IDENTITY: an INSERT may be told to take values, an UPDATE may not."""


class TableWriter(ABC, Generic[Connection]):
    """Puts records into one table, whose columns are compared with theirs before the first row is."""

    def __init__(
        self,
        table: str,
        *,
        key: Sequence[str] = (),
        create: bool = False,
        delete_tombstones: bool = False,
        with_places: bool = False,
    ) -> None:
        self.table = table
        self.key = list(key)
        self._creates = create
        self._deletes = delete_tombstones
        self._with_places = with_places
        self.collations: Mapping[str, Any] = {}
        """By column of the key the collation of the key's index that takes other texts for equal, as of this batch."""

    def __call__(self, connection: Connection, records: pa.Table) -> None:
        """Write them, in the transaction that is open.

        Raises:
            DatabaseError: the table lacks a column, has another type for it, or takes no null where one may come; or
            the database refuses a record, which is named.
            InvalidRecordError: a value that the column would change.
        """
        rows = (
            records
            if self._with_places
            else records.drop_columns([name for name in PLACE if name in records.column_names])
        )
        rows = held_table(rows)
        columns = self._check(connection, rows)
        try:
            rows = self.as_kept(rows, columns)
        except InexactError as error:
            raise InvalidRecordError(
                f"the record at {_place_of(records, error.index)} has {self.not_kept}",
                actor=f"table {self.table!r}",
                expected="values that the column keeps as they are",
                action="round them before, or keep them as whole numbers",
                reason=Reason.INEXACT_VALUE,
            ) from error
        writes = self._latest(connection, rows) if self.key else [(self.insert, None)]
        for write, chosen in writes:
            part = rows if chosen is None else rows.take(chosen)

            def place_of(index: int, chosen: Any = chosen) -> str:
                return _place_of(records, index if chosen is None else chosen[index].as_py())

            if part.num_rows:
                write_or_name(self.driver, connection, write, part, place_of, f"table {self.table!r}")

    # --- the dialect's ---------------------------------------------------------------------------------------

    not_kept = "a value that the column does not keep"
    """What a value is that `as_kept` refuses."""

    driver: ClassVar[Driver]
    """The database's."""

    @abstractmethod
    def columns_of(self, connection: Connection) -> dict[str, Column]:
        """The table's columns by their names; empty where there is no such table."""

    @abstractmethod
    def unique_keys(self, connection: Connection) -> dict[tuple[str, ...], bool]:
        """By which columns a row is the only one, sorted, and whether that is checked at once: else no sooner than at
        the end of a statement or a transaction.
        """

    @abstractmethod
    def key_collations(self, connection: Connection) -> Mapping[str, Any]:
        """By column of the key the collation of the unique index on it, where that takes other texts for equal."""

    @abstractmethod
    def last_of_equal(self, connection: Connection, keys: pa.Table) -> pa.Array[Any]:
        """Of keys that differ, the indices of the last of those that are equal under `collations`."""

    @abstractmethod
    def make_table(self, connection: Connection, kinds: Mapping[str, str]) -> None:
        """With columns of these types, and the key for a primary one."""

    @abstractmethod
    def type_for(self, kind: pa.DataType) -> str | None:
        """The type that is made for an Arrow type; None where there is none."""

    @abstractmethod
    def holds(self, kind: pa.DataType, found: str) -> bool:
        """Whether a column of the database's type holds every value of the Arrow type as it is."""

    def check_values(self, rows: pa.Table, columns: Mapping[str, Column]) -> None:
        """Raise `DatabaseError` for values that a column's type leaves out, though it holds others."""

    @abstractmethod
    def as_kept(self, rows: pa.Table, columns: Mapping[str, Column]) -> pa.Table:
        """The rows in the database's types. Raises `InexactError` for a value that its column does not keep."""

    @abstractmethod
    def insert(self, connection: Connection, rows: pa.Table) -> None:
        """Each a row more."""

    @abstractmethod
    def upsert(self, connection: Connection, rows: pa.Table) -> None:
        """Each in the place of the row with its key; no key is there twice."""

    @abstractmethod
    def delete(self, connection: Connection, rows: pa.Table) -> None:
        """The rows with the keys of these."""

    # --- the table -------------------------------------------------------------------------------------------

    def _check(self, connection: Connection, rows: pa.Table) -> dict[str, Column]:
        """The table's columns. At every batch: a table made in a transaction that was rolled back is gone with it."""
        columns = self.columns_of(connection)
        if not columns and self._creates:
            self._check_key(rows.column_names)
            self.make_table(connection, {field.name: self._type_of(field) for field in rows.schema})
            columns = self.columns_of(connection)
        if not columns:
            raise self.refused(
                "no such table", reason=Reason.NO_SUCH_TABLE, expected="one that is there, or create=True"
            )
        for field in rows.schema:
            self._check_column(field, columns.get(field.name), rows[field.name].null_count)
        self.check_values(rows, columns)
        lacking = [
            name
            for name, column in columns.items()
            if name not in rows.column_names and not column.optional and not column.takes_null
        ]
        if lacking:
            raise self.refused(
                f"column {lacking[0]!r} takes no null",
                reason=Reason.NULL_IN_NOT_NULL,
                expected="a default, or records that have it",
            )
        if self.key:
            self._check_unique(connection)
        return columns

    def _check_unique(self, connection: Connection) -> None:
        key = ", ".join(sorted(self.key))
        match self.unique_keys(connection).get(tuple(sorted(self.key))):
            case None:
                raise self.refused(
                    f"no unique index on {key}",
                    reason=Reason.NO_UNIQUE_INDEX,
                    expected="one: it says which row is replaced",
                )
            case False:
                raise self.refused(
                    f"the unique key on {key} is DEFERRABLE",
                    reason=Reason.DEFERRABLE_KEY,
                    expected="a unique index on these columns that is checked at once: ON CONFLICT takes no other",
                )

    def _check_column(self, field: pa.Field[Any], found: Column | None, nulls: int) -> None:
        wanted = self._type_of(field)
        if found is None:
            raise self.refused(
                f"no column {field.name!r}", reason=Reason.MISSING_COLUMN, expected=f"one of type {wanted}"
            )
        if found.is_generated:
            raise self.refused(
                f"column {field.name!r} is generated",
                reason=Reason.GENERATED_COLUMN,
                expected="one that can be written",
            )
        if found.is_identity and self.key and field.name not in self.key:
            raise self.refused(
                f"column {field.name!r} is GENERATED ALWAYS AS IDENTITY, and is not part of the key",
                reason=Reason.GENERATED_COLUMN,
                expected="GENERATED BY DEFAULT AS IDENTITY: an UPDATE cannot set the other kind",
            )
        if not self.holds(field.type, found.kind):
            raise self.refused(
                f"column {field.name!r} of type {found.kind}",
                reason=Reason.TYPE_MISMATCH,
                expected=f"{wanted}, or a wider type, for {field.type}",
            )
        if nulls and not found.takes_null and field.name not in self.key:  # those of a key are named later
            raise self.refused(
                f"column {field.name!r} takes no null",
                reason=Reason.NULL_IN_NOT_NULL,
                expected=f"one that does: {nulls} of these records have none",
            )

    def _type_of(self, field: pa.Field[Any]) -> str:
        wanted = self.type_for(field.type)
        if wanted is None:
            raise self.refused(
                f"column {field.name!r} of type {field.type}",
                reason=Reason.UNSUPPORTED_TYPE,
                expected="flat types: leave it out, or write it by yourself",
            )
        return wanted

    def _check_key(self, names: Sequence[str]) -> None:
        unknown = [name for name in self.key if name not in names]
        if unknown:
            raise InvalidRequestError(
                f"key column {unknown[0]!r}",
                actor=f"table {self.table!r}",
                expected=f"one of {', '.join(names)}",
                reason=Reason.UNKNOWN_COLUMN,
            )

    def refused(self, seen: str, *, reason: Reason, expected: str) -> DatabaseError:
        """The error for a table that cannot hold the records."""
        return DatabaseError(
            seen,
            actor=f"table {self.table!r}",
            expected=expected,
            action="nothing was written; alter the table, or read other columns",
            reason=reason,
        )

    def updated(self, rows: pa.Table) -> list[str]:
        """The columns that take a record's values where a row has its key: all but those of the key that are then the
        same. 'a' and 'A' may be one key, and 0.0 and -0.0 are.
        """
        return [
            field.name
            for field in rows.schema
            if field.name not in self.key or field.name in self.collations or pa.types.is_floating(field.type)
        ]

    def check_written(self, written: int, rows: int) -> None:
        """Raise `DatabaseError` where the database says that it wrote fewer rows than it was given."""
        if rows and written < rows:
            raise self.refused(
                f"{rows - written:,} of {rows:,} records were not written, and nothing said why",
                reason=Reason.ROWS_NOT_WRITTEN,
                expected="no trigger or rule that keeps rows out of the table",
            )

    def check_kept(self, more: int, expected: int) -> None:
        """Raise `DatabaseError` if the table gained another number of rows than the records that were written add."""
        if more != expected:
            change = "disappeared from" if more < expected else "were added to"
            raise self.refused(
                f"rows {change} the table while the records were written: {abs(more - expected):,}",
                reason=Reason.OTHER_ROWS_CHANGED,
                expected="no trigger, rule, ON CONFLICT REPLACE or ON DELETE CASCADE that does so",
            )

    def check_deleted(self, is_any_left: bool) -> None:
        """Raise `DatabaseError` where rows are still there that were deleted."""
        if is_any_left:
            raise self.refused(
                "rows that were deleted are still there",
                reason=Reason.ROWS_NOT_DELETED,
                expected="no trigger or rule that keeps them",
            )

    def _latest(self, connection: Connection, rows: pa.Table) -> list[tuple[Any, Any]]:
        """How the last records of each key are written, and their indices, in the order in which they were read."""
        for name in self.key:
            if rows[name].null_count:
                raise InvalidRecordError(
                    f"null in key column {name!r}",
                    actor=f"table {self.table!r}",
                    expected="a key in every record: a null equals none, so that no row would be replaced",
                    action="leave such records out, or append them to a history",
                    reason=Reason.NULL_IN_KEY,
                )
        keys = rows.select(self.key)
        latest: Any = pa.array(_last_of_each(keys))
        self.collations = self.key_collations(connection)
        if self.collations:
            latest = latest.take(self.last_of_equal(connection, keys.take(latest)))
        others = [name for name in rows.column_names if name not in self.key]
        if not self._deletes or not others:
            return [(self.upsert, latest)]
        is_dead = _all_null(rows.select(others)).combine_chunks().take(latest)
        return [(self.upsert, latest.filter(pc.invert(is_dead))), (self.delete, latest.filter(is_dead))]


def checked_key(table: str, key: Sequence[str]) -> list[str]:
    """The key of an upsert. Raises `InvalidRequestError` for none."""
    if isinstance(key, str) or not key:
        raise InvalidRequestError(
            f"key={key!r}",
            actor=f"table {table!r}",
            expected="a list of columns",
            reason=Reason.BAD_ARGUMENT,
        )
    return list(key)


def _last_of_each(keys: pa.Table) -> Any:
    """The indices of the last row of each key, in order."""
    for at, field in enumerate(keys.schema):
        if pa.types.is_floating(field.type):  # as databases have it: -0.0 is 0.0, and every NaN the same
            numbers: Any = pc.add(keys.column(at).cast(pa.float64()), pa.scalar(0.0))
            numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(float("nan")), numbers)
            keys = keys.set_column(at, field.name, numbers)
    names = [f"key {number}" for number in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("at", pa.array(np.arange(keys.num_rows)))
    last = numbered.group_by(names).aggregate([("at", "max")])
    return np.sort(last["at_max"].to_numpy())


def in_utc(column: Any) -> Any:
    """The column, zoned times in UTC: a zone may be seconds off, and Arrow writes minutes. To be called before times
    become text.
    """
    kind = column.type
    return column.cast(pa.timestamp(kind.unit, "UTC")) if pa.types.is_timestamp(kind) and kind.tz else column


def require_days(column: Any, first: int, last: int) -> None:
    """Raise `InexactError` for a date or time outside of these days: Arrow would write another year for it, or none.

    Only the years -32767 to 32767 have a right text, `FIRST_WRITTEN_DAY` to `LAST_WRITTEN_DAY`. Databases' own
    `infinity` comes as a time far outside.
    """
    kind = column.type
    if pa.types.is_date32(kind):
        per_day, numbers = 1, column.cast(pa.int32())
    elif pa.types.is_timestamp(kind) and kind.unit != "ns":  # those are between 1677 and 2262
        per_day, numbers = DAY_SECONDS * PER_SECOND[kind.unit], column.cast(pa.int64())
    else:
        return
    ends = [pa.scalar(each, numbers.type) for each in (first * per_day, (last + 1) * per_day)]
    index = pc.index(pc.or_(pc.less(numbers, ends[0]), pc.greater_equal(numbers, ends[1])), True).as_py()
    if index >= 0:
        raise InexactError(index)


def _all_null(rows: pa.Table) -> Any:
    found = pc.is_null(rows.column(0))
    for column in rows.columns[1:]:
        found = pc.and_(found, pc.is_null(column))
    return found


def _place_of(records: pa.Table, index: int) -> str:
    if not {"_partition", "_offset"} <= set(records.column_names) or index >= records.num_rows:
        return f"row {index}"
    return f"{records['_partition'][index].as_py()}@{records['_offset'][index].as_py()}"
