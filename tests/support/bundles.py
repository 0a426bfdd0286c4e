"""Airflow takes DAGs from one folder in these tests, and from DAGs that a test made itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NAME = "blocks"


def use_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this folder the only bundle of DAGs."""
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [{"name": NAME, "classpath": local, "kwargs": {"path": str(folder), "refresh_interval": 300}}]
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(bundles))


def keep(*dags: Any) -> None:
    """Write DAGs to the database as the DAG processor does, so that Airflow knows the outlets of their
    tasks."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)
        session.commit()
        lazy = [LazyDeserializedDAG.from_dag(dag) for dag in dags]
        update_dag_parsing_results_in_db(NAME, None, lazy, {}, None, set(), session)
