"""Statements of the engine's own: their rows are tuples, whatever the connection makes of rows for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection, Cursor, sql
from psycopg.rows import TupleRow, tuple_row


def execute(
    connection: Connection[Any], statement: str | sql.SQL | sql.Composed, words: Sequence[Any] | None = None
) -> Cursor[TupleRow]:
    """Run a statement with `%s` for its words."""
    query = statement.encode() if isinstance(statement, str) else statement
    return connection.cursor(row_factory=tuple_row).execute(query, words)
