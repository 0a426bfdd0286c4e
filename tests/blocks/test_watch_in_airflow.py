"""A watch in Airflow: made from the DAG's schedule, rebuilt from the database, and its event starts the
DAG."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.blocks.looping import first, in_a_loop
from tests.blocks.payments import commit, payments
from tests.support.bundles import keep
from txn_engine import Engine

pytestmark = pytest.mark.airflow


def _watchers(session: Any) -> list[Any]:
    """Airflow's rows for watches of ours."""
    from airflow.models.trigger import Trigger
    from sqlalchemy import select

    name = "txn_engine_airflow.watchers.CommittedRecordsTrigger"
    return list(session.scalars(select(Trigger).where(Trigger.classpath == name)))


@pytest.mark.usefixtures("own_bundle")
def test_a_watch_is_kept_for_a_dag_that_is_not_paused_and_starts_it(engine: Engine) -> None:
    """As in the triggerer, the trigger is made from the database's row, and its event makes Airflow queue a
    run that gets what the watch saw."""
    from airflow.models.asset import AssetDagRunQueue, AssetEvent
    from airflow.models.dag import DagModel
    from airflow.models.trigger import Trigger
    from airflow.sdk import DAG
    from airflow.serialization.decoders import smart_decode_trigger_kwargs
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from txn_engine_airflow import TxnConsumeOperator, watched_topic
    from txn_engine_airflow.assets import update_of_event
    from txn_engine_airflow.watchers import CommittedRecordsTrigger

    schedule = watched_topic("payments", group_id="watchers", poll_interval_s=1)
    with DAG("watching", schedule=schedule, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        TxnConsumeOperator(task_id="tell", topics="payments", group_id="watchers", python_callable=print)
    keep(dag)
    with create_session() as session:
        session.get(DagModel, "watching").is_paused = True
    keep(dag)
    with create_session() as session:
        assert _watchers(session) == []
        session.get(DagModel, "watching").is_paused = False
    keep(dag)
    with create_session() as session:
        (row,) = _watchers(session)
        trigger_id = row.id
        kwargs = {name: smart_decode_trigger_kwargs(value) for name, value in row.kwargs.items()}
    assert kwargs == {
        "topic": "payments", "group_id": "watchers", "conn_id": "txn_engine_default", "poll_interval_s": 1.0,
    }  # fmt: skip

    commit(engine, payments(0, 12))
    payload = in_a_loop(first(CommittedRecordsTrigger(**kwargs)))
    with create_session() as session:
        Trigger.submit_event(trigger_id, TriggerEvent(payload), session=session)
    with create_session() as session:
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_dag_id.is_(None)))
        (extra,) = [event.extra for event in events if event.asset.uri == schedule.uri]
        queued = session.scalars(select(AssetDagRunQueue.target_dag_id)).all()
    assert "watching" in queued
    update = update_of_event(extra)
    assert (update["records"], update["group_id"], update["topic"]) == (12, "watchers", "payments")
    ends = engine.admin.list_offsets("payments")
    assert update["end_offsets"] == {str(at.partition): ends[at].last_stable_offset for at in ends}


def test_an_event_that_is_nobodys_is_told_from_ours() -> None:
    """An operator's event and a watcher's event have the same content. An event that a person made is
    refused."""
    from txn_engine_airflow.assets import update_of_event

    told = {"topic": "payments", "records": 1, "end_offsets": {"0": 2}}
    assert update_of_event(told) == told
    assert update_of_event({"from_trigger": True, "payload": told}) == told
    for strange in ({}, {"from_rest_api": True}, {"from_trigger": True, "payload": 3}):
        with pytest.raises(ValueError, match="expected topic and end_offsets"):
            update_of_event(strange)
