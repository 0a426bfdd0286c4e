"""What the engine's DAGs have in common: owner, pools, time-outs, alerts, the params that all of them take.

A task of a pool that does not exist is never scheduled, and nobody is told. So all run in Airflow's `default_pool`,
which is always there, until the environment of scheduler and DAG processor names others that somebody made:

    TXN_ENGINE_COORDINATOR_POOL    sweeps, markers, snapshots, maintenance: small tasks that must not wait behind others
    TXN_ENGINE_JOBS_POOL           Spark and the exactly-once suite: few at a time
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Context, Param

from txn_engine_airflow import alerts
from txn_engine_airflow.connection import DEFAULT_CONN_ID

OWNER = "txn-engine"
START = datetime(2026, 1, 1, tzinfo=UTC)
COORDINATOR_POOL_VARIABLE = "TXN_ENGINE_COORDINATOR_POOL"
JOBS_POOL_VARIABLE = "TXN_ENGINE_JOBS_POOL"

_DEFAULT_POOL = "default_pool"
_COORDINATOR_PRIORITY = 100
_TOPIC_NAME = r"^[A-Za-z0-9._-]{1,249}$"


def coordinator_tasks(*, minutes: int, retries: int = 1, retry_delay_s: int = 15) -> dict[str, Any]:
    """Defaults of tasks that readers and producers wait for: first in their pool, retried soon."""
    return _tasks(minutes, retries, retry_delay_s) | {
        "pool": os.environ.get(COORDINATOR_POOL_VARIABLE) or _DEFAULT_POOL,
        "priority_weight": _COORDINATOR_PRIORITY,
        "weight_rule": "absolute",
    }


def job_tasks(*, minutes: int, retries: int, retry_delay_s: int) -> dict[str, Any]:
    """Defaults of tasks that need much memory or time."""
    return _tasks(minutes, retries, retry_delay_s) | {
        "pool": os.environ.get(JOBS_POOL_VARIABLE) or _DEFAULT_POOL
    }


def _tasks(minutes: int, retries: int, retry_delay_s: int) -> dict[str, Any]:
    return {
        "owner": OWNER,
        "retries": retries,
        "retry_delay": timedelta(seconds=retry_delay_s),
        "execution_timeout": timedelta(minutes=minutes),
        "on_failure_callback": alerts.on_failure,
    }


def fields_from_params(**names: str) -> Callable[[Context], None]:
    """A `pre_execute` that gives a task's fields (left) what the run's params (right) say.

    For what is no template, and for text: as a template the group "7" would be the number 7, or an object its text.
    """

    def apply(context: Context) -> None:
        for field, param in names.items():
            setattr(context["task"], field, context["params"][param])

    return apply


def conn_id_param() -> Param:
    """Which store."""
    return Param(
        DEFAULT_CONN_ID,
        type="string",
        minLength=1,
        maxLength=250,
        description="Airflow connection of the store",
    )


def dry_run_param(what: str) -> Param:
    """Look, and write nothing."""
    return Param(False, type="boolean", description=f"Only say {what}; write nothing")


def topic_param(default: str, description: str) -> Param:
    """A topic that must be named."""
    return Param(default, type="string", pattern=_TOPIC_NAME, description=description)


def optional_topic_param(default: str | None, description: str) -> Param:
    """A topic that may be left out."""
    return Param(default, type=["null", "string"], pattern=_TOPIC_NAME, description=description)


def text_param(default: str, description: str, *, length: int = 250) -> Param:
    """A field that must be filled."""
    return Param(default, type="string", minLength=1, maxLength=length, description=description)


def optional_text_param(default: str | None, description: str) -> Param:
    """A field that may be left empty."""
    return Param(default, type=["null", "string"], maxLength=1_000, description=description)
