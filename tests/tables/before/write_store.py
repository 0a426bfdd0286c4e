"""Writes the store of `store.tar.gz`, and `expected.json`, by the code of before there were cuts, tables and field ids:

    git worktree add ../before 4f5dc0b^
    PYTHONPATH=../before python tests/tables/before/write_store.py ../store >tests/tables/before/expected.json
    tar --sort=name --owner=0 --group=0 --numeric-owner -C .. -czf tests/tables/before/store.tar.gz store

`test_before.py` opens it by the code as it is.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal

import pyarrow as pa

from txn_engine import Engine, connect
from txn_engine.maintain import MaintenancePolicy
from txn_engine.testing import ManualClock

PAYMENTS = pa.schema([pa.field("account", pa.int64(), nullable=False), ("amount", pa.decimal128(18, 2))])
SIDES = pa.schema(
    [
        pa.field("account", pa.int64()).with_metadata({"PARQUET:field_id": "2"}),
        pa.field("amount", pa.int64()).with_metadata({"PARQUET:field_id": "1"}),
    ]
)
"""As that of a Parquet file whose columns have ids: that code took them over into its own files."""
EAGER = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2, min_dirty_ratio=0)


def payments(*accounts: int) -> pa.Table:
    amounts = pa.array([Decimal(f"{each}.25") for each in accounts], pa.decimal128(18, 2))
    return pa.table([pa.array(accounts, pa.int64()), amounts], schema=PAYMENTS)


def transact(engine: Engine, name: str, first: int, *, markers: str = "inline") -> None:
    """Write two records into each partition. The transaction of `load-2` aborts."""
    with engine.producer(transactional_id=name, markers=markers) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(2):
            producer.produce("payments", payments(first + partition, first + 2), partition=partition).result()
        if name == "load-2":
            producer.abort_transaction()
        else:
            producer.commit_transaction()


def write(engine: Engine) -> None:
    """Write merged files, sealed entries, an abort, a group's position, a topic compacted by key, one whose
    files have a caller's ids, and a transaction that is decided but not marked yet."""
    engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account")
    engine.admin.create_topic(
        "latest", partitions=1, schema=PAYMENTS, key="account", cleanup_policy="compact"
    )
    engine.admin.create_topic("sides", partitions=1, schema=SIDES)
    with engine.producer() as producer:
        for account in (1, 2):
            producer.produce("payments", payments(account), partition=0).result()
        for account in (1, 2, 1):
            producer.produce("latest", payments(account, account + 4), partition=0).result()
        for number in range(3):
            producer.produce(
                "sides", pa.table([[number], [number + 100]], schema=SIDES), partition=0
            ).result()
    transact(engine, "load-1", 10)
    transact(engine, "load-2", 20)
    engine.maintenance.compact("payments", policy=EAGER)
    engine.maintenance.compact("latest", policy=EAGER)
    engine.admin.snapshot("payments")
    transact(engine, "load-3", 30)
    engine.admin.snapshot("payments")
    engine.maintenance.retain("payments", policy=EAGER)
    engine.maintenance.seal("payments")
    with engine.consumer(group_id="balances") as consumer:
        consumer.subscribe(["payments"])
        while consumer.poll() is not None:
            pass
        consumer.commit()
    transact(engine, "load-4", 40, markers="deferred")


def main(folder: str) -> None:
    """What that code reads from it, by topic: account, amount, partition, offset and milliseconds."""
    clock = ManualClock()
    with connect(f"file://{folder}", clock=clock) as engine:
        write(engine)
    with connect(f"file://{folder}", clock=clock) as engine:
        found = {topic: rows_of(engine.scan(topic).to_table()) for topic in ("payments", "latest", "sides")}
    print(json.dumps(found))


def rows_of(table: pa.Table) -> list[list[object]]:
    """The rows in a form that JSON has."""
    stamps = table.column("_timestamp").cast(pa.int64())
    names = ("account", "amount", "_partition", "_offset")
    columns = [*(table.column(name).to_pylist() for name in names), stamps.to_pylist()]
    return sorted([account, str(amount), *rest] for account, amount, *rest in zip(*columns, strict=True))


if __name__ == "__main__":
    main(sys.argv[1])
