"""The DAG files as the DAG processor sees them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest

from tests.dags.airflow_home import DAGS, PLUGINS, REPO

DAG_IDS = {
    "txn_coordinator_sweep",
    "txn_write_markers",
    "txn_compute_lso",
    "txn_spark_consume",
    "txn_verify_exactly_once",
}
HEAVY = ["pyspark", "great_expectations", "txn_engine", "storage", "pyarrow", "pandas", "obstore"]

pytestmark = pytest.mark.airflow


def test_every_dag_loads_without_an_import_error(dag_bag: Any) -> None:
    """The folder gives exactly the DAGs of the contract, each from a file of its own name."""
    assert dag_bag.import_errors == {}
    assert set(dag_bag.dags) == DAG_IDS
    assert {dag_id: dag.fileloc for dag_id, dag in dag_bag.dags.items()} == {
        dag_id: str(DAGS / f"{dag_id}.py") for dag_id in DAG_IDS
    }


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_a_file_parses_in_less_than_a_second(dag_bag: Any, dag_id: str) -> None:
    """Parsing is wiring: no store, no Spark, no suite."""
    from airflow.dag_processing.dagbag import DagBag

    started = time.monotonic()
    bag = DagBag(dag_folder=DAGS / f"{dag_id}.py")
    seconds = time.monotonic() - started
    print(f"{dag_id}: {seconds * 1000:.1f} ms")
    assert set(bag.dags) == {dag_id}
    assert seconds < 1


@pytest.fixture(scope="module")
def fresh_process(dag_bag: Any) -> dict[str, Any]:
    """What a new process holds after loading the plugins and parsing each file, and the seconds of each file."""
    program = f"""
import json, sys, time
import airflow.plugins_manager as plugins
plugins.ensure_plugins_loaded() if hasattr(plugins, "ensure_plugins_loaded") else plugins.get_plugin_info()
from airflow.dag_processing.dagbag import DagBag
seconds = {{}}
for name in {sorted(DAG_IDS)!r}:
    started = time.perf_counter()
    bag = DagBag(dag_folder={str(DAGS)!r} + "/" + name + ".py")
    seconds[name] = time.perf_counter() - started
    assert not bag.import_errors, bag.import_errors
here = [m for m in {HEAVY!r} if m in sys.modules]
ours = sorted(m for m, mod in sys.modules.items() if str(getattr(mod, "__file__", "")).startswith({str(PLUGINS)!r}))
print("RESULT " + json.dumps(dict(heavy=here, ours=ours, seconds=seconds)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False, cwd=REPO
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, ran.stderr
    result: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT "))
    return result


def test_parsing_in_a_fresh_process_imports_neither_engine_nor_spark_nor_suite(
    fresh_process: dict[str, Any],
) -> None:
    """The DAG processor forks for each file: what a file imports is paid for again and again."""
    print({name: f"{seconds * 1000:.1f} ms" for name, seconds in fresh_process["seconds"].items()})
    assert fresh_process["heavy"] == []
    assert max(fresh_process["seconds"].values()) < 1


def test_the_plugin_loader_leaves_the_package_alone(fresh_process: dict[str, Any]) -> None:
    """Without plugins/.airflowignore each file would become a top-level module named after itself."""
    assert fresh_process["ours"]
    assert all(name.startswith("txn_engine_airflow") for name in fresh_process["ours"])


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_a_dag_tells_a_person_on_call_what_it_is_and_limits_itself(dag_bag: Any, dag_id: str) -> None:
    """Runbook, owner, tags, one run at a time, time-outs, retries, nothing caught up."""
    dag = dag_bag.dags[dag_id]
    for section in ("**What it does.**", "**When to worry.**", "**What to do.**", "txn-engine "):
        assert section in dag.doc_md
    assert "txn-engine" in dag.tags
    assert dag.max_active_runs == 1
    assert dag.catchup is False
    assert dag.is_paused_upon_creation is None
    assert dag.dagrun_timeout is not None
    for task in dag.tasks:
        assert task.owner == "txn-engine"
        assert 1 <= task.retries <= 3
        assert timedelta(minutes=1) <= task.execution_timeout < dag.dagrun_timeout
    assert "conn_id" in dag.params


def test_the_sweeps_run_every_minute_and_the_tables_every_five(dag_bag: Any) -> None:
    """Time-outs are at most a minute late; what is started by need has no schedule of its own."""
    schedules = {dag_id: dag.schedule for dag_id, dag in dag_bag.dags.items()}
    assert schedules["txn_coordinator_sweep"] == schedules["txn_write_markers"] == "* * * * *"
    assert schedules["txn_compute_lso"] == "*/5 * * * *"
    assert schedules["txn_verify_exactly_once"] is None
