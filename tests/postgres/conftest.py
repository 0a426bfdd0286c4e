"""A real Postgres, one for the session, and a fresh database in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection, conninfo

import txn_engine
from tests.conftest import missing_server
from tests.live.postgres import PostgresServer, postgres_binaries
from txn_engine import Engine

SCHEMA = pa.schema(
    [
        pa.field("account_id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(18, 2)),
        pa.field("note", pa.string()),
    ]
)
_NAMES = count()


def payments(*accounts: int, amount: str = "1.50", note: str | None = "paid") -> pa.Table:
    return pa.table(
        {
            "account_id": list(accounts),
            "amount": [Decimal(amount)] * len(accounts),
            "note": [note] * len(accounts),
        },
        schema=SCHEMA,
    )


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    binaries = postgres_binaries()
    if binaries is None:
        missing_server("no Postgres: install Debian's `postgresql`, or run .ci/setup-debian")
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> str:
    """Of a database that nobody has used."""
    name = f"test_{next(_NAMES)}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return conninfo.make_conninfo(postgres_server.dsn, dbname=name)


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(dsn) as connection:
        yield connection


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"file://{tmp_path}/ledger") as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        yield engine


def produce(engine: Engine, table: pa.Table, topic: str = "payments", *, commit: bool = True) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, table)
        producer.commit_transaction() if commit else producer.abort_transaction()
