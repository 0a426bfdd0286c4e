"""sqlite3's errors as ours, in one line that quotes no value."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from txn_engine.databases.errors import (
    DatabaseError,
    DatabaseUnavailableError,
    not_a_connection,
    require_idle,
)
from txn_engine.errors import IllegalStateError
from txn_engine.reasons import Reason

_NAMES_ALONE: Final = (
    "no such table",
    "no such column",
    "UNIQUE constraint failed",
    "NOT NULL constraint failed",
    "CHECK constraint failed",
    "FOREIGN KEY constraint failed",
    "cannot store",
    "attempt to write a readonly database",
    "unknown database",
    "Incorrect number of bindings",
    "Error binding parameter",
)
"""Beginnings of what names tables and columns; that of a trigger, or of a statement, may hold anything."""
_NOT_UTF8: Final = re.compile(r"Could not decode to UTF-8 (column '.*?') with text ")
_KINDS: Final = {
    sqlite3.SQLITE_CONSTRAINT: "a constraint or a trigger of the table refused a row",
    sqlite3.SQLITE_MISMATCH: "a value has another type than the column takes",
    sqlite3.SQLITE_TOOBIG: "a text or a blob is larger than SQLite allows",
    sqlite3.SQLITE_READONLY: "the database takes no writes",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not a database of SQLite, or it is encrypted",
    sqlite3.SQLITE_SCHEMA: "the tables changed while the statement ran",
    sqlite3.SQLITE_AUTH: "the connection's authorizer forbids the statement",
    sqlite3.SQLITE_PERM: "the file's permissions forbid it",
    sqlite3.SQLITE_INTERRUPT: "the statement was interrupted",
}
_OF_A_RECORD: Final = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_AWAY: Final = (
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
)


def execute(
    connection: sqlite3.Connection, statement: str, words: Sequence[Any] | Mapping[str, Any] = ()
) -> sqlite3.Cursor:
    """Run a statement of ours: its rows are tuples, whatever the connection makes of rows for others."""
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        return cursor.execute(statement, words)
    except (OverflowError, UnicodeEncodeError) as error:
        raise sqlite3.DataError("Error binding parameter: a number or text that SQLite has not") from error


def select(
    connection: sqlite3.Connection, query: str, words: Sequence[Any] | Mapping[str, Any] = ()
) -> tuple[list[str], sqlite3.Cursor]:
    """The columns of a query by their names, and its rows as SQLite has them, whatever converters the connection has:
    they go by a column's declared type, or by its name, and what is selected here has neither.
    """
    described = execute(connection, f"SELECT * FROM ({query}\n) LIMIT 0", words).description
    names = [column[0] for column in described]
    columns = [f"c{number}" for number in range(len(names))]
    plain = f"WITH txn_engine_query ({', '.join(columns)}) AS ({query}\n) SELECT +{', +'.join(columns)}"
    return names, execute(connection, f"{plain} FROM txn_engine_query", words)


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str, actor: str, place: str) -> Iterator[None]:
    """One, committed when the block ends, rolled back where it raises; errors of the driver's are ours."""
    try:
        connection.execute(begin)
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):  # the error to tell is the one that came first
                    connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise translated(error, actor, place) from error


def blames_record(error: sqlite3.Error) -> bool:
    """Whether a record brings the error about, rather than the table or the statement."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_A_RECORD


def translated(error: sqlite3.Error, actor: str, place: str) -> DatabaseError:
    """In one line."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    name = _name(error)
    if code in _BUSY:
        return DatabaseUnavailableError(f"others are at work there ({name})", actor=actor, place=place)
    if code in _AWAY:
        return DatabaseUnavailableError(
            f"the file cannot be read or written ({name})", actor=actor, place=place
        )
    reason = Reason.BAD_ENCODING if _NOT_UTF8.match(str(error)) else None
    return DatabaseError(
        _said(error), actor=actor, place=place, action="fix it and run it again", reason=reason
    )


def _said(error: sqlite3.Error) -> str:
    text = str(error)
    if text.startswith(_NAMES_ALONE):
        return text
    if (found := _NOT_UTF8.match(text)) is not None:
        return f"{found[1]} has a text that is not UTF-8"
    if "syntax error" in text:
        return "syntax error"
    kind = _KINDS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "the statement was refused by SQLite")
    return f"{kind} ({_name(error)})"


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def check_idle(connection: sqlite3.Connection, actor: str) -> None:
    """Raise `IllegalStateError` for a connection that is closed, or in a transaction."""
    if not isinstance(connection, sqlite3.Connection):
        raise not_a_connection(connection, actor)
    try:
        is_idle = not connection.in_transaction
        connection.total_changes  # noqa: B018 -- which a closed one refuses
    except sqlite3.ProgrammingError:
        require_idle(actor, is_open=False, is_idle=True)
        raise
    require_idle(actor, is_open=True, is_idle=is_idle)
    if connection.text_factory is not str:
        raise IllegalStateError(
            "a connection with a text_factory of its own",
            actor=actor,
            expected="str, which is SQLite's own",
            reason=Reason.OWN_TEXT_FACTORY,
        )


def check_adapters(actor: str) -> None:
    """Raise `IllegalStateError` for an adapter that would put other values into the database than the records'."""
    for kind in (int, float, str, bytes):
        if (kind, sqlite3.PrepareProtocol) in sqlite3.adapters:
            raise IllegalStateError(
                f"an adapter for {kind.__name__}, registered with sqlite3.register_adapter",
                actor=actor,
                expected="none for int, float, str or bytes: the table would have other values than the topic",
                reason=Reason.OWN_ADAPTER,
            )
