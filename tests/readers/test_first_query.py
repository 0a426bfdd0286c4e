"""`bench --tables` asks each engine of the readers' environments, and gets the table's records."""

from __future__ import annotations

from pathlib import Path

import pytest

from txn_engine import connect
from txn_engine.bench.first_queries import READERS, first_queries
from txn_engine.bench.first_query_child import ACCOUNTS
from txn_engine.bench.payments import SCHEMA, payments

pytestmark = [pytest.mark.shard("engines"), pytest.mark.timeout(900)]


def test_every_engine_answers(tmp_path: Path) -> None:
    """Each engine answers a query of the table and one of its files. The bench itself refuses answers that
    differ."""
    records = payments(1_000)
    with connect(f"file://{tmp_path}/ledger") as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
        engine.partition("payments", 0).append(records)
        uris = engine.tables.publish("payments")
        found = list(first_queries(engine, "payments", "as published", uris, lambda *_: None, rounds=1))
    assert 0 < sum(account < ACCOUNTS for account in records.column("account_id").to_pylist()) < 1_000
    assert [(each.engine, each.format) for each in found] == [(each.name, each.form) for each in READERS]
    failed = {each.engine: each.note for each in found if each.note}
    assert failed == {}
    assert all(each.table_ms > 0 and each.bare_ms > 0 for each in found)
