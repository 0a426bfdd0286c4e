"""The tasks that are red when a person has to look: what they know of the store stands in the tables before them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txn_engine_airflow import alerts
from txn_engine_airflow.tables import Table, lag_history, rows_of

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

_HISTORY = "lags"


def lso_stalled(table: Table) -> None:
    """Raise `AlertError` where readers wait behind one transaction for too long."""
    alerts.check_lso(rows_of(table), alerts.Settings.load().stalled_after_s)


def hanging_transaction(table: Table) -> None:
    """Raise `AlertError` where something is open that nobody will end."""
    alerts.check_hanging(rows_of(table))


def dead_letters(table: Table) -> None:
    """Raise `AlertError` where too many of a topic's rows became dead letters."""
    alerts.check_dead_letters(rows_of(table), alerts.Settings.load())


def damaged(*tables: Table) -> None:
    """Raise `AlertError` for what cannot be read, and so stands in none of the tables."""
    alerts.check_damage([each for table in tables for each in table.get("unreadable", ())])


def pool_missing(conf: Mapping[str, Any] | None) -> None:
    """Raise `AlertError` where the scheduler has found that a pool does not exist; `conf` is the run's."""
    alerts.check_pools(conf)


def lag_growing(table: Table, instance: RuntimeTaskInstanceProtocol) -> None:
    """Raise `AlertError` where a group falls back run after run; what the runs before saw is in their XCom."""
    settings = alerts.Settings.load()
    before = instance.xcom_pull(key=_HISTORY, include_prior_dates=True, map_indexes=-1) or {}
    history = lag_history(table, before, settings.lag_growing_runs)
    instance.xcom_push(_HISTORY, history)
    alerts.check_lag(history, settings)
