"""Payments, and the balances that the Spark job makes of them."""

from __future__ import annotations

from decimal import Decimal

from tests.quality.ledger import PAYMENTS, ROWS, payments_table
from txn_engine import Engine

SUMS = {1: ("661.95", 3), 2: ("1002.90", 3), 3: ("90071992547409.92", 2)}


def fill(engine: Engine) -> None:
    """Create both topics, and load all payments of the ledger and an aborted transaction."""
    from txn_engine.spark.balances import BALANCES_SCHEMA

    engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account_id")
    engine.admin.create_topic("balances", partitions=2, schema=BALANCES_SCHEMA, key="account_id")
    load(engine, "load")
    with engine.producer(transactional_id="gone") as gone:
        gone.init_transactions()
        gone.begin_transaction()
        gone.produce("payments", payments_table(ROWS[:2])).result()
        gone.abort_transaction()


def load(engine: Engine, transactional_id: str) -> None:
    """Load all payments of the ledger once more."""
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", payments_table())


def sums(engine: Engine) -> dict[int, tuple[str, int]]:
    """Turnover and number of payments by account, over all rows of the output."""
    found: dict[int, tuple[Decimal, int]] = {}
    for row in engine.scan("balances").to_table().to_pylist():
        turnover, count = found.get(row["account_id"], (Decimal(0), 0))
        found[row["account_id"]] = (turnover + row["turnover"], count + row["payments"])
    return {account: (str(turnover), count) for account, (turnover, count) in sorted(found.items())}
