"""What can go wrong with a database, in one line that quotes no value; the driver's own error stays in `__cause__`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import psycopg
from psycopg import Connection, errors
from psycopg.pq import TransactionStatus

from txn_engine.errors import IllegalStateError, TxnEngineError

_NAMES_ALONE = ("3F000", "42501", "42702", "42703", "42704", "42P01", "42P07", "42P10", "25006")
"""Conditions whose text names schemas, tables, columns; that of a trigger, or of a bad value, may hold anything."""
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError)


class DatabaseError(TxnEngineError):
    """The database refused a statement. Its transaction was rolled back: nothing of it is there."""

    code: ClassVar[str] = "DATABASE_REFUSED"
    is_refusal = True


class DatabaseUnavailableError(DatabaseError):
    """The connection is lost, or the server is. What was not committed is rolled back by the server."""

    code: ClassVar[str] = "DATABASE_UNAVAILABLE"
    retry_helps = True
    is_refusal = False
    default_action = "nothing of this batch is there; run it again when the server answers"


class DatabaseOutcomeUnknownError(DatabaseUnavailableError):
    """The connection was lost at the commit: the batch may be there, with its positions, or not."""

    code: ClassVar[str] = "DATABASE_OUTCOME_UNKNOWN"
    default_action = "run it again: it goes on from where the database is, and repeats nothing"


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
    if isinstance(error, _AWAY) and error.sqlstate is None:
        return DatabaseUnavailableError("the connection is lost", actor=actor, place=place)
    if error.sqlstate is not None and error.sqlstate[:2] in ("08", "57"):
        return DatabaseUnavailableError(_said(error), actor=actor, place=place)
    return DatabaseError(_said(error), actor=actor, place=place, action="mend it and run it again")


def _said(error: psycopg.Error) -> str:
    """The condition by its name, and what the server says of tables, columns and constraints, which are names."""
    named = error.diag
    said = type(error).__name__
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
    if connection.closed:
        raise IllegalStateError("a closed connection", actor=actor, expected="an open one")
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        raise IllegalStateError(
            "a connection with a transaction open",
            actor=actor,
            expected="one that is idle: each batch is committed by itself",
            action="commit or roll back before, or connect with autocommit",
        )


LockedError = errors.LockNotAvailable
"""What `NOWAIT` raises where somebody else has the row."""
