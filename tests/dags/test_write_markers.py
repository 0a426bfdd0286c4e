"""txn_write_markers completes transactions that are decided."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from tests.dags.payments import ROWS, commit, committed_rows, damage_log, leave_open, trailing
from tests.support.faults import FaultyStore
from tests.support.finished_run import RunDag
from tests.support.stores import states
from txn_engine import Engine, TopicPartition, connect
from txn_engine.clock import system_clock
from txn_engine.testing import write_transaction_state

pytestmark = pytest.mark.airflow

MINUTE_MS, DAY_MS = 60_000, 86_400_000


def test_deferred_commits_become_visible(engine: Engine, run_dag: RunDag) -> None:
    """Deferred commits of six ids in several coordinator partitions are completed by three tasks. An open
    transaction is left alone."""
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
        "make_cut": "success",
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
    """A PrepareCommit row without markers, whose coordinator is dead, is completed, and the producer's data
    becomes visible."""
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
    """If nothing is pending and a cut was just made, the run is a success and its other tasks are skipped."""
    commit(engine, "load")
    engine.cut()
    run = run_dag("txn_write_markers")
    assert run.state == "success"
    assert run.tasks == {
        "find_pending": "success",
        "write_markers": "skipped",
        "check_complete": "skipped",
        "make_cut": "skipped",
    }
    assert run.xcom("find_pending") == []


def test_what_is_left_undone_turns_the_run_red_and_is_named(engine: Engine, run_dag: RunDag) -> None:
    """A decision with a damaged log stays pending, the others are completed, and the run fails and names
    it."""
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
    assert run.tasks["make_cut"] == "upstream_failed"
    assert states(engine) == {"good": "CompleteCommit", "stuck": "PrepareCommit"}
    assert committed_rows(engine) == ROWS
    writing, checking = run.errors
    assert run.codes == ["some_unfinished", "still_pending"]
    assert ": stuck: " in writing
    assert entry in writing
    assert "1 of 2 decided transactions are still pending: stuck (PrepareCommit)" in checking


# `make test` has such a store in test_coordinator_sweep.py
@pytest.mark.shard("airflow")
def test_an_unreachable_store_fails_once_and_what_follows_does_not_run(
    monkeypatch: pytest.MonkeyPatch, run_dag: RunDag, asked: list[FaultyStore]
) -> None:
    """If the store cannot be reached, the first task fails in one line after one operation, and the other
    tasks do not run."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_TXN_ENGINE_DEFAULT",
        "txn-engine://KEY:SECRET@ledger?endpoint_url=http%3A%2F%2F127.0.0.1%3A1",
    )
    run = run_dag("txn_write_markers")
    assert run.tasks == {
        "find_pending": "failed",
        "write_markers": "upstream_failed",
        "check_complete": "upstream_failed",
        "make_cut": "upstream_failed",
    }
    (line,) = run.errors
    assert "(at s3://ledger" in line
    assert (run.codes, run.engine_reasons) == (["NETWORK_EXCEPTION"], ["connection_refused"])
    assert [len(store.calls) for store in asked] == [1]


# --- cuts -----------------------------------------------------------------------------------------------------


def test_a_cut_is_made_behind_the_markers_and_told(engine: Engine, run_dag: RunDag, store_url: str) -> None:
    """A cut is made after the markers, and has everything that was decided. Its number, time and offsets are
    in the XCom, the log and the event."""
    from txn_engine_airflow.assets import CUTS, topic_asset

    commit(engine, "load", deferred=True)
    run = run_dag("txn_write_markers")
    assert run.state == "success", run.errors
    (cut,) = engine.cuts()
    assert cut.every_topic
    assert cut.expires_ms - cut.created_ms == 7 * DAY_MS
    assert engine.scan("payments", cut=cut).to_table().num_rows == ROWS
    offsets = [[tp.topic, tp.partition, offset] for tp, offset in cut.offsets.items()]
    told = {"cut": 0, "created_ms": cut.created_ms, "expires_ms": cut.expires_ms}
    assert run.xcom("make_cut") == {
        **told,
        "topics": 1,
        "partitions": 2,
        "offsets": {"columns": ["topic", "partition", "offset"], "rows": offsets, "rows_left_out": 0},
    }
    assert "offsets of the cut: 2" in run.log
    asset = topic_asset(CUTS, store_url)
    assert (asset.name, asset.uri, told) in run.events
    assert "txn_engine_default/__cuts" in run.aliases


def test_at_most_one_cut_is_made_in_the_time_that_the_deployment_says(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one cut is made in the time that the deployment says. Cuts of some topics, cuts that expire
    sooner and those of a clock that is far ahead do not count."""
    monkeypatch.setenv("TXN_ENGINE_CUT_DAYS", "2")
    with connect(engine.url, clock=lambda: system_clock() - 30 * MINUTE_MS) as earlier:
        earlier.cut(["payments"])
        earlier.cut(keep_ms=DAY_MS)
    with connect(engine.url, clock=lambda: system_clock() + DAY_MS) as ahead:
        ahead.cut()
    assert run_dag("txn_write_markers").xcom("make_cut")["cut"] == 3
    assert run_dag("txn_write_markers").tasks["make_cut"] == "skipped"
    monkeypatch.setenv("TXN_ENGINE_CUT_MINUTES", "0")
    assert run_dag("txn_write_markers").tasks["make_cut"] == "skipped"
    assert len(engine.cuts()) == 4


def test_a_dry_run_makes_no_cut(engine: Engine, run_dag: RunDag) -> None:
    run = run_dag("txn_write_markers", dry_run=True)
    assert (run.state, run.tasks["make_cut"]) == ("success", "skipped")
    assert "a dry run: a cut would be made now" in run.log
    assert engine.cuts() == []


@pytest.mark.parametrize("dies", ["before its cut stands", "after"])
def test_a_retry_makes_at_most_one_cut_more(engine: Engine, dies: str) -> None:
    """A retry makes no second cut if the first try died after its cut. If it died before, it has left a
    claim, and the retry makes the cut."""
    from txn_engine_airflow.cuts import make_due_cut

    if dies == "after":
        engine.cut(keep_ms=7 * DAY_MS)
    else:
        engine._cuts.claim()
    events: list[dict[str, Any]] = []
    settings = {"dry_run": False, "emit": lambda _, extra: events.append(extra)}
    with pytest.raises(AirflowSkipException):
        make_due_cut("txn_engine_default", try_number=1, **settings)
    for _ in range(2):
        told = make_due_cut("txn_engine_default", try_number=2, **settings)
        assert told["cut"] == (0 if dies == "after" else 1)
    assert len(engine.cuts()) == 1
    assert [event["cut"] for event in events] == [told["cut"]] * 2


def test_a_cut_that_cannot_be_made_is_tried_again_ten_minutes_later(engine: Engine, run_dag: RunDag) -> None:
    """A cut that cannot be made fails the run with the reason. Runs in the next ten minutes do not try
    again."""
    engine.admin.create_topic("broken")
    entry = damage_log(engine, "broken")
    run = run_dag("txn_write_markers")
    assert (run.state, run.tasks["make_cut"]) == ("failed", "failed")
    (line,) = run.errors
    assert entry in line
    again = run_dag("txn_write_markers")
    assert (again.state, again.tasks["make_cut"]) == ("success", "skipped")
    assert "another cut was begun in the last 10 minutes" in again.log
    assert engine.cuts() == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TXN_ENGINE_CUT_MINUTES", "hourly"), ("TXN_ENGINE_CUT_MINUTES", "-1"), ("TXN_ENGINE_CUT_DAYS", "0")],
)
def test_a_setting_that_cannot_be_meant_is_refused_in_one_line(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    run = run_dag("txn_write_markers", retries=2)
    assert run.faults == [("bad_setting", "", variable)]
    assert engine.cuts() == []
