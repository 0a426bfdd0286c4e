"""The latest runs of the engine's DAGs, from Airflow's own database: last sweep, last verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

RUNS_SHOWN = 12

DAGS = {
    "txn_coordinator_sweep": "Coordinator sweep",
    "txn_write_markers": "Markers",
    "txn_compute_lso": "Snapshots and lag",
    "txn_spark_consume": "Spark consume",
    "txn_verify_exactly_once": "Verification",
    "txn_maintain": "Maintenance",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a DAG; -1 for a time that is not known yet."""

    run_id: str
    state: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class DagRuns:
    """A DAG's latest runs, newest first. `numbers`: what the tasks of the last finished one returned, by name."""

    dag_id: str
    title: str
    is_paused: bool
    runs: tuple[Run, ...]
    numbers: Mapping[str, int]


def last_runs() -> tuple[DagRuns, ...]:
    """The engine's DAGs that this Airflow knows. Asks Airflow's database."""
    from airflow.utils.session import create_session

    with create_session() as session:
        found = [_runs_of(session, dag_id, title) for dag_id, title in DAGS.items()]
    return tuple(dag for dag in found if dag is not None)


def _runs_of(session: Session, dag_id: str, title: str) -> DagRuns | None:
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    dag = session.get(DagModel, dag_id)
    if dag is None:
        return None
    latest = select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc(), DagRun.id.desc())
    runs = tuple(
        Run(run.run_id, str(run.state), _ms(run.start_date), _ms(run.end_date))
        for run in session.scalars(latest.limit(RUNS_SHOWN))
    )
    finished = next((run for run in runs if run.state in ("success", "failed")), None)
    numbers = _numbers(session, dag_id, finished.run_id) if finished else {}
    return DagRuns(dag_id, title, bool(dag.is_paused), runs, numbers)


def _numbers(session: Session, dag_id: str, run_id: str) -> dict[str, int]:
    """The whole numbers in what a run's tasks returned, added up over the instances of a mapped task."""
    from airflow.models.xcom import XComModel

    query = XComModel.get_many(run_id=run_id, dag_ids=dag_id, key="return_value")
    numbers: dict[str, int] = {}
    for (value,) in session.execute(query.with_only_columns(XComModel.value)):
        returned = _decoded(value)
        for name, number in returned.items() if isinstance(returned, dict) else ():
            if isinstance(number, int) and not isinstance(number, bool):
                numbers[name] = numbers.get(name, 0) + number
    return numbers


def _decoded(value: Any) -> Any:
    """A task's return value as JSON has it; what needs a class to be read is none of ours."""
    import json

    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _ms(moment: Any) -> int:
    return -1 if moment is None else int(moment.timestamp() * 1_000)
