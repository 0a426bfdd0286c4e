"""TxnCutOperator makes a cut and passes its number to later tasks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.blocks.conftest import RunTasks
from tests.blocks.payments import commit, events, payments
from tests.suite.tiers import in_shard
from txn_engine import Engine

pytestmark = pytest.mark.airflow

DAY_MS = 86_400_000


def cut(**settings: Any) -> Any:
    """The task `cut`."""
    from txn_engine_airflow import TxnCutOperator

    return TxnCutOperator(task_id="cut", **settings)


def test_tasks_behind_it_read_as_of_it(engine: Engine, run_tasks: RunTasks) -> None:
    """Later tasks read as of the cut by its number, as a value or in a template, whatever is committed in
    between."""
    commit(engine, payments(0, 5), "load")

    def make() -> None:
        from airflow.sdk import task

        @task
        def load() -> None:
            commit(engine, payments(5, 3), "load")

        @task
        def count(number: int, text: str) -> list[int]:
            return [engine.scan("payments", cut=each).to_table().num_rows for each in (number, int(text))]

        made = cut()
        made >> load() >> count(made.output, "{{ ti.xcom_pull(task_ids='cut') }}")

    run = run_tasks(make)
    assert run.state == "success", run.errors
    (found,) = engine.cuts()
    assert run.xcom("cut") == found.number == 0
    assert run.xcom("count") == [5, 5]
    told = run.xcom("cut", key="cut")
    assert (told["created_ms"], told["expires_ms"]) == (found.created_ms, found.created_ms + 7 * DAY_MS)
    assert [row[2] for row in told["offsets"]["rows"]] == list(found.offsets.values())
    (event,) = [extra for uri, extra in events(run) if uri.endswith("/__cuts")]
    assert event == {"cut": 0, "created_ms": found.created_ms, "expires_ms": found.expires_ms}


def test_of_some_topics_for_as_long_as_a_template_says(engine: Engine, run_tasks: RunTasks) -> None:
    """A cut of some topics, kept for as long as a template says, emits no event, because it is not a cut of
    the store."""
    run = run_tasks(lambda: cut(topics=["{{ 'payments' }}"], keep_days="{{ 0.5 }}"))
    assert run.state == "success", run.errors
    (found,) = engine.cuts()
    assert [topic.topic for topic in found.topics] == ["payments"]
    assert found.expires_ms - found.created_ms == DAY_MS // 2
    assert events(run) == []


def test_one_that_is_kept_until_it_is_deleted(engine: Engine, run_tasks: RunTasks) -> None:
    assert run_tasks(lambda: cut(keep_days=None)).state == "success"
    assert [found.expires_ms for found in engine.cuts()] == [-1]


@pytest.mark.parametrize("wrong", in_shard("airflow", ["a week", True, 5_000, "", 0, -1, "nan"], keep=3))
def test_days_that_cannot_be_meant_make_no_cut(engine: Engine, run_tasks: RunTasks, wrong: object) -> None:
    """If the days to keep are not valid, no cut is made, and the task fails without a retry."""
    run = run_tasks(lambda: cut(keep_days=wrong), retries=2)
    assert run.faults == [("bad_argument", "keep_days", "")]
    assert engine.cuts() == []


def test_a_topic_that_is_not_there_is_named(engine: Engine, run_tasks: RunTasks) -> None:
    run = run_tasks(lambda: cut(topics="nowhere"), retries=2)
    (line,) = run.errors
    assert "nowhere" in line
    assert engine.cuts() == []
