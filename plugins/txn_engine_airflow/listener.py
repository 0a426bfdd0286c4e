"""What the plugin does when a service of Airflow's starts: it makes the pool of the coordinator's DAGs."""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl


@hookimpl
def on_starting(component: Any) -> None:
    """Make the pool when the scheduler starts, or another service with access to the database; never in a task."""
    kind = type(component)
    if (kind.__module__, kind.__name__) == ("airflow.jobs.job", "Job"):
        from txn_engine_airflow import pools

        pools.service_started()
