"""The DAG files, as the DAG processor sees them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from tests.dags import parse_times
from tests.support.airflow_home import DAGS, PLUGINS

DAG_IDS = {
    "txn_coordinator_sweep",
    "txn_write_markers",
    "txn_compute_lso",
    "txn_spark_consume",
    "txn_verify_exactly_once",
    "txn_maintain",
}
COORDINATOR = {"txn_coordinator_sweep", "txn_write_markers", "txn_compute_lso", "txn_maintain"}

MODULES_MAX = 60
"""How many modules a file may import that Airflow and its plugins have not imported before it."""

pytestmark = pytest.mark.airflow


def test_every_dag_loads_without_an_import_error(dag_bag: Any) -> None:
    """The folder has exactly the DAGs of the contract, each in a file with its name, without an import
    error."""
    assert dag_bag.import_errors == {}
    assert set(dag_bag.dags) == DAG_IDS
    assert {dag_id: dag.fileloc for dag_id, dag in dag_bag.dags.items()} == {
        dag_id: str(DAGS / f"{dag_id}.py") for dag_id in DAG_IDS
    }


def test_a_file_imports_neither_engine_nor_spark_nor_suite_and_few_modules() -> None:
    """The DAG processor pays for each import again and again. (`parse_times` prints the seconds.) The plugin loader
    leaves the package alone: without plugins/.airflowignore each file would become a top-level module named after
    itself. Each DAG's file is parsed in a process of its own, as the DAG processor does it.
    """
    parsed = {file["file"].removesuffix(".py"): file for file in parse_times.measure()}
    assert set(parsed) == DAG_IDS
    for name, file in parsed.items():
        assert file["errors"] == {}
        assert file["dags"] == [name]
        assert file["heavy"] == []
        assert file["modules"] < MODULES_MAX, name
        assert file["ours"]
        assert all(name.startswith("txn_engine_airflow") for name in file["ours"])


def test_an_example_with_checks_does_not_import_great_expectations() -> None:
    """An example names its checks as a plain dict, so that parsing the file imports neither Great Expectations nor
    Spark nor the engine."""
    parsed = parse_times.measure(PLUGINS / "txn_engine_airflow" / "example_dags")
    assert any(
        "CHECKS" in (PLUGINS / "txn_engine_airflow/example_dags" / file["file"]).read_text()
        for file in parsed
    )
    for file in parsed:
        print(f"{file['file']}: {file['processor']:.2f} s of CPU, {file['modules']} modules")
        assert (file["errors"], file["heavy"]) == ({}, []), file["file"]


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_a_dag_tells_a_person_on_call_what_it_is_and_limits_itself(dag_bag: Any, dag_id: str) -> None:
    """Each DAG has a runbook, an owner and tags, one run at a time, time-outs, retries and an alert, and does
    not catch up."""
    from txn_engine_airflow import alerts

    dag = dag_bag.dags[dag_id]
    assert dag.on_failure_callback == alerts.on_run_failure
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
        silent = task.task_id == "write_markers"  # check_complete tells what it has left
        callbacks = task.partial_kwargs["on_failure_callback"] if silent else task.on_failure_callback
        assert (list(callbacks or []) == []) if silent else (list(callbacks) == [alerts.on_failure])
    assert "conn_id" in dag.params


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_every_param_has_a_description_and_every_number_bounds(dag_bag: Any, dag_id: str) -> None:
    """The trigger form shows a description of every param, and bounds for every number, which it checks
    before a run begins."""
    params = dag_bag.dags[dag_id].params
    for name in params:
        param = params.get_param(name)
        assert param.description, name
        kinds = {param.schema["type"]} if isinstance(param.schema["type"], str) else set(param.schema["type"])
        if kinds & {"integer", "number"}:
            assert {"minimum", "exclusiveMinimum"} & set(param.schema), name
            assert "maximum" in param.schema, name
        if "string" in kinds:
            assert {"maxLength", "pattern", "enum"} & set(param.schema), name


@pytest.mark.parametrize(
    ("dag_id", "params"),
    [
        ("txn_coordinator_sweep", {"dry_run": "perhaps"}),
        ("txn_coordinator_sweep", {"conn_id": ""}),
        *((dag_id, {"conn_id": "somebody_elses"}) for dag_id in sorted(DAG_IDS)),
        ("txn_write_markers", {"tasks_max": 0}),
        ("txn_write_markers", {"tasks_max": 51}),
        ("txn_maintain", {"topic": "../payments"}),
        ("txn_maintain", {"partition": -1}),
        ("txn_maintain", {"target_mib": 0}),
        ("txn_maintain", {"group_offsets_days": 0}),
        ("txn_maintain", {"group_offsets_days": 6.9}),
        ("txn_spark_consume", {"topic": ""}),
        ("txn_spark_consume", {"topic": "salaries"}),
        ("txn_spark_consume", {"transactional_id": "loader"}),
        ("txn_spark_consume", {"group_id": "monthly"}),
        ("txn_spark_consume", {"output_topic": "payments"}),
        ("txn_spark_consume", {"transform": "os.system"}),
        ("txn_spark_consume", {"transform": "builtins:len"}),
        ("txn_spark_consume", {"spark_settings": {"spark.jars": "http://elsewhere/x.jar"}}),
        ("txn_spark_consume", {"spark_settings": {"spark.driver.memory": "1g -XX:OnError=sh"}}),
        ("txn_spark_consume", {"wait_s": -1}),
        ("txn_verify_exactly_once", {"scope": "some"}),
        ("txn_verify_exactly_once", {"input_delimiter": ";;"}),
    ],
)
def test_a_run_with_a_param_out_of_bounds_is_not_begun(
    dag_bag: Any, dag_id: str, params: Mapping[str, Any]
) -> None:
    """A run with a param out of its bounds is refused before it exists, as by the trigger form and the
    API."""
    from airflow.sdk.exceptions import ParamValidationError

    ((name, value),) = params.items()
    with pytest.raises(ParamValidationError):
        dag_bag.dags[dag_id].params.get_param(name).resolve(value)


def test_the_sweeps_run_every_minute_and_the_tables_every_five(dag_bag: Any) -> None:
    """Time-outs are swept every minute, the tables are made every five, clean-up is daily, and markers are
    written every minute and when an event says that they wait."""
    from airflow.sdk import AssetOrTimeSchedule

    schedules = {dag_id: dag.schedule for dag_id, dag in dag_bag.dags.items()}
    assert schedules["txn_coordinator_sweep"] == "* * * * *"
    assert schedules["txn_compute_lso"] == "*/5 * * * *"
    assert schedules["txn_maintain"] == "17 3 * * *"
    markers = schedules["txn_write_markers"]
    assert isinstance(markers, AssetOrTimeSchedule)
    assert markers.timetable.expression == "* * * * *"


def test_the_coordinators_tasks_go_first_and_are_parsed_in_a_pool_that_is_always_there(
    dag_bag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's tasks have priority. All tasks are parsed in the default pool, which always exists, whatever
    the environment names: the scheduler gives them their own (`test_pools`)."""
    from airflow.dag_processing.dagbag import DagBag

    for dag_id, dag in dag_bag.dags.items():
        if dag_id in COORDINATOR - {"txn_maintain"}:
            assert {task.priority_weight for task in dag.tasks} == {100}
            assert {str(task.weight_rule) for task in dag.tasks} == {"absolute"}
    monkeypatch.setenv("TXN_ENGINE_COORDINATOR_POOL", "sweepers")
    monkeypatch.setenv("TXN_ENGINE_JOBS_POOL", "spark")
    for dag_id in DAG_IDS:
        dag = DagBag(dag_folder=DAGS / f"{dag_id}.py").dags[dag_id]
        assert {task.pool for task in dag.tasks} == {"default_pool"}
