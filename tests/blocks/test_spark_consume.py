"""TxnSparkConsumeOperator with several output topics: one transaction, and an event for each topic."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.blocks.conftest import RunTasks
from tests.blocks.payments import commit, events, payments
from tests.support.servers import REPOSITORY
from tests.support.stores import accounts_in, states
from txn_engine import Engine, connect
from txn_engine.spark.balances import BALANCES_SCHEMA

pytestmark = [pytest.mark.airflow, pytest.mark.spark]


def consume(transform: Any, output_topic: Any = ("balances", "copies")) -> Any:
    """The task `consume`, into two topics."""
    from txn_engine_airflow import TxnSparkConsumeOperator

    return TxnSparkConsumeOperator(
        task_id="consume",
        topic="payments",
        group_id="balances",
        output_topic=output_topic,
        transform=transform,
    )


def both(new: Any) -> dict[str, Any]:
    """All records for one topic, and those of odd accounts for the other."""
    records = new.select("account_id", "amount")
    return {"balances": records, "copies": records.where("account_id % 2 = 1")}


@pytest.mark.slow
def test_several_outputs_are_one_run(engine: Engine, run_tasks: RunTasks) -> None:
    """Both topics get their records in one transaction, and each sends its event. The same run again writes
    nothing."""
    engine.admin.create_topic("copies", partitions=1, schema=engine.admin.describe_topic("payments").schema)
    commit(engine, payments(0, 10))
    run = run_tasks(lambda: consume(both))
    assert run.state == "success", run.errors
    assert accounts_in(engine, "balances") == list(range(10))
    assert accounts_in(engine, "copies") == [1, 3, 5, 7, 9]
    told = run.xcom("consume")
    assert (told["records"], told["input"]["records"]) == (15, 10)
    assert [(each["topic"], each["records"]) for each in told["outputs"]] == [("balances", 10), ("copies", 5)]
    assert {uri.rsplit("/", 1)[1]: extra["records"] for uri, extra in events(run)} == {
        "balances": 10,
        "copies": 5,
    }
    assert set(states(engine).values()) == {"CompleteCommit"}
    assert run_tasks(lambda: consume(both)).xcom("consume")["input"]["records"] == 0
    assert accounts_in(engine, "copies") == [1, 3, 5, 7, 9]


# `make test` has a transform that gives no DataFrame in tests/dags/test_spark_consume.py
@pytest.mark.shard("airflow")
@pytest.mark.slow
def test_outputs_that_were_not_asked_for_fail_at_once(engine: Engine, run_tasks: RunTasks) -> None:
    """If a transform returns a DataFrame for a topic that the task does not name, or none for one that it
    names, the task fails at once and nothing is written."""
    engine.admin.create_topic("copies", partitions=1, schema=engine.admin.describe_topic("payments").schema)
    commit(engine, payments(0, 10))
    for wrong, seen in (
        (lambda new: new, "it gave DataFrame; expected a DataFrame for each of the topics balances, copies"),
        (lambda new: {"balances": new}, "it gave those of the topics balances; expected"),
        (lambda new: both(new) | {"copies": 1}, "it gave int for topic copies; expected"),
    ):
        run = run_tasks(lambda wrong=wrong: consume(wrong), date=None)  # type: ignore[misc]
        assert run.state == "failed"
        assert any(seen in error for error in run.errors), run.errors
    assert accounts_in(engine, "balances") == []


def test_a_task_names_its_topics() -> None:
    """A task without an output topic is refused when the DAG is parsed."""
    with pytest.raises(ValueError, match="no output_topic"):
        consume(both, output_topic=[])


# `make test` has the folder of that file in tests/dags/test_spark_consume.py
@pytest.mark.slow
@pytest.mark.shard("airflow")
def test_a_job_that_fails_leaves_no_record_in_the_log(tmp_path: Path) -> None:
    """If a job fails, Spark's errors, which quote the record, are written only to a file for the worker's
    user, not into the task's log."""
    url = f"file://{tmp_path}/ledger"
    key = "KEY-OF-A-RECORD-4711"
    schema = pa.schema(
        [
            ("trans_id", pa.string()),
            ("account_id", pa.int64()),
            ("type", pa.string()),
            ("amount", pa.decimal128(18, 2)),
        ]
    )
    row = {"trans_id": key, "account_id": 1, "type": "GIFT", "amount": Decimal(1)}
    with connect(url) as engine, engine.producer() as producer:
        engine.admin.create_topic("payments", partitions=1, schema=schema)
        engine.admin.create_topic("balances", partitions=1, schema=BALANCES_SCHEMA, key="account_id")
        producer.produce("payments", pa.Table.from_pylist([row], schema=schema)).result()
    done = subprocess.run(
        [sys.executable, "-m", "tests.blocks.failing_consume", url],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'plugins'}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "the job failed in Spark's workers: [USER_RAISED_EXCEPTION]" in done.stdout, done.stderr[-2_000:]
    assert key not in done.stdout + done.stderr
    (log,) = tmp_path.glob("txn-engine-spark-*/spark.log")
    assert key in log.read_text()
    assert str(log) in done.stderr
    assert log.parent.stat().st_mode & 0o777 == 0o700
