"""What the engine's DAGs have in common: owner, time-outs, alerts, the params that all of them take.

Their pools are not here: the scheduler gives a task its pool, if that exists (`pools.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airflow.sdk import Context, Param

from txn_engine_airflow import alerts, deployment

OWNER = "txn-engine"
START = datetime(2026, 1, 1, tzinfo=UTC)

_COORDINATOR_PRIORITY = 100
_SCALARS = ["string", "integer", "boolean"]
_TOPIC_NAME = r"^[A-Za-z0-9._-]{1,249}$"


def sweep_schedule() -> str | timedelta:
    """When `txn_coordinator_sweep` runs: every minute, or as often as the deployment says."""
    seconds = deployment.sweep_seconds()
    return "* * * * *" if seconds == 60 else timedelta(seconds=seconds)


def coordinator_tasks(*, minutes: int, retries: int = 1, retry_delay_s: int = 15) -> dict[str, Any]:
    """Defaults of tasks that readers and producers wait for: first in their pool, retried soon."""
    return _tasks(minutes, retries, retry_delay_s) | {
        "priority_weight": _COORDINATOR_PRIORITY,
        "weight_rule": "absolute",
    }


def job_tasks(*, minutes: int, retries: int, retry_delay_s: int) -> dict[str, Any]:
    """Defaults of tasks that need much memory or time."""
    return _tasks(minutes, retries, retry_delay_s)


def _tasks(minutes: int, retries: int, retry_delay_s: int) -> dict[str, Any]:
    return {
        "owner": OWNER,
        "retries": retries,
        "retry_delay": timedelta(seconds=retry_delay_s),
        "execution_timeout": timedelta(minutes=minutes),
        "on_failure_callback": alerts.on_failure,
    }


_CHECKS: Mapping[str, Callable[[object], object]] = {
    "conn_id": deployment.permitted_connection,
    **{param: partial(deployment.permitted_job_name, param) for param in deployment.OWN_JOB},
    "spark_settings": deployment.permitted_spark_settings,
    "transform": deployment.permitted_transform,
    "checks": deployment.permitted_suite,
}
"""What a param of that name may be, by the worker's environment."""


def fields_from_params(**names: str) -> Callable[[Context], None]:
    """A `pre_execute` that gives a task's fields (left) what the run's params (right) say.

    For what is no template, and for text: as a template the group "7" would be the number 7, or an object its text.
    Raises `AirflowFailException` for what the deployment does not permit, of all params of the run: a later task's fail
    the first one.
    """

    def apply(context: Context) -> None:
        params = context["params"]
        checked = {param: check(params[param]) for param, check in _CHECKS.items() if param in params}
        for field, param in names.items():
            setattr(context["task"], field, checked.get(param, params[param]))

    return apply


def conn_id_param() -> Param:
    """Which store, of those that the deployment lets a run name."""
    permitted = deployment.connections()
    return Param(
        permitted[0],
        type="string",
        enum=list(permitted),
        description=f"Airflow connection of the store, of those that {deployment.CONNECTIONS_VARIABLE} names",
    )


def job_param(name: str, description: str) -> Param:
    """A topic, a group or an id of `txn_spark_consume`, of those that the deployment lets a run name."""
    return Param(
        deployment.OWN_JOB[name],
        type="string",
        enum=list(deployment.job_names(name)),
        description=f"{description}, of those that {deployment.JOB_VARIABLES[name]} names",
    )


def days_param(name: str, default: float | None, description: str) -> Param:
    """How old must be what `txn_maintain` takes away, not below what the deployment keeps; without a default: empty."""
    least = deployment.days_min(name)
    return Param(
        None if default is None else max(default, least),
        type=["null", "number"] if default is None else "number",
        minimum=least,
        maximum=deployment.DAYS_MAX,
        description=description,
    )


def transform_param() -> Param:
    """Which function, of those that the deployment lets a run name."""
    return Param(
        deployment.OWN_TRANSFORM,
        type="string",
        enum=list(deployment.transforms()),
        description="module:function, from the input's DataFrame to the output's, of those that "
        f"{deployment.TRANSFORMS_VARIABLE} names",
    )


def checks_param() -> Param:
    """Which suite votes before the commit, of those that the deployment lets a run name."""
    named = deployment.suites()
    return Param(
        named[0] if named else None,
        type=["null", "string"],
        enum=list(named) or [None],
        description=f"The suite that the output must pass before it is committed, of those that "
        f"{deployment.SUITES_VARIABLE} names",
    )


def spark_settings_param() -> Param:
    """Settings of the job, of those that the deployment lets a run give."""
    known = deployment.spark_params().items()
    values = {name: {"type": _SCALARS, "pattern": f"^(?:{pattern})$"} for name, pattern in known}
    return Param(
        {},
        type="object",
        properties=values,
        additionalProperties=False,
        description=f"Spark settings, such as spark.driver.memory: {', '.join(values)}",
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
