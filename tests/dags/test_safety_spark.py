"""Whatever Airflow does to the runs of txn_spark_consume, every payment is in the balances once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dags import waiting_transform
from tests.dags.another_scheduler import AnotherScheduler, mark_failed
from tests.dags.ledger import SUMS, load, sums
from tests.support import running
from tests.support.waiting import wait_for
from txn_engine import Engine

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.shard("airflow"),
    pytest.mark.timeout(900),
]

DAG_ID = "txn_spark_consume"
TODAY, LAST_WEEK = datetime(2026, 3, 8, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)


def run_for(logical_date: datetime) -> dict[str, str]:
    """Run the DAG for a date, or run that run again. Returns the state of each task."""
    run: Any = running.run(running.parse(DAG_ID), logical_date=logical_date, run_conf={"wait_s": 0})
    return {each.task_id: str(each.state) for each in run.get_task_instances()}


def twice(once: dict[int, tuple[str, int]]) -> dict[int, tuple[str, int]]:
    """Load all payments once more."""
    from decimal import Decimal

    return {account: (str(2 * Decimal(turnover)), 2 * count) for account, (turnover, count) in once.items()}


def test_marked_failed_cleared_and_backfilled_every_payment_counts_once(
    payments: Engine,
    store_url: str,
    dag_bag: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that lives on after it was marked failed is refused, a cleared run is recognised, and a backfill
    takes the rest."""
    monkeypatch.setenv(waiting_transform.GATE, str(tmp_path))
    monkeypatch.setenv("TXN_ENGINE_TRANSFORMS", "tests.dags.waiting_transform:balances")
    params = {"transform": "tests.dags.waiting_transform:balances"}
    zombie = AnotherScheduler()
    zombie.order(store_url, [{"dag_id": DAG_ID, "params": params}])
    try:
        home = Path(zombie.hear("ready"))
        zombie.go_on()
        wait_for(
            (tmp_path / "reached").exists,
            what="the transform of the other scheduler's run",
            limit_s=600,
            meanwhile=zombie.must_run,
        )
        mark_failed(home / "airflow.db", DAG_ID)
        assert run_for(TODAY) == {"wait_for_records": "success", "consume": "success"}
        assert sums(payments) == SUMS
        (tmp_path / "open").touch()
        ended = zombie.ran()
    finally:
        zombie.end()
    assert ended["state"] == "failed"
    assert any("OFFSETS_MOVED" in line for line in zombie.log)
    assert sums(payments) == SUMS

    load(payments, "load-2")
    assert run_for(TODAY) == {"wait_for_records": "success", "consume": "success"}  # knows its earlier commit
    assert sums(payments) == SUMS
    assert run_for(LAST_WEEK) == {"wait_for_records": "success", "consume": "success"}
    assert sums(payments) == twice(SUMS)
    assert run_for(LAST_WEEK) == {"wait_for_records": "skipped", "consume": "skipped"}
    assert sums(payments) == twice(SUMS)
    assert {at.lag for at in payments.admin.describe_group("balances").partitions} == {0}
    assert payments.admin.verify().findings == ()
