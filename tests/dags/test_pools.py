"""The scheduler gives the coordinator's tasks their own pool if it exists. Otherwise they stay in the default pool,
where they run all the same, and an alert says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_home import HOME
from tests.support.finished_run import FinishedRun, RunDag
from txn_engine import Engine

pytestmark = pytest.mark.airflow

SWEEP, TABLES, POOL = "txn_coordinator_sweep", "txn_compute_lso", "txn_engine"


@pytest.fixture(autouse=True)
def policy(airflow_imported: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The cluster policy, as the entry point `airflow.policy` has Airflow load it, and no pool of ours."""
    from airflow import settings
    from airflow.settings import get_policy_plugin_manager

    from txn_engine_airflow import policy, pools

    manager = get_policy_plugin_manager()
    is_loaded = manager.is_registered(policy)
    if not is_loaded:
        manager.register(policy)
    monkeypatch.setattr(settings.task_instance_mutation_hook, "is_noop", False)
    monkeypatch.setattr(pools, "_services", set())
    for variable in (pools.COORDINATOR_POOL_VARIABLE, pools.JOBS_POOL_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    yield
    remove_pools()
    if not is_loaded:
        manager.unregister(policy)


def remove_pools() -> None:
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(Pool).where(Pool.pool != "default_pool"))


def pools_of(run: FinishedRun) -> set[str]:
    """The pools of the run's task instances in Airflow's database."""
    return {instance.pool for instance in run.dag_run.get_task_instances()}


def start_a_service() -> None:
    """Call what Airflow calls when the scheduler starts: each `Job` calls the plugins' listeners."""
    from airflow.jobs.job import Job

    from txn_engine_airflow.plugin import TxnEnginePlugin

    (listener,) = TxnEnginePlugin.listeners
    listener.on_starting(object())  # as a task does; nothing comes of it
    listener.on_starting(Job())


def test_without_the_pool_sweeps_run_in_the_default_pool(engine: Engine, run_dag: RunDag) -> None:
    """In an Airflow without the pool the sweep runs in the default pool. Once the pool exists the next sweep runs in
    it."""
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session

    run = run_dag(SWEEP)
    assert (run.state, pools_of(run)) == ("success", {"default_pool"})
    start_a_service()
    with create_session() as session:
        made = Pool.get_pool(POOL, session=session)
        assert made is not None
        assert (made.slots, made.include_deferred) == (8, False)
        made.slots = 3
    start_a_service()
    with create_session() as session:
        kept = Pool.get_pool(POOL, session=session)
        assert kept is not None
        assert kept.slots == 3  # a pool that exists is left as it is
    run = run_dag(SWEEP)
    assert (run.state, pools_of(run)) == ("success", {POOL})


def test_mapped_tasks_have_the_pool_too(engine: Engine, run_dag: RunDag) -> None:
    """Instances that are made while a run goes on are given the pool as well."""
    start_a_service()
    run = run_dag("txn_write_markers")
    assert (run.state, pools_of(run)) == ("success", {POOL})


def test_a_pool_that_is_gone_is_an_alert(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a scheduler finds the pool gone, the tasks stay in the default pool and `alert_pool_missing` is red. So it
    is for a pool of the jobs that nobody made. Without a pool that is asked for there is no alert."""
    start_a_service()
    remove_pools()
    monkeypatch.setenv("TXN_ENGINE_JOBS_POOL", "spark")
    run = run_dag(TABLES)
    assert pools_of(run) == {"default_pool"}
    (alert,) = run.failures
    assert type(alert).__name__ == "AlertError"
    assert alert.subjects == (POOL, "spark")
    assert {name for name, state in run.tasks.items() if state == "failed"} == {"alert_pool_missing"}
    monkeypatch.setenv("TXN_ENGINE_COORDINATOR_POOL", "default_pool")
    monkeypatch.delenv("TXN_ENGINE_JOBS_POOL")
    run = run_dag(TABLES)
    assert (run.state, pools_of(run)) == ("success", {"default_pool"})


def test_tasks_that_wait_in_a_deleted_pool_are_freed(engine: Engine, run_dag: RunDag) -> None:
    """If the pool is deleted while a run of ours goes on, its tasks that wait there are moved to the default pool when
    the scheduler makes the next task. Others' tasks, and tasks that ended, stay as they are."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select, update

    start_a_service()
    run = run_dag(SWEEP)
    at = TaskInstance.run_id == run.dag_run.run_id
    with create_session() as session:
        session.execute(
            update(TaskInstance)
            .where(at, TaskInstance.task_id == "expire_transactional_ids")
            .values(state="scheduled")
        )
    remove_pools()
    run_dag("txn_write_markers")
    with create_session() as session:
        found = dict(session.execute(select(TaskInstance.task_id, TaskInstance.pool).where(at)).all())
    assert found == {"expire_transactional_ids": "default_pool", "abort_timed_out_transactions": POOL}


def test_doctor_says_which_pool_is_missing(
    run_dag: RunDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` looks into the database of the Airflow that the environment configures. Without one it says nothing."""
    from tests.support.airflow_home import make_database
    from txn_engine_airflow.pools import look

    make_database()

    def seen() -> tuple[str, bool] | None:
        found: Any = look()
        return None if found is None else (found.status, POOL in found.seen)

    assert seen() == ("warning", True)
    start_a_service()
    assert seen() == ("ok", True)
    monkeypatch.delenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN")
    assert seen() == ("ok", True)  # by the home alone
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")
    assert seen() == ("warning", False)
    monkeypatch.delenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delenv("AIRFLOW_CONFIG", raising=False)
    assert seen() is None
    assert HOME.exists()
