"""The demo's Airflow: `python -m txn_engine.demo.dag_runner` runs DAGs with `dag.test()` as it is told to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from txn_engine.demo.airflow_home import STORE, WARM_UP, make_home
from txn_engine.demo.pipe import Pipe, serve
from txn_engine.errors import IllegalStateError, InvalidRequestError


def work(pipe: Pipe) -> None:
    """Say `ready` when Airflow has parsed the DAGs, and `ran` for each order `run`, with what the tasks returned."""
    make_home()
    from airflow.configuration import conf
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=Path(conf.get("core", "dags_folder")))
    if bag.import_errors:
        path, text = next(iter(bag.import_errors.items()))
        raise InvalidRequestError(text.strip().splitlines()[-1], actor="airflow", place=path)
    _warm_up(bag.dags["txn_coordinator_sweep"])
    pipe.say("ready", dags=sorted(bag.dags))
    while (order := pipe.next_order()) is not None:
        pipe.say("ran", **_run(bag.dags[order["dag_id"]]))


def _warm_up(dag: Any) -> None:
    """Run a DAG on an empty store: the first run of a process takes seconds longer than those after it."""
    if dag.test(run_conf={"conn_id": WARM_UP}).state != "success":
        raise IllegalStateError(f"DAG {dag.dag_id} failed on an empty store", actor="airflow")


def _run(dag: Any) -> dict[str, Any]:
    for task in dag.tasks:
        task.retries = 0
    run = dag.test(run_conf={"conn_id": STORE})  # said, because what a run was told sticks to the DAG
    instances = sorted(run.get_task_instances(), key=lambda instance: (instance.task_id, instance.map_index))
    return {
        "dag_id": dag.dag_id,
        "state": str(run.state),
        "tasks": [
            {"task": instance.task_id, "state": str(instance.state), "returned": _returned(run, instance)}
            for instance in instances
        ],
    }


def _returned(run: Any, instance: Any) -> Any:
    """What a task returned; None for nothing."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.execute(
            XComModel.get_many(
                run_id=run.run_id,
                dag_ids=run.dag_id,
                task_ids=instance.task_id,
                map_indexes=instance.map_index,
                key="return_value",
            )
        ).first()
        return None if found is None else XComModel.deserialize_value(found[0] if len(found) == 1 else found)


if __name__ == "__main__":
    sys.exit(serve(work))
