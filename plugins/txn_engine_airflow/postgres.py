"""A database by an Airflow connection of type `postgres`: host, port, schema (the database), login, password; what else
libpq takes (`sslmode`, `options`, ...) in extra. What a connection leaves out libpq takes from the environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from txn_engine_airflow.errors import TaskError, TaskReason

if TYPE_CHECKING:
    import psycopg

POSTGRES_CONN_ID: Final = "postgres_default"

_TYPES: Final = ("postgres", "postgresql")
_OF_THE_CONNECTION: Final = {
    "host": "host",
    "port": "port",
    "schema": "dbname",
    "login": "user",
    "password": "password",
}
_OF_OTHERS: Final = frozenset({"cursor", "sqlalchemy_scheme", "sqlalchemy_query"})
"""What Airflow's own hook reads there, and what makes no other connection."""
_REFUSALS: Final = (
    ("invalid", "a setting of it that libpq does not take"),
    ("certificate", "a certificate that is not there, or not trusted"),
    ("password authentication failed", "the server refuses login or password"),
    ("no pg_hba.conf entry", "the server lets nobody in from here"),
    ("does not exist", "no such database or role"),
    ("does not support SSL", "the server does not speak TLS"),
)
_TROUBLES: Final = (
    ("could not translate host name", "no such host"),
    ("onnection refused", "nobody listens there"),
    ("timeout expired", "no answer in time"),
    ("too many clients", "the server has no connection left"),
    ("starting up", "the server is starting"),
    ("shutting down", "the server is stopping"),
)


@contextmanager
def open_postgres(conn_id: str = POSTGRES_CONN_ID) -> Iterator[psycopg.Connection[Any]]:
    """The database of a connection, closed at the end of the block. For a task that runs: asks Airflow.

    Raises `AirflowFailException` for a connection that is not defined, or says what cannot be meant; the engine's
    `DatabaseUnavailableError` where the server does not answer, `DatabaseError` where it lets nobody in. No error has
    anything of the connection but host, port and database.
    """
    from txn_engine.extras import imports_named

    with imports_named("open_postgres"):
        import psycopg

        from txn_engine.postgres import DatabaseError, DatabaseUnavailableError
    words = _words(conn_id)
    where = f"{words.get('host', '')}:{words.get('port', 5432)}/{words.get('dbname', '')}"
    try:
        connection = psycopg.connect(**words)
    except (psycopg.Error, UnicodeError) as error:
        text = str(error)
        for said, told in _REFUSALS:
            if said in text:
                raise DatabaseError(
                    told, actor=f"connection {conn_id!r}", place=where, action="mend the connection"
                ) from None
        told = next((told for said, told in _TROUBLES if said in text), "no connection")
        raise DatabaseUnavailableError(
            told, actor=f"connection {conn_id!r}", place=where, action="nothing was done; run it again"
        ) from None
    with connection:
        yield connection


def _words(conn_id: str) -> dict[str, Any]:
    """What psycopg takes; its secrets are masked in the logs."""
    try:
        found = Connection.get(conn_id)
    except AirflowNotFoundException:
        raise TaskError(
            f"connection {conn_id!r}: it is not defined; expected one of type postgres: define it in Airflow, or as "
            f"AIRFLOW_CONN_{conn_id.upper()} in the environment that Airflow is started in",
            reason=TaskReason.NO_CONNECTION,
            subject=conn_id,
        ) from None
    name = f"connection {conn_id!r}"
    if found.conn_type not in _TYPES:
        raise TaskError(
            f"{name}: of type {found.conn_type!r:.40}; expected postgres",
            reason=TaskReason.WRONG_CONNECTION_TYPE,
            subject=conn_id,
        )
    words = {
        word: value
        for field, word in _OF_THE_CONNECTION.items()
        if (value := getattr(found, field)) not in (None, "")
    }
    if {"@", ":", "="} & set(f"{words.get('host', '').removeprefix('@')}{words.get('dbname', '')}"):
        raise TaskError(
            f"{name}: host or schema is a URL or a DSN; expected host and database alone, and the rest in its fields",
            reason=TaskReason.URL_WITH_SECRETS,
            subject=conn_id,
        )
    words |= _extra(name, found)
    for secret in ("password", *(word for word, is_secret in _known().items() if is_secret)):
        if secret in words:
            mask_secret(str(words[secret]))
    return words


def _extra(name: str, connection: Connection) -> dict[str, Any]:
    """What libpq takes of the connection's extra. (`extra_dejson` would log what it cannot read.)"""
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise TaskError(
            f"{name}: extra cannot be read; expected a JSON object",
            reason=TaskReason.UNREADABLE_CONNECTION,
            subject="extra",
        )
    known = _known().keys() - _OF_THE_CONNECTION.values()
    if unknown := sorted(extra.keys() - known - _OF_OTHERS):
        raise TaskError(
            f"{name}: extra.{unknown[0]:.40}; expected what libpq takes: {', '.join(sorted(known))}",
            reason=TaskReason.UNKNOWN_FIELD,
            subject=f"extra.{unknown[0]:.40}",
        )
    if bad := [word for word, value in extra.items() if not isinstance(value, str | int | float)]:
        raise TaskError(
            f"{name}: extra.{bad[0]} is no text; expected text or a number",
            reason=TaskReason.NOT_TEXT,
            subject=f"extra.{bad[0]}",
        )
    return {word: value for word, value in extra.items() if word in known}


def _known() -> dict[str, bool]:
    """The words of libpq, and whether each is a secret."""
    from psycopg.pq import Conninfo

    return {
        each.keyword.decode(): each.dispchar == b"*" or each.keyword.startswith(b"scram")
        for each in Conninfo.get_defaults()
    }
