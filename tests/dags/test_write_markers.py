"""txn_write_markers: decided transactions that are not complete."""

from __future__ import annotations

import pytest

from tests.dags.finished_run import RunDag
from tests.dags.payments import ROWS, commit, committed_rows, damage_log, leave_open, states, trailing
from txn_engine import Engine, TopicPartition
from txn_engine.testing import write_transaction_state

pytestmark = pytest.mark.airflow


def test_deferred_commits_become_visible(engine: Engine, run_dag: RunDag) -> None:
    """Six ids in different coordinator partitions, dealt out to three tasks; an open transaction is left alone."""
    for number in range(6):
        commit(engine, f"load-{number}", deferred=True)
    open_one = leave_open(engine, "open")
    assert committed_rows(engine) == 0

    run = run_dag("txn_write_markers", tasks_max=3)

    assert run.state == "success"
    assert run.tasks == {
        "find_pending": "success",
        "write_markers[0]": "success",
        "write_markers[1]": "success",
        "write_markers[2]": "success",
        "check_complete": "success",
    }
    found = [part for chunk in run.xcom("find_pending") for part in chunk]
    assert {part["partition"] for part in found} == {
        engine.admin.coordinator_partition(f"load-{number}") for number in range(6)
    }
    written = [run.xcom("write_markers", map_index=index) for index in range(3)]
    assert sum(result["transactions"] for result in written) == 6
    assert run.xcom("check_complete") == {"transactions": 6, "coordinator_partitions": len(found), "left": 0}
    assert states(engine) == {f"load-{number}": "CompleteCommit" for number in range(6)} | {"open": "Ongoing"}
    assert committed_rows(engine) == 6 * ROWS
    open_one.abort_transaction()
    assert trailing(engine) == 0
    assert engine.admin.verify().findings == ()


def test_a_dead_coordinators_decision_is_rolled_forward(engine: Engine, run_dag: RunDag) -> None:
    """A PrepareCommit row without markers or owner, of a producer whose data stands open in the log."""
    leave_open(engine, "load")
    known = engine.admin.describe_transaction("load")
    write_transaction_state(
        engine,
        "load",
        state="PrepareCommit",
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=known.producer_epoch,
        partitions=known.partitions,
    )
    run = run_dag("txn_write_markers")
    assert run.state == "success"
    assert states(engine) == {"load": "CompleteCommit"}
    assert committed_rows(engine) == ROWS


def test_nothing_to_do_is_a_success_with_what_follows_skipped(engine: Engine, run_dag: RunDag) -> None:
    """There is nothing to write and nothing to check."""
    commit(engine, "load")
    run = run_dag("txn_write_markers")
    assert run.state == "success"
    assert run.tasks == {"find_pending": "success", "write_markers": "skipped", "check_complete": "skipped"}
    assert run.xcom("find_pending") == []


def test_what_is_left_undone_turns_the_run_red_and_is_named(engine: Engine, run_dag: RunDag) -> None:
    """A decision over a damaged log stays pending; the others are finished all the same."""
    commit(engine, "good", deferred=True)
    engine.admin.create_topic("broken")
    write_transaction_state(
        engine,
        "stuck",
        state="PrepareCommit",
        producer_id=4_711,
        producer_epoch=1,
        partitions=[TopicPartition("broken", 0)],
    )
    entry = damage_log(engine, "broken")

    run = run_dag("txn_write_markers")

    assert run.state == "failed"
    assert run.tasks["check_complete"] == "failed"
    assert states(engine) == {"good": "CompleteCommit", "stuck": "PrepareCommit"}
    assert committed_rows(engine) == ROWS
    writing, checking = run.errors
    assert "1 could not be finished: stuck:" in writing
    assert entry in writing
    assert "1 of 2 decided transactions are still pending: stuck (PrepareCommit)" in checking


def test_an_unreachable_store_fails_once_and_what_follows_does_not_run(
    monkeypatch: pytest.MonkeyPatch, run_dag: RunDag
) -> None:
    """One readable line, from the task that looked first."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_TXN_ENGINE_DEFAULT",
        "txn-engine://KEY:SECRET@ledger?endpoint_url=http%3A%2F%2F127.0.0.1%3A1",
    )
    run = run_dag("txn_write_markers")
    assert run.tasks == {
        "find_pending": "failed",
        "write_markers": "upstream_failed",
        "check_complete": "upstream_failed",
    }
    (line,) = run.errors
    assert "connection refused (at s3://ledger" in line
    assert run.seconds < 40
