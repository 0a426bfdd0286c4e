"""The DAGs of this checkout, run in this process over a database and a store of the test's own."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.dags.airflow_home import DAGS, make_database
from tests.dags.finished_run import FinishedRun, RunDag
from txn_engine import Engine, connect


@pytest.fixture(scope="session")
def dag_bag() -> Any:
    """The DAGs of this checkout, parsed as Airflow parses them, over a database that a run can be kept in."""
    make_database()
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=DAGS)


@pytest.fixture
def run_dag(dag_bag: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> RunDag:
    """Run a DAG to its end in this process, as `dag.test()` does; failed tasks are tried once only unless told."""

    from airflow.dag_processing.dagbag import DagBag

    def run(dag_id: str, *, retries: int = 0, **params: Any) -> FinishedRun:
        # Parsed anew, for dag.test() leaves a run's params behind in the DAG that it ran.
        dag = DagBag(dag_folder=DAGS / f"{dag_id}.py").dags[dag_id]
        for task in dag.tasks:
            task.retries = retries
            task.retry_delay = timedelta(seconds=0)
        capfd.readouterr()
        caplog.clear()
        caplog.set_level(logging.INFO)
        started = time.monotonic()
        dag_run = dag.test(run_conf=params or None)
        seconds = time.monotonic() - started
        out, err = capfd.readouterr()
        run = FinishedRun(dag_run, out + err + caplog.text, seconds)
        print(f"{dag_id}: {run.state} after {seconds:.2f} s", *run.errors, sep="\n")
        return run

    return run


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    """The store with an empty topic `payments` of two partitions."""
    with connect(store_url) as engine:
        schema = pa.schema([("account_id", pa.int64()), ("amount", pa.decimal128(18, 2))])
        engine.admin.create_topic("payments", partitions=2, schema=schema, key="account_id")
        yield engine
