"""What `consume_into` writes with: rows inserted, upserted by a key, or appended as a history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import Connection, sql

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.exact import InexactError, cast_exactly
from txn_engine.postgres.copying import copy_in
from txn_engine.postgres.errors import DatabaseError
from txn_engine.postgres.kinds import holds, most_chars, type_for

_PLACE: Final = ("_topic", "_partition", "_offset", "_timestamp")
_STAGED: Final = sql.Identifier("txn_engine_batch")
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.atthasdef OR a.attidentity <> '', a.attgenerated <> ''
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_KEYS = """
SELECT array_agg(a.attname ORDER BY a.attname) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid"""


class TableWriter:
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
        self._table = table
        self._name = sql.Identifier(*table.split("."))
        self._key = list(key)
        self._creates = create
        self._deletes = delete_tombstones
        self._with_places = with_places

    def __call__(self, connection: Connection[Any], records: pa.Table) -> None:
        """Write them, in the transaction that is open.

        Raises:
            DatabaseError: the table lacks a column, has another type for it, or takes no null where one may come.
            InvalidRecordError: a value that the column would change.
        """
        rows = (
            records
            if self._with_places
            else records.drop_columns([n for n in _PLACE if n in records.column_names])
        )
        self._check(connection, rows)
        try:
            rows = _in_microseconds(rows)
        except InexactError as error:
            raise InvalidRecordError(
                f"the record at {_place_of(records, error.index)} has a time finer than microseconds",
                actor=f"table {self._table!r}",
                expected="values that the column keeps as they are",
                action="round them before, or keep them as whole numbers",
            ) from error
        if self._key:
            self._upsert(connection, rows)
        else:
            copy_in(connection, self._name, rows)

    # --- the table ------------------------------------------------------------------------------------------

    def _check(self, connection: Connection[Any], rows: pa.Table) -> None:
        """At every batch: a table that was made in a transaction that was rolled back is gone with it."""
        schema = rows.schema
        text = self._name.as_string(connection)
        found = connection.execute(_COLUMNS, (text,)).fetchall()
        if not found and self._creates:
            connection.execute(self._definition(schema))
            found = connection.execute(_COLUMNS, (text,)).fetchall()
        if not found:
            raise self._refused("no such table", expected="one that is there, or create=True")
        columns = {name: words for name, *words in found}
        for field in schema:
            self._check_column(field, columns.get(field.name), rows[field.name].null_count)
            self._check_lengths(rows, field.name, columns[field.name][0])
        given = set(schema.names)
        lacking = [
            name
            for name, (_, required, has_default, generated) in columns.items()
            if name not in given and required and not has_default and not generated
        ]
        if lacking:
            raise self._refused(
                f"column {lacking[0]!r} takes no null", expected="a default, or records that have it"
            )
        keys = [tuple(key) for (key,) in connection.execute(_KEYS, (text,)).fetchall()]
        if self._key and tuple(sorted(self._key)) not in keys:
            raise self._refused(
                f"no unique index on {', '.join(sorted(self._key))}",
                expected="one: it says which row is replaced",
            )

    def _check_column(self, field: pa.Field[Any], found: list[Any] | None, nulls: int) -> None:
        wanted = type_for(field.type)
        if wanted is None:
            raise self._refused(
                f"column {field.name!r} of type {field.type}",
                expected="flat types: leave it out, or write it by yourself",
            )
        if found is None:
            raise self._refused(f"no column {field.name!r}", expected=f"one of type {wanted}")
        kind, required, _, generated = found
        if generated:
            raise self._refused(f"column {field.name!r} is generated", expected="one that can be written")
        if not holds(field.type, kind):
            raise self._refused(
                f"column {field.name!r} of type {kind}",
                expected=f"{wanted}, or a wider type, for {field.type}",
            )
        if required and nulls:
            raise self._refused(
                f"column {field.name!r} takes no null",
                expected=f"one that does: {nulls} of these records have none",
            )

    def _check_lengths(self, rows: pa.Table, name: str, kind: str) -> None:
        most = most_chars(kind)
        if most is None:
            return
        longest = pc.max(pc.utf8_length(rows[name])).as_py() or 0
        if longest > most:
            raise self._refused(
                f"column {name!r} of type {kind}, and a text of {longest} characters",
                expected="room for every text",
            )

    def _definition(self, schema: pa.Schema) -> sql.Composed:
        unknown = [name for name in self._key if name not in schema.names]
        if unknown:
            raise InvalidRequestError(
                f"key column {unknown[0]!r}",
                actor=f"table {self._table!r}",
                expected=f"one of {', '.join(schema.names)}",
            )
        parts = [
            sql.SQL("{} " + kind).format(sql.Identifier(field.name))
            for field in schema
            if (kind := type_for(field.type)) is not None
        ]
        if self._key:
            parts.append(
                sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, self._key)))
            )
        return sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self._name, sql.SQL(", ").join(parts))

    # --- rows -----------------------------------------------------------------------------------------------

    def _upsert(self, connection: Connection[Any], rows: pa.Table) -> None:
        """The last record of each key, in the order in which they were read."""
        for name in self._key:
            if rows[name].null_count:
                raise InvalidRecordError(
                    f"null in key column {name!r}",
                    actor=f"table {self._table!r}",
                    expected="a key in every record: a null equals none, so that no row would be replaced",
                    action="leave such records out, or append them to a history",
                )
        latest = rows.take(pa.array(_last_of_each(rows.select(self._key))))
        others = [name for name in rows.column_names if name not in self._key]
        dead = None
        if self._deletes and others:
            is_dead = _all_null(latest.select(others))
            dead, latest = latest.filter(is_dead), latest.filter(pc.invert(is_dead))
        if latest.num_rows:
            self._stage(connection, latest)
            connection.execute(self._merge(others))
        if dead is not None and dead.num_rows:
            keys = dead.select(self._key)
            self._stage(connection, keys)
            same = sql.SQL(" AND ").join(
                sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self._key
            )
            connection.execute(
                sql.SQL("DELETE FROM {} t USING {} s WHERE {}").format(self._name, _STAGED, same)
            )

    def _stage(self, connection: Connection[Any], rows: pa.Table) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        connection.execute(sql.SQL("DROP TABLE IF EXISTS pg_temp.{}").format(_STAGED))
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                _STAGED, columns, self._name
            )
        )
        copy_in(connection, _STAGED, rows)

    def _merge(self, others: Sequence[str]) -> sql.Composed:
        columns = sql.SQL(", ").join(map(sql.Identifier, [*self._key, *others]))
        key = sql.SQL(", ").join(map(sql.Identifier, self._key))
        changes = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
        )
        act = sql.SQL("UPDATE SET {}").format(changes) if others else sql.SQL("NOTHING")
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
            self._name, columns, columns, _STAGED, key, act
        )

    def _refused(self, seen: str, *, expected: str) -> DatabaseError:
        return DatabaseError(
            seen,
            actor=f"table {self._table!r}",
            expected=expected,
            action="nothing was written; alter the table, or read other columns",
        )


def insert_into(table: str, *, create: bool = False) -> TableWriter:
    """A `write` for `consume_into`: each record is a row more. `create`: make the table where there is none."""
    return TableWriter(table, create=create)


def upsert_into(
    table: str, key: Sequence[str], *, create: bool = False, delete_tombstones: bool = False
) -> TableWriter:
    """A `write` for `consume_into`: of each key the last record. It needs a unique index on these columns.

    `delete_tombstones`: a record whose other columns are all null deletes the row, as in a compacted topic.
    """
    if isinstance(key, str) or not key:
        raise InvalidRequestError(f"key={key!r}", actor=f"table {table!r}", expected="a list of columns")
    return TableWriter(table, key=key, create=create, delete_tombstones=delete_tombstones)


def append_to(table: str, *, create: bool = False) -> TableWriter:
    """A `write` for `consume_into`: a history, each record with its `_partition`, `_offset` and `_timestamp`."""
    return TableWriter(table, create=create, with_places=True)


def _last_of_each(keys: pa.Table) -> Any:
    """The indices of the last row of each key, in order."""
    names = [f"key {number}" for number in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("at", pa.array(np.arange(keys.num_rows)))
    last = numbered.group_by(names).aggregate([("at", "max")])
    return np.sort(last["at_max"].to_numpy())


def _in_microseconds(rows: pa.Table) -> pa.Table:
    """The server's times; raises `InexactError` for one that is finer."""
    for at, field in enumerate(rows.schema):
        kind: Any = field.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            rows = rows.set_column(at, field.name, cast_exactly(rows.column(at), pa.timestamp("us", kind.tz)))
        elif pa.types.is_time64(kind) and kind.unit == "ns":
            rows = rows.set_column(at, field.name, cast_exactly(rows.column(at), pa.time64("us")))
    return rows


def _all_null(rows: pa.Table) -> Any:
    found = pc.is_null(rows.column(0))
    for column in rows.columns[1:]:
        found = pc.and_(found, pc.is_null(column))
    return found


def _place_of(records: pa.Table, index: int) -> str:
    if not {"_partition", "_offset"} <= set(records.column_names) or index >= records.num_rows:
        return f"row {index}"
    return f"{records['_partition'][index].as_py()}@{records['_offset'][index].as_py()}"
