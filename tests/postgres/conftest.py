"""A store and a fresh database in a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection, conninfo
from psycopg.sql import SQL, Identifier

import txn_engine
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine

SCHEMA = pa.schema(
    [
        pa.field("account_id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(18, 2)),
        pa.field("note", pa.string()),
    ]
)


def payments(*accounts: int, amount: str = "1.50", note: str | None = "paid") -> pa.Table:
    return pa.table(
        {
            "account_id": list(accounts),
            "amount": [Decimal(amount)] * len(accounts),
            "note": [note] * len(accounts),
        },
        schema=SCHEMA,
    )


def database_in(dsn: str, encoding: str) -> str:
    """The address of a new database beside this one, with this encoding."""
    name = f"{conninfo.conninfo_to_dict(dsn)['dbname']}_{encoding}".lower()
    made = SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(made.format(Identifier(name), encoding))
    return conninfo.make_conninfo(dsn, dbname=name)


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(dsn) as connection:
        yield connection


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"file://{tmp_path}/ledger", configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        yield engine


def produce(engine: Engine, table: pa.Table, topic: str = "payments", *, commit: bool = True) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, table)
        producer.commit_transaction() if commit else producer.abort_transaction()
