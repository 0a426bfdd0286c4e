"""Do to the payments what the project's DAGs do, without a scheduler. The pages show the store afterwards."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from tests.live.stack import Stack
from txn_engine import Engine
from txn_engine.clock import system_clock
from txn_engine.demo.payments import PAYMENTS
from txn_engine.quality import Amount, Declaration, Output, Totals, check_exactly_once
from txn_engine.spark.balances import BALANCES_SCHEMA, CREDIT_TYPES

GROUP, DAG_ID, RUN_ID = "balances", "txn_verify_exactly_once", "manual__2026-11-21T10_00_00"
_LATER_MS = 60_000
_DECLARED = Declaration(
    topic=PAYMENTS,
    record_id=("trans_id",),
    outputs=(
        Output(
            "balances",
            Totals(
                by={"account_id": "account_id"},
                sums={"turnover": Amount("amount", "type", CREDIT_TYPES)},
                count="payments",
            ),
        ),
    ),
    group_id=GROUP,
)


def settle(stack: Stack) -> None:
    """End every transaction, sum the payments up by account, and leave a report that they came out exactly once."""
    with stack.open_store(clock=lambda: system_clock() + _LATER_MS) as later:
        later.coordinator.abort_timed_out_transactions()
        later.coordinator.write_pending_markers()
    _sum_up(stack.engine)
    _verify(stack.engine, stack.reports / DAG_ID / RUN_ID)


def _sum_up(engine: Engine) -> None:
    with engine.producer(transactional_id=GROUP) as producer, engine.consumer(group_id=GROUP) as consumer:
        producer.init_transactions()
        consumer.subscribe([PAYMENTS])
        with producer.transaction():
            while (batch := consumer.poll(max_records=1_000)) is not None and batch.num_rows:
                producer.produce("balances", _balances(batch))
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


def _balances(payments: pa.Table) -> pa.Table:
    turnover: dict[int, Decimal] = defaultdict(Decimal)
    for row in payments.to_pylist():
        turnover[row["account_id"]] += row["amount"] if row["type"] in CREDIT_TYPES else -row["amount"]
    counted = Counter(payments["account_id"].to_pylist())
    rows = [
        {"account_id": account, "turnover": total, "payments": counted[account]}
        for account, total in turnover.items()
    ]
    return pa.Table.from_pylist(rows, BALANCES_SCHEMA)


def _verify(engine: Engine, folder: Path) -> None:
    result = check_exactly_once(engine, _DECLARED, report_folder=folder, run_name=RUN_ID, record=True)
    assert result.success, result.failed
    (folder / "connection.json").write_text(json.dumps({"conn_id": "txn_engine_default"}))
