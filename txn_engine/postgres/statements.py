"""Statements of the engine's own: their rows are tuples, whatever the connection makes of rows for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from psycopg import Connection, Cursor, sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import TupleRow, tuple_row

_TEXTS: Final = ("text", "name", "varchar", "bpchar", '"char"')


class _Text(Loader):
    """Of a connection whose encoding is SQL_ASCII, for which psycopg gives bytes."""

    def load(self, data: Buffer) -> str:
        """The text."""
        return bytes(data).decode()


def execute(
    connection: Connection[Any], statement: str | sql.SQL | sql.Composed, words: Sequence[Any] | None = None
) -> Cursor[TupleRow]:
    """Run a statement with `%s` for its words."""
    query = statement.encode() if isinstance(statement, str) else statement
    cursor = connection.cursor(row_factory=tuple_row)
    if connection.info.encoding == "ascii":
        for kind in _TEXTS:
            cursor.adapters.register_loader(kind, _Text)
    return cursor.execute(query, words)
