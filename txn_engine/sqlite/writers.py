"""What `consume_into` writes with into SQLite: rows inserted, upserted by a key, or appended as a history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from txn_engine.databases.refused import Driver
from txn_engine.databases.writing import Column, TableWriter, checked_key
from txn_engine.sqlite.errors import blames_record, execute, translated
from txn_engine.sqlite.kinds import as_stored, holds, type_for

_ROWS: Final = 10_000
_STAGED: Final = "txn_engine_keys"


class SqliteWriter(TableWriter[sqlite3.Connection]):
    """Puts records into a table of SQLite."""

    not_kept = (
        "a value that cannot be written to SQLite as it is: a number above 64 bits, a NaN, a -0.0 in a REAL column (a "
        "column without a type keeps it), or a time outside of the years -32767 to 32767"
    )

    def __init__(self, table: str, **chosen: Any) -> None:
        super().__init__(table, **chosen)
        self._schema, _, self._plain = table.rpartition(".")
        self._name = ".".join(map(quoted, filter(None, (self._schema, self._plain))))

    driver = Driver(sqlite3.Error, execute, translated, blames_record)

    # --- the table ------------------------------------------------------------------------------------------

    def columns_of(self, connection: sqlite3.Connection) -> dict[str, Column]:
        """As the file declares them. SQLite would make a number of a null for a column that stands for the rowid."""
        found = execute(connection, self._pragma("table_xinfo", self._plain)).fetchall()
        rowid = self._rowid_column(connection, found)
        return {
            name: Column(
                kind, not required and name != rowid, default is not None or name == rowid, hidden > 1
            )
            for _, name, kind, required, default, _, hidden in found
            if hidden != 1
        }

    def _rowid_column(self, connection: sqlite3.Connection, info: Sequence[tuple[Any, ...]]) -> str | None:
        """The column that is another name of the rowid: a primary key of one INTEGER that has no index of its own."""
        key = [(name, kind) for _, name, kind, _, _, in_key, _ in info if in_key]
        if len(key) != 1 or key[0][1].upper() != "INTEGER":
            return None
        indexes = execute(connection, self._pragma("index_list", self._plain)).fetchall()
        return None if any(origin == "pk" for _, _, _, origin, _ in indexes) else key[0][0]

    def unique_keys(self, connection: sqlite3.Connection) -> dict[tuple[str, ...], bool]:
        """The primary key, and whole unique indexes; all are checked at once."""
        info = execute(connection, self._pragma("table_xinfo", self._plain)).fetchall()
        found = {tuple(sorted(row[1] for row in info if row[5])): True}
        indexes = execute(connection, self._pragma("index_list", self._plain)).fetchall()
        for _, index, is_unique, _, is_partial in indexes:
            names = [row[2] for row in execute(connection, self._pragma("index_info", index)).fetchall()]
            if is_unique and not is_partial and None not in names:
                found[tuple(sorted(names))] = True
        return found

    def make_table(self, connection: sqlite3.Connection, kinds: Mapping[str, str]) -> None:
        """Unless it is there."""
        parts = [f"{quoted(name)} {kind}" for name, kind in kinds.items()]
        if self.key:
            parts.append(f"PRIMARY KEY ({_listed(self.key)})")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {self._name} ({', '.join(parts)})")

    def type_for(self, kind: pa.DataType) -> str | None:
        """As `kinds` says."""
        return type_for(kind)

    def holds(self, kind: pa.DataType, found: str) -> bool:
        """As `kinds` says."""
        return holds(kind, found)

    def _pragma(self, what: str, name: str) -> str:
        schema = f"{quoted(self._schema)}." if self._schema else ""
        return f"PRAGMA {schema}{what}({quoted(name)})"

    # --- rows -----------------------------------------------------------------------------------------------

    def as_kept(self, rows: pa.Table, columns: Mapping[str, Column]) -> pa.Table:
        """As SQLite stores them."""
        names = rows.column_names
        return pa.table([as_stored(rows[name], columns[name].kind) for name in names], names=names)

    def insert(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        """One after the other."""
        before = self._count_if_others_change(connection)
        cursor = connection.executemany(self._insertion(rows.column_names, before), _tuples(rows))
        self.check_written(cursor.rowcount, rows.num_rows)
        self._check_count(connection, before, rows.num_rows)

    def upsert(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        """The same, over rows of their keys."""
        before = self._count_if_others_change(connection)
        known = 0 if before is None else self._count_keys(connection, rows)
        changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in self.updated(rows))
        act = f"UPDATE SET {changes}" if changes else "NOTHING"
        insertion = self._insertion(rows.column_names, before)
        cursor = connection.executemany(
            f"{insertion} ON CONFLICT ({_listed(self.key)}) DO {act}", _tuples(rows)
        )
        written = cursor.rowcount
        if written < rows.num_rows:  # a row that is there as it should be may be left alone
            written = self._count_there(connection, rows)
        self.check_written(written, rows.num_rows)
        self._check_count(connection, before, rows.num_rows - known)

    def delete(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        """One after the other."""
        keys = rows.select(self.key)
        before = self._count_if_others_change(connection, deletes=True)
        known = 0 if before is None else self._count_keys(connection, keys)
        connection.executemany(f"DELETE FROM {self._name} WHERE {self._same_key}", _tuples(keys))
        self.check_deleted(self._count_keys(connection, keys) > 0)
        self._check_count(connection, before, -known)

    def _count_if_others_change(self, connection: sqlite3.Connection, *, deletes: bool = False) -> int | None:
        """How many rows the table has if something else than the writer's statements may delete or add rows; else None.

        A trigger may do so, also one of another table that a foreign key changes. Where rows are deleted, a foreign key
        of the table with ON DELETE CASCADE may. The driver's own counts leave out the rows that a REPLACE deletes.
        """
        if not (_has_triggers(connection) or (deletes and self._may_cascade(connection))):
            return None
        return self._count_rows(connection)

    def _count_rows(self, connection: sqlite3.Connection) -> int:
        return int(execute(connection, f"SELECT count(*) FROM {self._name}").fetchone()[0])

    def _may_cascade(self, connection: sqlite3.Connection) -> bool:
        keys = execute(connection, self._pragma("foreign_key_list", self._plain)).fetchall()
        return any(on_delete == "CASCADE" for _, _, _, _, _, _, on_delete, _ in keys)

    def _check_count(self, connection: sqlite3.Connection, before: int | None, more: int) -> None:
        if before is not None:
            self.check_kept(self._count_rows(connection) - before, more)

    @property
    def _same_key(self) -> str:
        """Whether a row has the key that is given, as the key's index compares."""
        return " AND ".join(
            f"{quoted(name)} IS ? COLLATE {quoted(self.collations.get(name, 'BINARY'))}" for name in self.key
        )

    def _count_keys(self, connection: sqlite3.Connection, rows: pa.Table) -> int:
        """How many of the rows' keys the table has."""
        return self._count_where(connection, self._same_key, rows.select(self.key))

    def _count_there(self, connection: sqlite3.Connection, rows: pa.Table) -> int:
        """How many of the rows the table has."""
        where = " AND ".join(f"{quoted(name)} IS ? COLLATE BINARY" for name in rows.column_names)
        return self._count_where(connection, where, rows)

    def _count_where(self, connection: sqlite3.Connection, where: str, rows: pa.Table) -> int:
        query = f"SELECT EXISTS (SELECT 1 FROM {self._name} WHERE {where})"
        return sum(int(execute(connection, query, row).fetchone()[0]) for row in _tuples(rows))

    def key_collations(self, connection: sqlite3.Connection) -> dict[str, str]:
        """Those that are not BINARY, of a unique index on just the key."""
        found: dict[str, str] = {}
        indexes = execute(connection, self._pragma("index_list", self._plain)).fetchall()
        for _, index, is_unique, _, is_partial in indexes:
            columns = execute(connection, self._pragma("index_xinfo", index)).fetchall()
            parts = [(row[2], row[4]) for row in columns if row[5]]
            if is_unique and not is_partial and {name for name, _ in parts} == set(self.key):
                found |= {name: collation for name, collation in parts if collation.upper() != "BINARY"}
        return found

    def last_of_equal(self, connection: sqlite3.Connection, keys: pa.Table) -> pa.Array[Any]:
        """By SQLite."""
        names = [f"key{number}" for number in range(len(self.key))]
        typed = ", ".join(
            f"{name} COLLATE {quoted(self.collations.get(column, 'BINARY'))}"
            for name, column in zip(names, self.key, strict=True)
        )
        connection.execute(f"CREATE TEMP TABLE {_STAGED} ({typed}, ordinal INTEGER)")
        marks = ", ".join("?" for _ in range(len(names) + 1))
        rows = ((*key, ordinal) for ordinal, key in enumerate(_tuples(keys.select(self.key))))
        connection.executemany(f"INSERT INTO {_STAGED} VALUES ({marks})", rows)
        query = f"SELECT max(ordinal) FROM {_STAGED} GROUP BY {', '.join(names)} ORDER BY 1"
        found = [last for (last,) in execute(connection, query).fetchall()]
        connection.execute(f"DROP TABLE temp.{_STAGED}")
        return pa.array(found, pa.int64())

    def _insertion(self, names: Sequence[str], before: int | None) -> str:
        """OR ABORT rules out a constraint's ON CONFLICT REPLACE. It would hold for the statements of triggers too, so
        where there may be some the rows are counted.
        """
        marks = ", ".join("?" for _ in names)
        verb = "INSERT OR ABORT" if before is None else "INSERT"
        return f"{verb} INTO {self._name} ({_listed(names)}) VALUES ({marks})"


def insert_into(table: str, *, create: bool = False) -> SqliteWriter:
    """A `write` for `consume_into`: each record is a row more. `create`: make the table where there is none."""
    return SqliteWriter(table, create=create)


def upsert_into(
    table: str, key: Sequence[str], *, create: bool = False, delete_tombstones: bool = False
) -> SqliteWriter:
    """A `write` for `consume_into`: of each key the last record. It needs a unique index on these columns.

    `delete_tombstones`: a record whose other columns are all null deletes the row, as in a compacted topic.
    """
    return SqliteWriter(
        table, key=checked_key(table, key), create=create, delete_tombstones=delete_tombstones
    )


def append_to(table: str, *, create: bool = False) -> SqliteWriter:
    """A `write` for `consume_into`: a history, each record with its `_partition`, `_offset` and `_timestamp`."""
    return SqliteWriter(table, create=create, with_places=True)


def quoted(name: str) -> str:
    """A name, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _has_triggers(connection: sqlite3.Connection) -> bool:
    """Whether any file of the connection has a trigger, or the connection itself."""
    schemas = [row[1] for row in execute(connection, "PRAGMA database_list").fetchall()]
    return any(
        execute(
            connection, f"SELECT EXISTS (SELECT 1 FROM {quoted(schema)}.sqlite_master WHERE type = 'trigger')"
        ).fetchone()[0]
        for schema in schemas
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    for part in rows.to_batches(max_chunksize=_ROWS):
        yield from zip(*(column.to_pylist() for column in part.columns), strict=True)
