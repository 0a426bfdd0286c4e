"""txn_coordinator_sweep aborts the transactions of dead producers and expires idle transactional ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.dags.payments import ROWS, commit, committed_rows, damage_log, leave_open, trailing
from tests.support.faults import FaultyStore
from tests.support.finished_run import RunDag
from tests.support.stores import states
from txn_engine import Engine, TopicPartition, connect
from txn_engine.errors import TxnEngineError
from txn_engine.testing import ManualClock, write_transaction_state

pytestmark = pytest.mark.airflow

WEEK_MS = 7 * 24 * 3_600_000


def test_a_dead_producers_transaction_is_aborted_and_readers_move_on(engine: Engine, run_dag: RunDag) -> None:
    """A transaction that has timed out is aborted and its producer is fenced, and readers get past it."""
    commit(engine, "load-1")
    dead = leave_open(engine, "load-2", timeout_ms=1)
    assert trailing(engine) > 0

    run = run_dag("txn_coordinator_sweep")

    assert run.state == "success"
    assert run.xcom("abort_timed_out_transactions") == {
        "transactions": 1,
        "transactional_ids": ["load-2"],
        "partitions_marked": 2,
        "objects_written": 4,
    }
    assert states(engine) == {"load-1": "CompleteCommit", "load-2": "CompleteAbort"}
    assert trailing(engine) == 0
    assert committed_rows(engine) == ROWS
    with pytest.raises(TxnEngineError) as refused:
        dead.commit_transaction()
    assert refused.value.fatal
    assert engine.admin.verify().findings == ()


def test_an_open_transaction_within_its_timeout_is_left_alone(engine: Engine, run_dag: RunDag) -> None:
    """An open transaction within its time-out is left alone and can commit."""
    producer = leave_open(engine, "load-1")
    run = run_dag("txn_coordinator_sweep")
    assert run.state == "success"
    assert run.xcom("abort_timed_out_transactions")["transactions"] == 0
    assert states(engine) == {"load-1": "Ongoing"}
    producer.commit_transaction()
    assert committed_rows(engine) == ROWS


def test_an_id_idle_for_a_week_expires_and_a_younger_one_stays(
    store_url: str, engine: Engine, run_dag: RunDag
) -> None:
    """An id that was idle for a week is no longer listed. Nothing else changes."""
    with connect(store_url, clock=ManualClock(engine.clock() - WEEK_MS - 60_000)) as earlier:
        commit(earlier, "old")
    commit(engine, "young")
    run = run_dag("txn_coordinator_sweep")
    assert run.tasks == {"abort_timed_out_transactions": "success", "expire_transactional_ids": "success"}
    assert run.xcom("expire_transactional_ids")["transactional_ids"] == ["old"]
    assert states(engine) == {"young": "CompleteCommit"}


def test_a_store_with_nothing_to_do_is_swept_quietly(store_url: str, run_dag: RunDag) -> None:
    """The sweep of a store without work, or of one that was never used, succeeds and reports zeros."""
    run = run_dag("txn_coordinator_sweep")
    assert run.state == "success"
    assert (
        run.xcom("abort_timed_out_transactions")
        == run.xcom("expire_transactional_ids")
        == {
            "transactions": 0,
            "transactional_ids": [],
            "partitions_marked": 0,
            "objects_written": 0,
        }
    )


@pytest.mark.parametrize(
    ("run_type", "minute", "due"),
    [("scheduled", 0, True), ("scheduled", 4, True), ("scheduled", 5, False), ("manual", 30, True)],
)
def test_ids_are_expired_early_in_the_hour_or_by_hand(
    dag_bag: Any, run_type: str, minute: int, due: bool
) -> None:
    """Ids expire in scheduled runs early in the hour, so that a scheduler that skips one minute skips no
    hour, and in every manual run."""
    from airflow.sdk.exceptions import AirflowSkipException

    hook = dag_bag.dags["txn_coordinator_sweep"].get_task("expire_transactional_ids")._pre_execute_hook
    context = {
        "dag_run": SimpleNamespace(run_type=run_type, run_after=SimpleNamespace(minute=minute)),
        "task": None,
    }
    if due:
        hook(context)
    else:
        with pytest.raises(AirflowSkipException):
            hook(context)


def test_what_cannot_be_finished_fails_after_the_rest_is_done(engine: Engine, run_dag: RunDag) -> None:
    """If one of two timed-out transactions has a damaged log, both are decided, the other one is completed,
    and the run fails."""
    leave_open(engine, "good", timeout_ms=1)
    engine.admin.create_topic("broken")
    write_transaction_state(
        engine,
        "stuck",
        state="Ongoing",
        producer_id=4_711,
        producer_epoch=0,
        transaction_timeout_ms=1,
        partitions=[TopicPartition("broken", 0)],
        last_update_ms=engine.clock() - 1_000,
    )
    entry = damage_log(engine, "broken")

    run = run_dag("txn_coordinator_sweep")

    assert run.state == "failed"
    assert run.tasks["expire_transactional_ids"] == "success"
    assert states(engine) == {"good": "CompleteAbort", "stuck": "PrepareAbort"}
    (line,) = run.errors
    assert "timed-out transactions aborted: 2, but 1 could not be finished: stuck:" in line
    assert entry in line


def test_an_unreachable_store_fails_in_one_readable_line(
    monkeypatch: pytest.MonkeyPatch, run_dag: RunDag, asked: list[FaultyStore]
) -> None:
    """Each task asks the store once. Its line names the store and what to do, and does not show the credentials. The
    alert says what it means.
    """
    monkeypatch.setenv(
        "AIRFLOW_CONN_TXN_ENGINE_DEFAULT",
        "txn-engine://AKIAEXAMPLE:wJalrXUtnFEMI@no-such-bucket/prod?endpoint_url=http%3A%2F%2F127.0.0.1%3A1",
    )
    run = run_dag("txn_coordinator_sweep")
    assert run.state == "failed"
    assert [len(store.calls) for store in asked] == [1, 1]
    assert len(run.errors) == 2  # one for each of its tasks
    for line, failure in zip(run.errors, run.failures, strict=True):
        assert line.startswith("airflow.sdk.exceptions.AirflowException: ")
        assert "s3://no-such-bucket/prod" in line
        assert failure.__context__.action in line
    assert run.codes == ["NETWORK_EXCEPTION"] * 2
    assert run.engine_reasons == ["connection_refused"] * 2
    assert run.log.count("Nothing is swept meanwhile") == 2
    assert "wJalrXUtnFEMI" not in run.log


@pytest.mark.minio
def test_a_missing_bucket_fails_at_once_and_is_not_retried(
    monkeypatch: pytest.MonkeyPatch, run_dag: RunDag, minio_bucket: Any, asked: list[FaultyStore]
) -> None:
    """A missing bucket fails at once and is not retried, because a retry would find it missing too. Each task
    asks the store once."""
    for name, value in minio_bucket.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", raising=False)
    monkeypatch.setenv("TXN_ENGINE_URL", "s3://there-is-no-such-bucket")
    run = run_dag("txn_coordinator_sweep", retries=3)
    assert run.state == "failed"
    assert [len(store.calls) for store in asked] == [1, 1]
    assert len(run.errors) == 2
    assert run.are_final
    for line in run.errors:
        assert "there-is-no-such-bucket" in line
