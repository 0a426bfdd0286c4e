"""What `consume_into` writes with into SQLite: rows inserted, upserted by a key, or appended as a history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from txn_engine.databases.writing import Column, TableWriter, checked_key
from txn_engine.sqlite.errors import execute
from txn_engine.sqlite.kinds import as_stored, holds, type_for

_ROWS: Final = 10_000


class SqliteWriter(TableWriter[sqlite3.Connection]):
    """Puts records into a table of SQLite."""

    not_kept = (
        "a value that cannot be written to SQLite as it is: a number above 64 bits, a NaN, or a time outside of the "
        "years -32767 to 32767"
    )

    def __init__(self, table: str, **chosen: Any) -> None:
        super().__init__(table, **chosen)
        self._schema, _, self._plain = table.rpartition(".")
        self._name = ".".join(map(quoted, filter(None, (self._schema, self._plain))))

    # --- the table ------------------------------------------------------------------------------------------

    def columns_of(self, connection: sqlite3.Connection) -> dict[str, Column]:
        """As the file declares them."""
        found = execute(connection, self._pragma("table_xinfo", self._plain)).fetchall()
        return {
            name: Column(
                kind, not required, default is not None or (in_key and kind.upper() == "INTEGER"), hidden > 1
            )
            for _, name, kind, required, default, in_key, hidden in found
            if hidden != 1
        }

    def unique_keys(self, connection: sqlite3.Connection) -> list[tuple[str, ...]]:
        """The primary key, and whole unique indexes."""
        info = execute(connection, self._pragma("table_xinfo", self._plain)).fetchall()
        found = [tuple(sorted(row[1] for row in info if row[5]))]
        indexes = execute(connection, self._pragma("index_list", self._plain)).fetchall()
        for _, index, is_unique, _, is_partial in indexes:
            names = [row[2] for row in execute(connection, self._pragma("index_info", index)).fetchall()]
            if is_unique and not is_partial and None not in names:
                found.append(tuple(sorted(names)))
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

    def as_kept(self, rows: pa.Table) -> pa.Table:
        """As SQLite stores them."""
        return pa.table([as_stored(column) for column in rows.columns], names=rows.column_names)

    def insert(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        """One after the other."""
        connection.executemany(self._insertion(rows.column_names), _tuples(rows))

    def upsert(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        """The same, over rows of their keys."""
        others = [name for name in rows.column_names if name not in self.key]
        changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        act = f"UPDATE SET {changes}" if others else "NOTHING"
        text = f"{self._insertion(rows.column_names)} ON CONFLICT ({_listed(self.key)}) DO {act}"
        connection.executemany(text, _tuples(rows))

    def delete(self, connection: sqlite3.Connection, keys: pa.Table) -> None:
        """One after the other."""
        where = " AND ".join(f"{quoted(name)} = ?" for name in self.key)
        connection.executemany(f"DELETE FROM {self._name} WHERE {where}", _tuples(keys))

    def _insertion(self, names: Sequence[str]) -> str:
        marks = ", ".join("?" for _ in names)
        return f"INSERT INTO {self._name} ({_listed(names)}) VALUES ({marks})"


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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    for part in rows.to_batches(max_chunksize=_ROWS):
        yield from zip(*(column.to_pylist() for column in part.columns), strict=True)
