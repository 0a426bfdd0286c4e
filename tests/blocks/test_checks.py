"""Checks that vote before the commit, as tasks: a red check fails the task, nothing is visible, and the log
quotes no record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.blocks.conftest import RunTasks
from tests.blocks.payments import commit, events, payments
from tests.suite.tiers import in_shard
from tests.support.stores import accounts_in
from txn_engine import Engine

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

SECRET = 987_654_321


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the reports."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "txn_engine_reports"


def suite(folder: Path, *, column: str = "account_id", **more: Any) -> Path:
    """A suite file that allows only small account numbers."""
    expectation = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": column, "max_value": 1_000},
        **more,
    }
    path = folder / "suite.json"
    path.write_text(json.dumps({"name": "accounts", "expectations": [expectation]}))
    return path


def nothing_of(engine: Engine, topic: str) -> bool:
    """Whether even a read_uncommitted reader sees no record of the topic."""
    return engine.scan(topic, isolation_level="read_uncommitted").to_table().num_rows == 0


# `make test` has a vote that passes below, and a run that has loaded in test_produce.py
@pytest.mark.slow
@pytest.mark.parametrize("fixed", in_shard("airflow", [False, True], keep=1))
def test_a_load_is_voted_on(
    engine: Engine, run_tasks: RunTasks, tmp_path: Path, home: Path, fixed: bool
) -> None:
    """A load with a red check fails at once, without a retry and an event. After the file is corrected, the
    same run loads it."""
    from txn_engine_airflow import TxnProduceOperator

    file = tmp_path / "day.csv"
    path = suite(tmp_path)

    def load() -> Any:
        return TxnProduceOperator(
            task_id="load", topic="payments", path=str(file), engine="spark", checks=str(path)
        )

    file.write_text(f"account_id,amount\n1,2.50\n{SECRET},2.50\n")
    red = run_tasks(load, retries=2)
    assert red.state == "failed"
    (line,) = red.errors
    assert "[CHECKS_FAILED]" in line
    assert "payments: expect_column_values_to_be_between(account_id) (1 of 2 unexpected)" in line
    assert str(SECRET) not in red.log
    assert nothing_of(engine, "payments")
    assert events(red) == []
    (report,) = home.glob("checks~/*/*/load/index.html")
    assert str(report) in line
    assert str(SECRET) in report.read_text()
    if not fixed:
        return

    file.write_text("account_id,amount\n1,2.50\n3,2.50\n")
    good = run_tasks(load)
    assert good.state == "success", good.errors
    assert accounts_in(engine) == [1, 3]
    assert "0 of 2 unexpected (passed)" in good.log
    again = run_tasks(load)
    assert again.xcom("load")["committed_before"]
    assert accounts_in(engine) == [1, 3]


def consume(checks: Any, **more: Any) -> Any:
    """The task `consume`, from payments to balances."""
    from txn_engine_airflow import TxnSparkConsumeOperator

    return TxnSparkConsumeOperator(
        task_id="consume",
        topic="payments",
        group_id="balances",
        output_topic="balances",
        transform=lambda new: new.select("account_id", "amount"),
        checks=checks,
        **more,
    )


@pytest.mark.slow
@pytest.mark.shard("airflow")
def test_checks_that_cannot_be_made_are_tried_again(
    engine: Engine, run_tasks: RunTasks, tmp_path: Path, home: Path
) -> None:
    """Checks that cannot be made let nothing through, and are retried."""
    commit(engine, payments(SECRET, 1))
    errored = run_tasks(lambda: consume(str(suite(tmp_path, column="nowhere"))), retries=1)
    assert errored.state == "failed"
    assert "[CHECKS_ERRORED]" in errored.errors[-1]
    assert len(errored.errors) == 2
    assert str(SECRET) not in errored.log
    assert nothing_of(engine, "balances")


# `make test` has a vote that is red in test_a_load_is_voted_on
@pytest.mark.slow
@pytest.mark.parametrize("is_red_first", in_shard("airflow", [False, True], keep=1))
def test_a_consumer_s_output_is_voted_on(
    engine: Engine, run_tasks: RunTasks, tmp_path: Path, home: Path, is_red_first: bool
) -> None:
    """A red check leaves the output and the group as they were. The next run with another suite consumes the
    same records."""
    commit(engine, payments(0, 5))
    commit(engine, payments(SECRET, 1))
    if is_red_first:
        red = run_tasks(lambda: consume(str(suite(tmp_path))), retries=1)
        assert red.state == "failed"
        assert "(1 of 6 unexpected)" in red.errors[-1]
        assert str(SECRET) not in red.log
        assert nothing_of(engine, "balances")
    folder = tmp_path / "reports"
    good = run_tasks(
        lambda: consume({"balances": str(suite(tmp_path, severity="warning"))}, report_folder=str(folder))
    )
    assert good.state == "success", good.errors
    assert accounts_in(engine, "balances") == [0, 1, 2, 3, 4, SECRET]
    told = good.xcom("consume")
    assert told["input"]["records"] == 6
    assert told["checks"] == {
        "report": str(folder / "index.html"),
        "checks": 1,
        "warnings": ["balances: expect_column_values_to_be_between(account_id)"],
    }
    assert str(SECRET) not in good.log


def test_checks_without_spark() -> None:
    """Checks without Spark need a topic for the rows that fail. Without one, the task is refused when the DAG
    is parsed."""
    from txn_engine_airflow import TxnProduceOperator

    with pytest.raises(ValueError, match="checks without a dead_letter_topic are for engine='spark'"):
        TxnProduceOperator(task_id="load", topic="payments", path="x.csv", checks="suite.json")
