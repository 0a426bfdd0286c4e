"""A store and a fresh database in a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection

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
