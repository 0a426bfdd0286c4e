"""The example DAGs are parsed as the DAG processor parses them, and run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.blocks.killed import OUTBOX
from tests.blocks.payments import events
from tests.suite.tiers import in_shard
from tests.support import running
from tests.support.airflow_home import REPO
from tests.support.database import VARIABLE, connection_text, fill, ids
from tests.support.finished_run import FinishedRun
from tests.support.internal import FEW_INTERNAL
from tests.support.stores import accounts_in
from txn_engine import Engine, connect

pytestmark = pytest.mark.airflow

EXAMPLES = REPO / "plugins" / "txn_engine_airflow" / "example_dags"
NAMES = sorted(path.stem for path in EXAMPLES.glob("example_*.py"))

RunExample = Callable[..., FinishedRun]


@pytest.fixture
def store(store_url: str) -> Iterator[Engine]:
    """An empty store. The examples make their topics."""
    with connect(store_url, configs=FEW_INTERNAL) as engine:
        yield engine


@pytest.fixture
def run_example(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> RunExample:
    """Run an example to its end."""
    from airflow.dag_processing.dagbag import DagBag

    def run(name: str, **conf: Any) -> FinishedRun:
        dag = DagBag(dag_folder=EXAMPLES / f"{name}.py").dags[name]
        for task in dag.tasks:
            task.retry_delay = timedelta(seconds=0)
        capfd.readouterr()
        caplog.set_level(logging.INFO)
        dag_run = running.run(dag, run_conf=conf or None)
        out, err = capfd.readouterr()
        found = FinishedRun(dag_run, out + err + caplog.text)
        print(f"{name}: {found.state}", *found.errors, sep="\n")
        return found

    return run


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_parsed_and_says_what_it_shows(name: str) -> None:
    """Each file has one DAG, which is named after it and says what it shows."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=EXAMPLES / f"{name}.py")
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    assert (dag.dag_id, "example" in dag.tags, dag.catchup) == (name, True, False)
    assert dag.doc_md.strip().startswith("### ")


def test_files_are_loaded_each_once(
    store: Engine, tmp_path: Path, run_example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A csv and a jsonl file are loaded by one mapped task each, and readers see both after they were waited
    for."""
    monkeypatch.setenv("TXN_ENGINE_INPUT_ROOTS", str(tmp_path))
    (tmp_path / "monday.csv").write_text("account_id,amount\n1,2.50\n2,0.75\n")
    (tmp_path / "tuesday.jsonl").write_text('{"account_id": 3, "amount": "9.99"}\n')
    files = [str(tmp_path / name) for name in ("monday.csv", "tuesday.jsonl")]
    run = run_example("example_txn_load_files", files=files)
    assert run.state == "success", run.errors
    assert accounts_in(store, "example_payments") == [1, 2, 3]
    assert sorted(extra["records"] for _, extra in events(run)) == [1, 2]  # parts have no order
    waited = [run.xcom("check", map_index=part)["transactional_id"] for part in range(2)]
    assert waited == [run.xcom("load", map_index=part)["transactional_id"] for part in range(2)]
    assert len(set(waited)) == 2


def test_files_that_the_deployment_does_not_name_are_not_loaded(
    store: Engine, tmp_path: Path, run_example: RunExample
) -> None:
    """Files that the deployment does not permit are refused before one is opened, without a retry, because
    anybody who may trigger the DAG can set the params."""
    (tmp_path / "monday.csv").write_text("account_id,amount\n1,2.50\n")
    run = run_example("example_txn_load_files", files=[str(tmp_path / "monday.csv")])
    assert run.state == "failed"
    (line,) = run.errors
    assert "TXN_ENGINE_INPUT_ROOTS" in line
    assert "load" not in {name for name, state in run.tasks.items() if state == "success"}


def test_payments_become_balances(store: Engine, run_example: RunExample) -> None:
    """Payments become balances, and a watch reports the same records."""
    run = run_example("example_txn_pipeline")
    assert run.state == "success", run.errors
    assert accounts_in(store, "example_balances") == list(range(100))
    assert (run.xcom("cut"), run.xcom("compare")) == (0, 250.0)
    watch = run_example("example_txn_watch")
    assert watch.state == "success", watch.errors
    assert watch.xcom("tell")["records"] == 100
    assert {at.lag for at in store.admin.describe_group("example_watchers").partitions} == {0}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("runs", in_shard("airflow", [1, 2], keep=1))
def test_an_outbox_becomes_balances(
    store: Engine, run_example: RunExample, dsn: str, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """Each payment of an outbox is added to the balances once, except for those that do not fit: fractions of
    cents, or no account."""
    monkeypatch.setenv(VARIABLE, connection_text(dsn))
    for times in range(1, runs + 1):
        fill(dsn, "example_outbox", 0, 100, OUTBOX)
        with psycopg.connect(dsn) as connection:
            connection.execute("UPDATE example_outbox SET amount = 1.255 WHERE account_id % 50 = 7")
            connection.execute(
                "UPDATE example_outbox SET account_id = CASE account_id WHEN 9 THEN NULL ELSE account_id % 2 END"
            )
        run = run_example("example_txn_postgres")
        assert run.state == "success", run.errors
        assert ids(dsn, "example_outbox") == []
        with psycopg.connect(dsn) as connection:
            found = connection.execute("SELECT account_id, balance FROM example_balances").fetchall()
        assert dict(found) == {0: times * 50 * Decimal("1.25"), 1: times * 47 * Decimal("1.25")}
    reasons = store.scan("example_shop_payments_dead").to_table(["reason"])["reason"].to_pylist()
    assert len(reasons) == 3 * runs
    assert len(set(reasons)) == 2


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("runs", in_shard("airflow", [1, 2], keep=1))
def test_spark_sums_up_what_is_new_and_a_stream_follows(
    store: Engine, run_example: RunExample, runs: int
) -> None:
    """The Spark job sums up the new payments and commits their offsets in the same transaction. Each run of
    the stream reads each new payment once, and the group is at the end."""
    for number in range(1, runs + 1):
        assert run_example("example_txn_pipeline").state == "success"
        run = run_example("example_txn_spark")
        assert run.state == "success", run.errors
        assert accounts_in(store, "example_spark_balances") == sorted([*range(100)] * number)
        (event,) = [extra for uri, extra in events(run) if uri.endswith("example_spark_balances")]
        assert event["records"] == 100
        run = run_example("example_txn_stream")
        assert run.state == "success", run.errors
        assert run.xcom("follow") == 100
        assert accounts_in(store, "example_large_payments") == sorted([*range(100)] * number)
    for group in ("example_spark", "example_stream"):
        assert {at.lag for at in store.admin.describe_group(group).partitions} == {0}
