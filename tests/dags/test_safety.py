"""Whatever Airflow does to a run, each record counts exactly once and the audit finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.dags.another_scheduler import Schedulers, mark_failed
from tests.dags.dying_store import dies_once, holds_up_once
from tests.dags.payments import ROWS, commit, committed_rows, leave_open, trailing
from tests.suite.tiers import in_shard
from tests.support import running
from tests.support.faults import Fault
from tests.support.finished_run import RunDag
from tests.support.kills import WRITES, Death
from tests.support.stores import states
from txn_engine import Engine

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(900)]

SWEEP, MARKERS, LSO, MAINTAIN = (
    "txn_coordinator_sweep",
    "txn_write_markers",
    "txn_compute_lso",
    "txn_maintain",
)
LOADS = 4
FINAL = {"CompleteCommit", "CompleteAbort"}


def leave_work(engine: Engine, number: int, *, each: int = 2) -> int:
    """Leave transactions of dead producers and decided ones without markers. Returns how many records will be
    visible once they are done."""
    for which in range(each):
        leave_open(engine, f"dead-{number}-{which}", timeout_ms=1)
        commit(engine, f"decided-{number}-{which}", deferred=True)
    return each * ROWS


def audited(engine: Engine, expected_rows: int) -> None:
    """Check that each committed record is there once and no aborted one, that everything is final, and that
    the audit finds nothing."""
    assert committed_rows(engine) == expected_rows
    assert trailing(engine) == 0
    assert set(states(engine).values()) <= FINAL
    report = engine.admin.verify()
    assert report.findings == ()


@pytest.mark.parametrize("dag_id", in_shard("airflow", [SWEEP, MARKERS], keep=1))
@pytest.mark.parametrize("every", in_shard("airflow", [1, 5], keep=[5]))
def test_a_task_retried_half_way_ends_as_if_nothing_had_been(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, dag_id: str, every: int
) -> None:
    """If a task's process dies at any write, before or after it took effect, its retry leaves the store as if
    nothing had happened."""
    expected, deaths = 0, 0
    for number in range(0, 30, every):
        expected += leave_work(engine, number, each=1)
        when: Fault = "after" if number % 2 else "before"
        death = Death(f"dies {when}", number // 2, operations=WRITES)
        with monkeypatch.context() as patch:
            dies_once(patch, death)
            run = run_dag(dag_id, retries=1, tasks_max=1) if dag_id == MARKERS else run_dag(dag_id, retries=1)
        assert run.state == "success", run.errors
        deaths += death.happened
        assert run_dag(MARKERS if dag_id == SWEEP else SWEEP).state == "success"
        audited(engine, expected)
        if not death.happened:
            break
    assert deaths >= 6 // every
    assert not death.happened  # every write had its turn


@pytest.mark.parametrize(
    ("at", "when"), in_shard("airflow", [(2, "before"), (0, "after"), (3, "after")], keep=1)
)
def test_maintenance_that_died_half_way_goes_on(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, at: int, when: Fault
) -> None:
    """If maintenance dies at an upload or a rewrite, its retry goes on, and the records are the same before
    and after."""
    for number in range(LOADS):
        commit(engine, f"load-{number}")
    death = Death(f"dies {when}", at, operations=WRITES)
    dies_once(monkeypatch, death)
    run = run_dag(MAINTAIN, retries=1, min_files=2)
    assert run.state == "success", run.errors
    assert death.happened
    audited(engine, LOADS * ROWS)


@pytest.fixture(scope="module")
def others() -> Iterator[Schedulers]:
    """Airflows in processes of their own, which the tests of this module share."""
    schedulers = Schedulers()
    yield schedulers
    schedulers.end()


@pytest.mark.shard("airflow")
@pytest.mark.together("another scheduler")
@pytest.mark.parametrize("schedulers", [2, 3])
def test_schedulers_at_once_do_everything_once(
    store_url: str, engine: Engine, run_dag: RunDag, others: Schedulers, schedulers: int
) -> None:
    """Several Airflows with a database each, one of them in this process, run all DAGs on one store while
    producers write: everything is done once."""
    expected = leave_work(engine, 0, each=10)
    for number in range(8):
        commit(engine, f"load-{number}")
    expected += 8 * ROWS
    runs = [{"dag_id": dag_id} for dag_id in (MARKERS, SWEEP, LSO)]
    runs.append({"dag_id": MAINTAIN, "params": {"min_files": 2}})
    orders = [runs, [*reversed(runs)]]
    with others.taken(schedulers - 1) as taken:
        for number, other in enumerate(taken):
            other.order(store_url, orders[number])
        for other in taken:
            other.hear("ready")
        for other in taken:
            other.go_on()
        for number in range(1, 6):
            expected += leave_work(engine, number)
            assert run_dag((SWEEP, MARKERS, LSO)[number % 3]).state == "success"
        ended = [[other.ran() for _ in runs] for other in taken]
    assert {run["state"] for of_one in ended for run in of_one} == {"success"}, ended
    for dag_id in (SWEEP, MARKERS):  # for the transactions that came after their last look
        assert run_dag(dag_id).state == "success"
    audited(engine, expected)


@pytest.mark.parametrize(
    "dag_id",
    [
        SWEEP,
        pytest.param(MARKERS, marks=pytest.mark.shard("airflow")),
        pytest.param(LSO, marks=pytest.mark.shard("airflow")),
        pytest.param(MAINTAIN, marks=pytest.mark.shard("airflow")),
    ],
)
def test_a_cleared_run_finds_nothing_left_and_does_what_came_since(
    engine: Engine, clear_and_run: Callable[[str, datetime], str], dag_id: str
) -> None:
    """A cleared run does nothing twice and does what has come since, like a new run."""
    day = datetime(2026, 3, 1, tzinfo=UTC)
    expected = leave_work(engine, 0)
    for _ in range(2):
        assert clear_and_run(dag_id, day) == "success"
    expected += leave_work(engine, 1)
    assert clear_and_run(dag_id, day) == "success"
    for other in (SWEEP, MARKERS):
        assert clear_and_run(other, day) == "success"
    audited(engine, expected)


@pytest.mark.parametrize(
    ("dag_ids", "dates"),
    in_shard(
        "airflow",
        [
            ((SWEEP,), 1),
            ((SWEEP, MARKERS), 2),
            ((SWEEP, MARKERS, LSO, MAINTAIN), 2),
            ((SWEEP, MARKERS, LSO, MAINTAIN), 3),
        ],
        keep=1,
    ),
)
def test_a_backfill_of_past_dates_processes_nothing_twice(
    engine: Engine, clear_and_run: Callable[[str, datetime], str], dag_ids: tuple[str, ...], dates: int
) -> None:
    """A backfill of past dates does nothing twice, because the DAGs go by the state of the store and not by
    the date of their run."""
    expected = leave_work(engine, 0)
    for dag_id in dag_ids:
        for days in range(dates):
            assert clear_and_run(dag_id, datetime(2026, 2, 1, tzinfo=UTC) + timedelta(days=days)) == "success"
    expected += leave_work(engine, 1)
    for dag_id in (SWEEP, MARKERS):
        assert clear_and_run(dag_id, datetime(2026, 1, 15, tzinfo=UTC)) == "success"
    audited(engine, expected)


@pytest.mark.parametrize("at", [0, 2])
def test_a_run_that_wakes_up_after_another_did_its_work_does_no_harm(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """If a sweep waits before one of its writes while another sweep ends everything, its late write does no
    harm."""
    expected = leave_work(engine, 0)

    def sweep_by_another() -> None:
        engine.coordinator.abort_timed_out_transactions()
        engine.coordinator.write_pending_markers()
        audited(engine, expected)

    held_up = holds_up_once(monkeypatch, at, sweep_by_another)
    assert run_dag(SWEEP).state == "success"
    assert held_up
    audited(engine, expected)


# `make test` has a run that is held up in this process, above
@pytest.mark.shard("airflow")
@pytest.mark.together("another scheduler")
@pytest.mark.parametrize(("dag_id", "at"), [(SWEEP, 2), (MARKERS, 0), (SWEEP, 0), (MARKERS, 2)])
def test_a_run_marked_failed_while_its_process_lives_on_does_no_harm(
    store_url: str, engine: Engine, run_dag: RunDag, others: Schedulers, dag_id: str, at: int
) -> None:
    """If a run is marked failed while its process sleeps before a write, and another run does its work, the
    late write does no harm."""
    expected = leave_work(engine, 0)
    with others.taken() as (other,):
        other.order(store_url, [{"dag_id": dag_id}], pause_before_write=at)
        home = Path(other.hear("ready"))
        other.go_on()
        other.hear("paused")
        mark_failed(home / "airflow.db", dag_id)
        for again in (SWEEP, MARKERS):
            assert run_dag(again).state == "success"
        expected += leave_work(engine, 1)
        for again in (SWEEP, MARKERS):
            assert run_dag(again).state == "success"
        audited(engine, expected)
        other.go_on()
        other.hear("ran")
    audited(engine, expected)


@pytest.fixture
def clear_and_run(dag_bag: Any) -> Callable[[str, datetime], str]:
    """Run a DAG for a logical date. The second call for the same date runs the same run again, from its start."""

    def run(dag_id: str, logical_date: datetime) -> str:
        return str(running.run(running.parse(dag_id), logical_date=logical_date).state)

    return run
