"""psycopg's errors as ours, in one line that quotes no value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import Connection, errors
from psycopg.pq import TransactionStatus

from txn_engine.databases.errors import (
    DatabaseError,
    DatabaseUnavailableError,
    not_a_connection,
    require_idle,
)
from txn_engine.reasons import Reason

_KINDS: Final = {
    "08": "the connection is lost",
    "09": "a trigger failed",
    "0A": "the server does not support what was asked for",
    "21": "a row, or a value, is there more than once",
    "22": "the server does not take or cannot compute a value",
    "23": "a constraint of the table is violated",
    "25": "the state of the connection's transaction does not allow this",
    "28": "the server does not let this user in",
    "2F": "a function failed",
    "38": "a function failed",
    "39": "a function failed",
    "3D": "the database does not exist",
    "3F": "the schema does not exist",
    "42": "the statement does not fit the database, or this user lacks a privilege",
    "44": "the row does not meet the condition of the view",
    "53": "the server lacks disk, memory or connections",
    "54": "a limit of the server is exceeded",
    "55": "an object is not in a state for this",
    "57": "the server is going down, or was told to stop this",
    "58": "the server's machine or files have a fault",
    "P0": "a function or trigger raised an error",
    "XX": "the server has an internal error",
}
"""Classes of conditions in words that quote nothing (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""
_ENCODING: Final = {
    "22021": "a text has bytes that its encoding does not have",
    "22P05": "a text has a character that the other encoding does not have",
}
_SAID_BY_SERVER: Final = ("0A", "21", "25", "3D", "3F", "42", "53", "54", "55")
"""Classes whose texts name schemas, tables, columns and limits; those of bad values hold them. In 42601 the server
quotes the statement.
"""
_OF_THE_STATEMENT: Final = ("0A", "25", "28", "3D", "3F", "42", "55", "XX")
"""Classes that say nothing about a record."""
_LANGUAGES: Final = ("pl_", "plp", "pltcl")
"""Source files of procedural languages begin so: the text is of a function's own, and may hold anything."""
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
            f"others are at work there: {_condition(error)}", actor=actor, place=place
        )
    if isinstance(error, _AWAY) and not state:
        return DatabaseUnavailableError("the connection is lost", actor=actor, place=place)
    if state.startswith(_TROUBLES):
        return DatabaseUnavailableError(_said(error), actor=actor, place=place)
    reason = Reason.BAD_ENCODING if state in _ENCODING else None
    return DatabaseError(
        _said(error), actor=actor, place=place, action="fix it and run it again", reason=reason
    )


def blames_record(error: psycopg.Error) -> bool:
    """Whether the condition is one that a record brings about, rather than the table or the statement."""
    return not (error.sqlstate or "").startswith(_OF_THE_STATEMENT)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection, or the server, went: of a commit nobody knows then what became of it."""
    state = error.sqlstate or ""
    return state.startswith(_LOST) or (isinstance(error, _AWAY) and not state)


def _said(error: psycopg.Error) -> str:
    """What is wrong, and what the server says of tables, columns and constraints, which are names. Its own text where
    that holds nothing else.
    """
    named, state = error.diag, error.sqlstate
    if state is None:
        return f"psycopg refused it: {error}".partition("\n")[
            0
        ]  # its own words, on parameters and their types
    if state == "42601":
        return f"syntax error at character {named.statement_position or '?'} of the statement"
    is_servers = not (named.source_file or _LANGUAGES[0]).startswith(_LANGUAGES)
    said = named.message_primary if is_servers and state.startswith(_SAID_BY_SERVER) else None
    if said is None:
        kind = _ENCODING.get(state) or _KINDS.get(state[:2], "the server, or a function of its, refused this")
        said = f"{kind}: {_condition(error)}"
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


def _condition(error: psycopg.Error) -> str:
    """The condition's name in Postgres' list, as words, or its code."""
    name = type(error).__name__ if type(error).sqlstate else ""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).lower().rstrip("_")
    return f"{words} ({error.sqlstate})".lstrip()


def check_idle(connection: Connection[object], actor: str) -> None:
    """Raise `IllegalStateError` for one that is in a transaction: what is done here would end with that one."""
    if not isinstance(connection, psycopg.Connection):
        raise not_a_connection(connection, actor)
    status = connection.info.transaction_status
    require_idle(actor, is_open=not connection.closed, is_idle=status is TransactionStatus.IDLE)


LockedError = errors.LockNotAvailable
"""What `NOWAIT` raises where somebody else has the row."""
