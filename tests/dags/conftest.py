"""The DAGs of this checkout run in this process, on a database and a store of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import storage
import txn_engine.engine as engines
from tests.dags.ledger import fill
from tests.support import running
from tests.support.airflow_home import DAGS, make_database
from tests.support.faults import FaultyStore
from tests.support.finished_run import FinishedRun, RunDag
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, connect


@pytest.fixture(scope="session")
def dag_bag(airflow_imported: None) -> Any:
    """The DAGs of this checkout, parsed as Airflow parses them, with a database that can hold their runs."""
    make_database()
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=DAGS)


@pytest.fixture
def run_dag(
    airflow_imported: None, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> RunDag:
    """Run a DAG to its end in this process. By default a failed task is not retried."""

    def run(dag_id: str, *, retries: int = 0, **params: Any) -> FinishedRun:
        make_database()
        dag = running.parse(dag_id, retries=retries)
        capfd.readouterr()
        caplog.clear()
        caplog.set_level(logging.INFO)
        with running.collected_failures() as failures:
            dag_run = running.run(dag, run_conf=params or None)
        out, err = capfd.readouterr()
        run = FinishedRun(dag_run, out + err + caplog.text, failures)
        print(f"{dag_id}: {run.state}", *run.errors, sep="\n")
        return run

    return run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[FaultyStore]:
    """The stores that engines open from now on. Each has a list of its calls and injects no fault.

    An operation on an unreachable store ends within the store's own limits. So a test that counts operations
    knows how long a task can take at most, however busy the machine is.
    """
    stores: list[FaultyStore] = []

    def open_store(*args: Any, **settings: Any) -> FaultyStore:
        stores.append(FaultyStore(storage.open_store(*args, **settings)))
        return stores[-1]

    monkeypatch.setattr(engines, "open_store", open_store)
    return stores


def make_payments(engine: Engine) -> None:
    """Create an empty topic `payments` of two partitions."""
    schema = pa.schema([("account_id", pa.int64()), ("amount", pa.decimal128(18, 2))])
    engine.admin.create_topic("payments", partitions=2, schema=schema, key="account_id")


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    """The store with an empty topic `payments` of two partitions, and with coordinator partitions for several
    tasks."""
    few = FEW_INTERNAL | {"transaction.state.log.num.partitions": 8}
    with connect(store_url, configs=few) as engine:
        make_payments(engine)
        yield engine


@pytest.fixture
def payments(store_url: str) -> Iterator[Engine]:
    """A store with payments to consume and an aborted transaction."""
    with connect(store_url, configs=FEW_INTERNAL) as engine:
        fill(engine)
        yield engine
