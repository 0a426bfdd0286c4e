"""On a damaged store the DAGs do everything that is possible, name everything that cannot be read, and
fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import damage
from tests.support.damage import COORDINATOR, GROUPS, HURT_GROUP, KINDS, SOUND_GROUP, SOUND_ID
from tests.support.finished_run import FinishedRun, RunDag
from txn_engine import Engine, connect

pytestmark = pytest.mark.airflow

PARTITION = "payments-0"
LOST = "lost"
HURT = ("last entry, garbage", "coordinator's last entry, garbage", "groups' entry, garbage")


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    """A store in which a topic, a topic's partition, a coordinator partition and a group partition are
    damaged."""
    root = Path(store_url.removeprefix("file://"))
    damage.build(root)
    with connect(store_url) as engine:
        engine.admin.create_topic(LOST, partitions=1, schema=damage.SCHEMA)
    damage.overwrite(root, f"topics/{LOST}/0.json")
    for kind in HURT:
        KINDS[kind].do(root)
    with connect(store_url) as engine:
        yield engine


def failed(run: FinishedRun) -> set[str]:
    return {name for name, state in run.tasks.items() if state == "failed"}


@pytest.mark.shard("airflow")
def test_compute_lso(engine: Engine, run_dag: RunDag) -> None:
    """The tables have everything else, `alert_damaged` names every damaged place, and snapshots are written
    where possible."""
    run = run_dag("txn_compute_lso")
    assert run.state == "failed"
    assert failed(run) == {"write_snapshots", "alert_damaged"}
    for line in run.errors:
        assert all(place in line for place in (LOST, PARTITION, COORDINATOR, GROUPS)), line
    stable = {tuple(row[:2]) for row in run.xcom("last_stable_offsets")["rows"]}
    assert stable == {("balances", 0), ("balances", 1), ("payments", 1)}
    groups = {row[0] for row in run.xcom("group_lags")["rows"]}
    assert groups == {SOUND_GROUP}
    assert HURT_GROUP not in run.log
    assert any(engine.store.list("topics/balances/0/0/snapshots"))


def test_markers(engine: Engine, run_dag: RunDag) -> None:
    """A decision in a readable coordinator partition is completed. The check then fails, because the damaged
    one may have others."""
    producer = engine.producer(transactional_id=SOUND_ID, markers="deferred")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("balances", damage.records(9), partition=0).result()
    producer.commit_transaction()
    run = run_dag("txn_write_markers")
    assert run.state == "failed"
    assert run.tasks["check_complete"] == "failed"
    assert engine.admin.describe_transaction(SOUND_ID).state == "CompleteCommit"
    assert damage.accounts(engine, "balances", 0) == [*range(7), 9]
    checked = run.errors[-1]
    assert "1 decided transactions are complete, but 1 coordinator partitions cannot be read" in checked
    assert COORDINATOR in checked


def test_the_sweep(engine: Engine, store_url: str, run_dag: RunDag) -> None:
    """A timed-out transaction in a readable coordinator partition is aborted."""
    with connect(store_url, clock=lambda: engine.clock() - 86_400_000) as earlier:
        producer = earlier.producer(transactional_id="slow-1", transaction_timeout_ms=1_000)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("balances", damage.records(9), partition=0).result()
        run = run_dag("txn_coordinator_sweep")
    assert run.state == "failed"
    assert engine.admin.describe_transaction("slow-1").state == "CompleteAbort"
    assert failed(run) == {"abort_timed_out_transactions", "expire_transactional_ids"}
    for line in run.errors:
        assert COORDINATOR in line


# `make test` has a damaged log under maintenance in test_maintain.py
@pytest.mark.shard("airflow")
def test_maintenance(engine: Engine, run_dag: RunDag) -> None:
    """Each job names every damaged place in its log and does the sound partitions. Readers see no change."""
    run = run_dag("txn_maintain")
    assert run.state == "failed"
    assert {"retain", "seal", "expire_producers", "clean"} <= failed(run)
    for place in (LOST, PARTITION, COORDINATOR, GROUPS):
        assert f"{place}: " in run.log
    assert [name for name, state in run.tasks.items() if state == "upstream_failed"] == ["all_done"]
    assert damage.accounts(engine, "balances") == sorted([*range(7)] * 2)
