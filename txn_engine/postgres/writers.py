"""What `consume_into` writes with into Postgres: rows inserted, upserted by a key, or appended as a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import Connection, sql

from txn_engine.calendar import FIRST_DAY
from txn_engine.databases.writing import LAST_WRITTEN_DAY, Column, TableWriter, checked_key, require_days
from txn_engine.exact import InexactError, cast_exactly
from txn_engine.postgres.copying import copy_in
from txn_engine.postgres.kinds import holds, is_text, most_chars, type_for
from txn_engine.postgres.statements import execute
from txn_engine.reasons import Reason

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


class PostgresWriter(TableWriter[Connection[Any]]):
    """Puts records into a table of Postgres by COPY."""

    not_kept = (
        "a value that cannot be written to Postgres as it is: a NUL in a text, a time outside of the years 1 to 32767 "
        "or finer than microseconds"
    )

    def __init__(self, table: str, **chosen: Any) -> None:
        super().__init__(table, **chosen)
        self._name = sql.Identifier(*table.split("."))

    # --- the table ------------------------------------------------------------------------------------------

    def columns_of(self, connection: Connection[Any]) -> dict[str, Column]:
        """As the catalogue has them."""
        found = execute(connection, _COLUMNS, (self._name.as_string(connection),)).fetchall()
        return {
            name: Column(kind, not required, has_default or generated, generated)
            for name, kind, required, has_default, generated in found
        }

    def unique_keys(self, connection: Connection[Any]) -> list[tuple[str, ...]]:
        """Of whole indexes, without a condition or an expression."""
        found = execute(connection, _KEYS, (self._name.as_string(connection),)).fetchall()
        return [tuple(key) for (key,) in found]

    def make_table(self, connection: Connection[Any], kinds: Mapping[str, str]) -> None:
        """Unless somebody else has made it meanwhile."""
        parts = [sql.SQL("{} " + kind).format(sql.Identifier(name)) for name, kind in kinds.items()]
        if self.key:
            parts.append(
                sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, self.key)))
            )
        statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
        execute(connection, statement.format(self._name, sql.SQL(", ").join(parts)))

    def type_for(self, kind: pa.DataType) -> str | None:
        """As `kinds` says."""
        return type_for(kind)

    def holds(self, kind: pa.DataType, found: str) -> bool:
        """As `kinds` says."""
        return holds(kind, found)

    def check_values(self, rows: pa.Table, columns: Mapping[str, Column]) -> None:
        """The server cuts spaces off a text that is too long, without a word."""
        for name in rows.column_names:
            most = most_chars(columns[name].kind)
            longest = 0 if most is None else pc.max(pc.utf8_length(rows[name])).as_py() or 0
            if most is not None and longest > most:
                raise self.refused(
                    f"column {name!r} of type {columns[name].kind}, and a text of {longest} characters",
                    reason=Reason.TEXT_TOO_LONG,
                    expected="room for every text",
                )

    # --- rows -----------------------------------------------------------------------------------------------

    def as_kept(self, rows: pa.Table) -> pa.Table:
        """The server's times are whole microseconds; its texts have no NUL."""
        for column in rows.columns:
            _require_known(column)
        return _in_microseconds(rows)

    def insert(self, connection: Connection[Any], rows: pa.Table) -> None:
        """By COPY into the table."""
        copy_in(connection, self._name, rows)

    def upsert(self, connection: Connection[Any], rows: pa.Table) -> None:
        """By COPY into a table of this transaction's, and from there."""
        self._stage(connection, rows)
        execute(connection, self._merge([name for name in rows.column_names if name not in self.key]))

    def delete(self, connection: Connection[Any], keys: pa.Table) -> None:
        """The same way."""
        self._stage(connection, keys)
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self.key
        )
        statement = sql.SQL("DELETE FROM {} t USING {} s WHERE {}")
        execute(connection, statement.format(self._name, _STAGED, same))

    def _stage(self, connection: Connection[Any], rows: pa.Table) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        execute(connection, sql.SQL("DROP TABLE IF EXISTS pg_temp.{}").format(_STAGED))
        statement = sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
        execute(connection, statement.format(_STAGED, columns, self._name))
        copy_in(connection, _STAGED, rows)

    def _merge(self, others: Sequence[str]) -> sql.Composed:
        columns = sql.SQL(", ").join(map(sql.Identifier, [*self.key, *others]))
        key = sql.SQL(", ").join(map(sql.Identifier, self.key))
        changes = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
        )
        act = sql.SQL("UPDATE SET {}").format(changes) if others else sql.SQL("NOTHING")
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
            self._name, columns, columns, _STAGED, key, act
        )


def insert_into(table: str, *, create: bool = False) -> PostgresWriter:
    """A `write` for `consume_into`: each record is a row more. `create`: make the table where there is none."""
    return PostgresWriter(table, create=create)


def upsert_into(
    table: str, key: Sequence[str], *, create: bool = False, delete_tombstones: bool = False
) -> PostgresWriter:
    """A `write` for `consume_into`: of each key the last record. It needs a unique index on these columns.

    `delete_tombstones`: a record whose other columns are all null deletes the row, as in a compacted topic.
    """
    return PostgresWriter(
        table, key=checked_key(table, key), create=create, delete_tombstones=delete_tombstones
    )


def append_to(table: str, *, create: bool = False) -> PostgresWriter:
    """A `write` for `consume_into`: a history, each record with its `_partition`, `_offset` and `_timestamp`."""
    return PostgresWriter(table, create=create, with_places=True)


def _require_known(column: Any) -> None:
    """Raise `InexactError` for a text with a NUL, and for a moment before the year 1, or after what Arrow can write."""
    if is_text(column.type):
        index = pc.index(pc.match_substring(column, "\0"), True).as_py()
        if index >= 0:
            raise InexactError(index)
    require_days(column, FIRST_DAY, LAST_WRITTEN_DAY)


def _in_microseconds(rows: pa.Table) -> pa.Table:
    """The server's times; raises `InexactError` for one that is finer."""
    for at, field in enumerate(rows.schema):
        kind: Any = field.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            rows = rows.set_column(at, field.name, cast_exactly(rows.column(at), pa.timestamp("us", kind.tz)))
        elif pa.types.is_time64(kind) and kind.unit == "ns":
            rows = rows.set_column(at, field.name, cast_exactly(rows.column(at), pa.time64("us")))
    return rows
