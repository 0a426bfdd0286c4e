"""A cluster policy of Airflow's: it gives tasks of the engine's DAGs their pool, if that exists.

Airflow loads it by the entry point `airflow.policy`. Where it is not loaded, all tasks stay in `default_pool`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow import settings
from airflow.policies import hookimpl

from txn_engine_airflow.pools import DEFAULT_POOL, MISSING, dag_ids, is_service, pool_of, wanted

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy.orm import Session

_WAITING = ("scheduled", "up_for_retry", "up_for_reschedule")
_TELLS = "txn_compute_lso", "alert_pool_missing"
"""The task that reads the configuration of its run."""

# Airflow asks policies of an entry point when it makes task instances only if this says so; it sets it by itself for
# those of an `airflow_local_settings` alone.
settings.task_instance_mutation_hook.is_noop = False  # type: ignore[attr-defined]


@hookimpl
def task_instance_mutation_hook(task_instance: TaskInstance, dag_run: DagRun | None) -> None:
    """Give the instance its pool, where the pool exists at this moment. The scheduler's own session is asked, which a
    policy may neither commit nor bypass by another one.
    """
    mine = pool_of(task_instance.dag_id)
    if dag_run is None or (mine == DEFAULT_POOL and task_instance.dag_id != _TELLS[0]):
        return
    from airflow.models.pool import Pool
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return
    names = wanted()
    with session.no_autoflush:
        there = set(session.scalars(select(Pool.pool).where(Pool.pool.in_(names))))
    if mine in there:
        task_instance.pool = mine
    elif mine != DEFAULT_POOL:
        _free_stranded(session, mine)
    if (task_instance.dag_id, task_instance.task_id) == _TELLS and is_service():
        _tell(dag_run, [name for name in names if name not in there])


def _free_stranded(session: Session, pool: str) -> None:
    """Move tasks of ours to the default pool that wait in one that was deleted since their run began: they would wait
    until the run times out, and no other run begins before.
    """
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import or_, update

    waits = or_(TaskInstance.state.is_(None), TaskInstance.state.in_(_WAITING))
    stranded = update(TaskInstance).where(
        TaskInstance.pool == pool, TaskInstance.dag_id.in_(dag_ids()), waits
    )
    with session.no_autoflush:
        session.execute(stranded.values(pool=DEFAULT_POOL), execution_options={"synchronize_session": False})


def _tell(dag_run: DagRun, missing: list[str]) -> None:
    """Put the pools that do not exist into the run's configuration: nothing else of a run that the scheduler may change
    reaches its tasks.
    """
    conf = dict(dag_run.conf or {})
    if conf.get(MISSING, []) != missing:
        dag_run.conf = {**conf, MISSING: missing}
