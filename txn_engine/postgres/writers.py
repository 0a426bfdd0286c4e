"""What `consume_into` writes with into Postgres: rows inserted, upserted by a key, or appended as a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import Connection, sql

from txn_engine.calendar import FIRST_DAY
from txn_engine.databases.refused import Driver
from txn_engine.databases.writing import LAST_WRITTEN_DAY, Column, TableWriter, checked_key, require_days
from txn_engine.exact import InexactError, cast_exactly
from txn_engine.postgres.copying import copy_in
from txn_engine.postgres.errors import blames_record, translated
from txn_engine.postgres.kinds import holds, is_text, most_chars, type_for
from txn_engine.postgres.statements import execute
from txn_engine.reasons import Reason

_STAGED: Final = sql.Identifier("txn_engine_batch")
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.atthasdef OR a.attidentity <> '', a.attgenerated <> '', a.attidentity = 'a'
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_KEYS = """
SELECT array_agg(a.attname ORDER BY a.attname), i.indimmediate FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid ORDER BY i.indimmediate"""
_HAS_CHILDREN = """
SELECT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
               WHERE c.oid = to_regclass(%s) AND c.relkind <> 'p')"""
_COLLATIONS = """
SELECT a.attname, n.nspname, c.collname
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indcollation::oid[]) AS part (number, collated)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = part.number
JOIN pg_collation c ON c.oid = part.collated AND NOT c.collisdeterministic
JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate
    AND a.attname = ANY (%s::text[]) AND i.indnkeyatts = cardinality(%s::text[]) AND NOT EXISTS (
        SELECT FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) AS key (number)
        JOIN pg_attribute o ON o.attrelid = i.indrelid AND o.attnum = key.number WHERE o.attname <> ALL (%s::text[]))"""
_DELETED = """
WITH RECURSIVE whole (oid) AS (
    SELECT to_regclass(%s)::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN whole ON i.inhparent = whole.oid)
SELECT bool_or(c.relhastriggers OR c.relhasrules), current_setting('track_counts')::boolean,
    sum(pg_stat_get_xact_tuples_deleted(c.oid))::bigint
FROM pg_class c JOIN whole USING (oid)"""
_ORDINAL: Final = "txn_engine_ordinal"


class PostgresWriter(TableWriter[Connection[Any]]):
    """Puts records into a table of Postgres by COPY."""

    not_kept = (
        "a value that cannot be written to Postgres as it is: a NUL in a text, a time outside of the years 1 to 32767 "
        "or finer than microseconds"
    )

    def __init__(self, table: str, **chosen: Any) -> None:
        super().__init__(table, **chosen)
        self._name = sql.Identifier(*table.split("."))

    driver = Driver(psycopg.Error, execute, translated, blames_record)

    # --- the table ------------------------------------------------------------------------------------------

    def columns_of(self, connection: Connection[Any]) -> dict[str, Column]:
        """As the catalogue has them."""
        found = execute(connection, _COLUMNS, (self._name.as_string(connection),)).fetchall()
        return {
            name: Column(kind, not required, has_default or generated, generated, is_identity)
            for name, kind, required, has_default, generated, is_identity in found
        }

    def unique_keys(self, connection: Connection[Any]) -> dict[tuple[str, ...], bool]:
        """Of whole indexes, without a condition or an expression; of two on the same columns the one that is checked at
        once.
        """
        found = execute(connection, _KEYS, (self._name.as_string(connection),)).fetchall()
        return {tuple(key): is_immediate for key, is_immediate in found}

    def _check_unique(self, connection: Connection[Any]) -> None:
        super()._check_unique(connection)
        if execute(connection, _HAS_CHILDREN, (self._name.as_string(connection),)).fetchone() == (True,):
            raise self.refused(
                "other tables inherit from it, and its unique index does not see their rows",
                reason=Reason.HAS_INHERITING_TABLES,
                expected="a table of its own, or a partitioned one: a key could be there twice",
            )

    def key_collations(self, connection: Connection[Any]) -> dict[str, sql.Identifier]:
        """Those that are not deterministic."""
        words = (self._name.as_string(connection), self.key, self.key, self.key)
        found = execute(connection, _COLLATIONS, words).fetchall()
        return {name: sql.Identifier(schema, collation) for name, schema, collation in found}

    def last_of_equal(self, connection: Connection[Any], keys: pa.Table) -> pa.Array[Any]:
        """By the server."""
        self._stage(connection, keys, ordinal=_ORDINAL)
        parts = sql.SQL(", ").join(self._collated(sql.Identifier(name), name) for name in self.key)
        statement = sql.SQL("SELECT max({}) FROM {} GROUP BY {} ORDER BY 1").format(
            sql.Identifier(_ORDINAL), _STAGED, parts
        )
        return pa.array([last for (last,) in execute(connection, statement)], pa.int64())

    def _collated(self, place: sql.Composable, name: str) -> sql.Composable:
        """A column of the key, in the collation of the key's index."""
        collation = self.collations.get(name)
        return place if collation is None else sql.SQL("{} COLLATE {}").format(place, collation)

    @property
    def _same_key(self) -> sql.Composable:
        """Whether a row of the table, `t`, has the key of a staged one, `s`."""
        return sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(
                self._collated(sql.Identifier("t", name), name),
                self._collated(sql.Identifier("s", name), name),
            )
            for name in self.key
        )

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

    def as_kept(self, rows: pa.Table, columns: Mapping[str, Column]) -> pa.Table:  # noqa: ARG002 - types decide
        """The server's times are whole microseconds; its texts have no NUL."""
        for column in rows.columns:
            _require_known(column)
        return _in_microseconds(rows)

    def insert(self, connection: Connection[Any], rows: pa.Table) -> None:
        """By COPY into the table."""
        before = self._deleted(connection)
        self.check_written(copy_in(connection, self._name, rows), rows.num_rows)
        self._check_deleted_rows(connection, before, 0)

    def upsert(self, connection: Connection[Any], rows: pa.Table) -> None:
        """By COPY into a table of this transaction's, and from there."""
        self._stage(connection, rows)
        before = self._deleted(connection)
        updated = self.updated(rows)
        written = execute(connection, self._merge(rows.column_names, updated)).rowcount
        if written < rows.num_rows:  # a row that is there as it should be may be left alone
            written = self._count_there(connection, updated)
        self.check_written(written, rows.num_rows)
        self._check_deleted_rows(connection, before, 0)

    def delete(self, connection: Connection[Any], rows: pa.Table) -> None:
        """The same way."""
        self._stage(connection, rows.select(self.key))
        before = self._deleted(connection)
        statement = sql.SQL("DELETE FROM {} t USING {} s WHERE {}")
        deleted = execute(connection, statement.format(self._name, _STAGED, self._same_key)).rowcount
        self.check_deleted(self._count_there(connection) > 0)
        self._check_deleted_rows(connection, before, deleted)

    def _deleted(self, connection: Connection[Any]) -> int | None:
        """How many rows of the table this transaction has deleted so far, as the server counts them; None for a table
        that has no trigger, foreign key or rule: nothing but the writer's statements changes its rows.
        """
        words = (self._name.as_string(connection),)
        ((others_may_change, is_counted, count),) = execute(connection, _DELETED, words).fetchall()
        if others_may_change and not is_counted:
            raise self.refused(
                "a table with triggers, rules or foreign keys, and track_counts is off",
                reason=Reason.DELETES_NOT_COUNTED,
                expected="track_counts = on: the server counts by it which rows a trigger deletes",
            )
        return int(count) if others_may_change else None

    def _check_deleted_rows(self, connection: Connection[Any], before: int | None, expected: int) -> None:
        after = self._deleted(connection)
        if before is not None and after is not None and after - before > expected:
            self.check_kept(before - after, -expected)

    def _count_there(self, connection: Connection[Any], alike: Sequence[str] = ()) -> int:
        """How many of the staged rows the table has, by their keys, and with the same texts in these columns."""
        same_text = sql.SQL('t.{0}::text COLLATE "C" IS NOT DISTINCT FROM s.{0}::text COLLATE "C"')
        values = [same_text.format(sql.Identifier(name)) for name in alike]
        same = sql.SQL(" AND ").join([self._same_key, *values])
        statement = sql.SQL("SELECT count(*) FROM {} s WHERE EXISTS (SELECT FROM {} t WHERE {})")
        ((count,),) = execute(connection, statement.format(_STAGED, self._name, same)).fetchall()
        return int(count)

    def _stage(self, connection: Connection[Any], rows: pa.Table, *, ordinal: str | None = None) -> None:
        columns = [sql.Identifier(name) for name in rows.column_names]
        wanted: list[sql.Composable] = [*columns]
        if ordinal is not None:
            wanted.append(sql.SQL("0::bigint AS {}").format(sql.Identifier(ordinal)))
            rows = rows.append_column(ordinal, pa.array(range(rows.num_rows), pa.int64()))
        execute(connection, sql.SQL("DROP TABLE IF EXISTS pg_temp.{}").format(_STAGED))
        statement = sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
        execute(connection, statement.format(_STAGED, sql.SQL(", ").join(wanted), self._name))
        copy_in(connection, _STAGED, rows)

    def _merge(self, names: Sequence[str], updated: Sequence[str]) -> sql.Composed:
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        key = sql.SQL(", ").join(map(sql.Identifier, self.key))
        changes = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in updated
        )
        act = sql.SQL("UPDATE SET {}").format(changes) if updated else sql.SQL("NOTHING")
        return sql.SQL(
            "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} ON CONFLICT ({}) DO {}"
        ).format(self._name, columns, columns, _STAGED, key, act)


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
