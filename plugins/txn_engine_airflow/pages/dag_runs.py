"""Runs of DAGs, from Airflow's own database: the engine's last sweep, its last verification; who wrote a letter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from txn_engine_airflow.pages.work import said

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

RUNS_SHOWN = 12
VERIFICATIONS_MAX = 200
VERIFICATION = "txn_verify_exactly_once"

DAGS = {
    "txn_coordinator_sweep": "Coordinator sweep",
    "txn_write_markers": "Markers",
    "txn_compute_lso": "Snapshots and lag",
    "txn_spark_consume": "Spark consume",
    "txn_verify_exactly_once": "Verification",
    "txn_maintain": "Maintenance",
}


class DagRunPlace(NamedTuple):
    """Where Airflow shows a run."""

    dag_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a DAG; -1 for a time that is not known yet."""

    run_id: str
    state: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class DagRuns:
    """A DAG's latest runs, newest first. `did`: what the last finished one did, in a few words ("": not known);
    `did_in_last`: whether that is the first of `runs`.
    """

    dag_id: str
    title: str
    is_paused: bool
    runs: tuple[Run, ...]
    did: str
    did_in_last: bool


def last_runs() -> tuple[DagRuns, ...]:
    """The engine's DAGs that this Airflow knows. Asks Airflow's database."""
    from airflow.utils.session import create_session

    with create_session() as session:
        found = [_runs_of(session, dag_id, title) for dag_id, title in DAGS.items()]
    return tuple(dag for dag in found if dag is not None)


def verifications() -> tuple[Run, ...]:
    """The latest runs of the verification, newest first, whether they left a report or not. Asks Airflow's database."""
    from airflow.utils.session import create_session

    with create_session() as session:
        return tuple(_run(run) for run in _latest(session, VERIFICATION, VERIFICATIONS_MAX))


def find_runs(run_ids: Iterable[str]) -> dict[str, DagRunPlace]:
    """The runs of DAGs whose tasks loaded under these run ids, as far as Airflow still has them. Asks its database."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import and_, or_, select

    from txn_engine_airflow.operators.identity import dag_run_of

    asked = {run_id: made for run_id in run_ids if (made := dag_run_of(run_id)) is not None}
    if not asked:
        return {}
    is_one = [and_(DagRun.dag_id == dag, DagRun.run_id == which) for dag, which, _ in asked.values()]
    is_one += [
        and_(DagRun.dag_id == dag, DagRun.logical_date == date)
        for dag, _, date in asked.values()
        if date is not None
    ]
    columns = select(DagRun.dag_id, DagRun.run_id, DagRun.logical_date).where(or_(*is_one))
    with create_session() as session:
        known = [(DagRunPlace(dag, run), date) for dag, run, date in session.execute(columns)]
    found: dict[tuple[str, Any], DagRunPlace] = {(place.dag_id, place.run_id): place for place, _ in known}
    found |= {(place.dag_id, date): place for place, date in known if date is not None}
    places = {
        run_id: found.get((dag, date)) or found.get((dag, which))
        for run_id, (dag, which, date) in asked.items()
    }
    return {run_id: place for run_id, place in places.items() if place is not None}


def _runs_of(session: Session, dag_id: str, title: str) -> DagRuns | None:
    from airflow.models.dag import DagModel

    dag = session.get(DagModel, dag_id)
    if dag is None:
        return None
    runs = _latest(session, dag_id, RUNS_SHOWN)
    finished = next((run for run in runs if str(run.state) in ("success", "failed")), None)
    did = ""
    if finished is not None:
        did = said(
            dag_id,
            _returned(session, dag_id, finished.run_id),
            ended=_ended(session, dag_id, finished.run_id),
            succeeded=str(finished.state) == "success",
            is_dry_run=bool((finished.conf or {}).get("dry_run")),
        )
    is_last = bool(runs) and finished is runs[0]
    return DagRuns(dag_id, title, bool(dag.is_paused), tuple(_run(run) for run in runs), did, is_last)


def _latest(session: Session, dag_id: str, count: int) -> Sequence[DagRun]:
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    latest = select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc(), DagRun.id.desc())
    return session.scalars(latest.limit(count)).all()


def _run(run: DagRun) -> Run:
    return Run(run.run_id, str(run.state), _ms(run.start_date), _ms(run.end_date))


def _returned(session: Session, dag_id: str, run_id: str) -> dict[str, list[Any]]:
    """What a run's tasks returned, by task id, one value an instance; of a job of maintenance that failed, what it told
    before.
    """
    from airflow.models.xcom import XComModel

    found: dict[tuple[str, int], Any] = {}
    for key in ("report", "return_value"):
        query = XComModel.get_many(run_id=run_id, dag_ids=dag_id, key=key)
        columns = query.with_only_columns(XComModel.task_id, XComModel.map_index, XComModel.value)
        for task_id, map_index, value in session.execute(columns):
            found[task_id, map_index] = _decoded(value)
    by_task: dict[str, list[Any]] = {}
    for (task_id, _), value in found.items():
        by_task.setdefault(task_id, []).append(value)
    return by_task


def _ended(session: Session, dag_id: str, run_id: str) -> dict[str, int]:
    """By task id, how many instances of it succeeded."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import func, select

    instances = select(TaskInstance.task_id, func.count()).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.state == "success"
    )
    return dict(session.execute(instances.group_by(TaskInstance.task_id)).tuples().all())


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
