"""psycopg's errors as ours, in one line that quotes no value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection, errors
from psycopg.pq import TransactionStatus

from txn_engine.databases.errors import (
    DatabaseError,
    DatabaseUnavailableError,
    not_a_connection,
    require_idle,
)

_NAMES_ALONE = ("3F000", "42501", "42702", "42703", "42704", "42P01", "42P07", "42P10", "25006")
"""Conditions whose text names schemas, tables, columns; that of a trigger, or of a bad value, may hold anything."""
_LOST = ("08", "57P", "25P03", "25P04")
_TROUBLES = (*_LOST, "53", "57", "58")
"""What passes: a connection or server that went, a full disk, no memory, no connection left, a statement cancelled."""
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError)


@contextmanager
def database_errors(actor: str, place: str) -> Iterator[None]:
    """The driver's errors as ours. A message of the server's may quote a value: only what names a place is told."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, actor, place) from error


def translated(error: psycopg.Error, actor: str, place: str) -> DatabaseError:
    """In one line. Its detail, and the text of data errors, hold values of the record."""
    state = error.sqlstate or ""
    if state.startswith("40") or state == "55P03":
        return DatabaseUnavailableError(
            f"{type(error).__name__}: others are at work there", actor=actor, place=place
        )
    if isinstance(error, _AWAY) and not state:
        return DatabaseUnavailableError("the connection is lost", actor=actor, place=place)
    if state.startswith(_TROUBLES):
        return DatabaseUnavailableError(_said(error), actor=actor, place=place)
    return DatabaseError(_said(error), actor=actor, place=place, action="mend it and run it again")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection, or the server, went: of a commit nobody knows then what became of it."""
    state = error.sqlstate or ""
    return state.startswith(_LOST) or (isinstance(error, _AWAY) and not state)


def _said(error: psycopg.Error) -> str:
    """The condition by its name, and what the server says of tables, columns and constraints, which are names."""
    named = error.diag
    said = type(error).__name__
    if error.sqlstate is None:
        return f"{said}: {error}".partition("\n")[0]  # psycopg's own words, on parameters and their types
    if named.sqlstate in _NAMES_ALONE:
        said = named.message_primary or said
    elif named.sqlstate == "42601":
        said = f"syntax error at character {named.statement_position or '?'} of the statement"
    where = [
        f"{word} {name!r}"
        for word, name in (
            ("table", named.table_name),
            ("column", named.column_name),
            ("constraint", named.constraint_name),
        )
        if name is not None
    ]
    return f"{said} ({', '.join(where)})" if where else said


def check_idle(connection: Connection[object], actor: str) -> None:
    """Raise `IllegalStateError` for one that is in a transaction: what is done here would end with that one."""
    if not isinstance(connection, psycopg.Connection):
        raise not_a_connection(connection, actor)
    status = connection.info.transaction_status
    require_idle(actor, is_open=not connection.closed, is_idle=status is TransactionStatus.IDLE)


LockedError = errors.LockNotAvailable
"""What `NOWAIT` raises where somebody else has the row."""
