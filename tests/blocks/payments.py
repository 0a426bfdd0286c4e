"""Payments for the tests, and the records that readers see of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.blocks.conftest import PAYMENTS
from txn_engine import Engine
from txn_engine.producer import Producer


def payments(first: int = 0, count: int = 10) -> pa.Table:
    """A payment of 1.25 for each of this many accounts."""
    accounts = pa.array(range(first, first + count), pa.int64())
    amounts = pa.array([Decimal("1.25")] * count, pa.decimal128(18, 2))
    return pa.table([accounts, amounts], schema=PAYMENTS)


def commit(
    engine: Engine,
    table: pa.Table,
    transactional_id: str = "someone",
    *,
    run_id: str | None = None,
    **settings: Any,
) -> None:
    """Commit a transaction of another producer."""
    with engine.producer(transactional_id=transactional_id, **settings) as producer:
        producer.init_transactions()
        with producer.transaction(run_id):
            producer.produce("payments", table)


def leave_open(engine: Engine, table: pa.Table, transactional_id: str = "someone") -> Producer:
    """Write a transaction and leave it undecided."""
    producer = engine.producer(transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", table)
    producer.flush()
    return producer


def events(run: Any) -> list[tuple[str, dict[str, Any]]]:
    """URI and extra of each asset event that a run emitted."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetEvent).where(
            AssetEvent.source_run_id == run.dag_run.run_id, AssetEvent.source_dag_id == run.dag_run.dag_id
        )
        return [(event.asset.uri, event.extra) for event in session.scalars(query.order_by(AssetEvent.id))]
