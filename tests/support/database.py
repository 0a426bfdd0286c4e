"""A database of a test's own, as an Airflow connection, with payments in it."""

from __future__ import annotations

import json
from typing import Any

import psycopg
from psycopg import Connection, conninfo

from txn_engine import Engine

CONN_ID = "POSTGRES_DEFAULT"
VARIABLE = f"AIRFLOW_CONN_{CONN_ID}"


def connection_text(dsn: str, **other: Any) -> str:
    """The connection of type `postgres`, in the form that an environment variable has."""
    words = conninfo.conninfo_to_dict(dsn)
    fields = {
        "conn_type": "postgres",
        "host": words["host"],
        "port": int(words["port"]),
        "schema": words["dbname"],
        "login": words["user"],
        "password": words["password"],
    }
    return json.dumps(fields | other)


def fill(dsn: str, table: str, first: int, count: int, columns: str = "") -> None:
    """Insert this many rows of payments. The table is created if it does not exist."""
    with psycopg.connect(dsn) as connection:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {table}"  # type: ignore[arg-type]
            f" (id bigserial PRIMARY KEY, account_id bigint, amount numeric {columns})"
        )
        connection.execute(
            f"INSERT INTO {table} (account_id, amount)"  # type: ignore[arg-type]
            " SELECT n, 1.25 FROM generate_series(%s::bigint, %s::bigint) AS of (n)",
            (first, first + count - 1),
        )


def ids(dsn: str, table: str) -> list[int]:
    """The accounts of a table's rows in order."""
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute(f"SELECT account_id FROM {table} ORDER BY 1")]  # type: ignore[arg-type]


def drain(engine: Engine, connection: Connection[Any], **settings: Any) -> Any:
    """Load the outbox as another caller would, under the outbox's own id."""
    from txn_engine.postgres import load_outbox

    return load_outbox(engine, connection, "outbox", "payments", **settings)
