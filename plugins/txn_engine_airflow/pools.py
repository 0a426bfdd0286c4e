"""The pools of the engine's DAGs: which there are, who makes them, and which a task gets.

A task whose pool does not exist is never scheduled, and nobody is told. What runs when a DAG is parsed may not ask
Airflow's database which pools exist. So the DAG files name none, and every task is in `default_pool` as it is parsed.
`policy.py` gives a task its own pool when the scheduler makes the task's instance, in the scheduler's transaction, if
the pool exists at that moment. `listener.py` makes the coordinator's pool when the scheduler starts.

    TXN_ENGINE_COORDINATOR_POOL    sweeps, markers, snapshots, maintenance: small tasks that must not wait behind
                                   others; default: txn_engine
    TXN_ENGINE_JOBS_POOL           Spark and the exactly-once suite: few at a time; default: default_pool

Both variables are the scheduler's and the api-server's. `default_pool` means that the tasks stay there.
"""

from __future__ import annotations

import configparser
import logging
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

log = logging.getLogger(__name__)

COORDINATOR_POOL_VARIABLE = "TXN_ENGINE_COORDINATOR_POOL"
JOBS_POOL_VARIABLE = "TXN_ENGINE_JOBS_POOL"
DEFAULT_POOL = "default_pool"
COORDINATOR_POOL = "txn_engine"
SLOTS = 8
DESCRIPTION = "txn-engine: sweeps, markers, snapshots, maintenance"
MISSING = "txn_engine_missing_pools"
"""In a run's configuration: the pools that did not exist when the scheduler made its tasks."""

_VARIABLE_OF: Mapping[str, str] = {
    "txn_coordinator_sweep": COORDINATOR_POOL_VARIABLE,
    "txn_write_markers": COORDINATOR_POOL_VARIABLE,
    "txn_compute_lso": COORDINATOR_POOL_VARIABLE,
    "txn_maintain": COORDINATOR_POOL_VARIABLE,
    "txn_spark_consume": JOBS_POOL_VARIABLE,
    "txn_verify_exactly_once": JOBS_POOL_VARIABLE,
}
_DEFAULTS: Mapping[str, str] = {
    COORDINATOR_POOL_VARIABLE: COORDINATOR_POOL,
    JOBS_POOL_VARIABLE: DEFAULT_POOL,
}
_SQLITE = "sqlite:///"


_services: set[str] = set()
"""Set once a service of Airflow's has started in this process."""


class Found(NamedTuple):
    """What `doctor` tells of the pools: its status, what was seen and what to do."""

    status: str
    seen: str
    remedy: str = ""


def pool_of(dag_id: str) -> str:
    """The pool that the tasks of a DAG of ours are meant for; of any other DAG `default_pool`."""
    variable = _VARIABLE_OF.get(dag_id)
    return DEFAULT_POOL if variable is None else _named(variable)


def dag_ids() -> tuple[str, ...]:
    """The DAGs whose tasks may have a pool of their own."""
    return tuple(_VARIABLE_OF)


def wanted() -> tuple[str, ...]:
    """The pools beside `default_pool` that the environment asks for."""
    names = dict.fromkeys(_named(variable) for variable in _DEFAULTS)
    return tuple(name for name in names if name != DEFAULT_POOL)


def _named(variable: str) -> str:
    return os.environ.get(variable) or _DEFAULTS[variable]


def service_started() -> None:
    """A service of Airflow's starts in this process: make the coordinator's pool, and have missing pools noted."""
    _services.add("started")
    make_coordinator_pool()


def is_service() -> bool:
    """Whether a service of Airflow's, such as the scheduler, has started in this process; not in `dag.test()`."""
    return bool(_services)


def make_coordinator_pool() -> None:
    """Make the coordinator's pool unless it exists. Where Airflow's database refuses that, the log says so, and the
    tasks stay in `default_pool`.
    """
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError

    name = _named(COORDINATOR_POOL_VARIABLE)
    try:
        with create_session(scoped=False) as session:
            if Pool.get_pool(name, session=session) is None:
                session.add(Pool(pool=name, slots=SLOTS, description=DESCRIPTION, include_deferred=False))
                log.info("made the pool %s with %d slots", name, SLOTS)
    except IntegrityError:
        log.info("another process has made the pool %s", name)
    except SQLAlchemyError as error:
        log.warning("the pool %s cannot be made, so its tasks stay in %s: %s", name, DEFAULT_POOL, error)


def look() -> Found | None:
    """Which of the pools exist in the Airflow that this environment configures; None where it configures none.

    Does not import Airflow, which takes seconds.
    """
    url = _database_url()
    names = wanted()
    if url is None:
        return None
    try:
        there = _pools_in(url)
    except Exception as error:  # noqa: BLE001 -- whatever the driver raises; its text may hold the URL
        return Found(
            "warning",
            f"Airflow's database cannot be asked ({type(error).__name__})",
            "`airflow pools list` shows them",
        )
    missing = [name for name in names if name not in there]
    if missing:
        return Found(
            "warning",
            f"no such pool in Airflow: {', '.join(missing)}; the tasks meant for it stay in {DEFAULT_POOL}",
            f'`airflow pools set {missing[0]} {SLOTS} "{DESCRIPTION}"`, or start the scheduler, which makes it',
        )
    return Found("ok", f"{', '.join(names) or DEFAULT_POOL} in Airflow")


def _database_url() -> str | None:
    if given := os.environ.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        return given
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        settings.read(os.environ.get("AIRFLOW_CONFIG") or home / "airflow.cfg", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return None
    if found := settings.get("database", "sql_alchemy_conn", fallback=""):
        return found
    return f"{_SQLITE}{home}/airflow.db" if (home / "airflow.db").exists() else None


def _pools_in(url: str) -> set[str]:
    query = "SELECT pool FROM slot_pool"
    if url.startswith(_SQLITE):
        place = f"file:{quote(url.removeprefix(_SQLITE).partition('?')[0])}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=5)) as database:
            return {name for (name,) in database.execute(query)}
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return {name for (name,) in connection.execute(text(query))}
    finally:
        engine.dispose()
