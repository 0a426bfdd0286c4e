"""A DAG before it is renamed: `nightly_renamed.py` takes its place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from txn_engine_airflow import TxnProduceOperator

PATH = str(Path(__file__).parent / "files" / "nightly.csv")

with DAG(
    "nightly",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"retries": 2},
):
    TxnProduceOperator(task_id="load", topic="nightly_load", path=PATH)
    TxnProduceOperator(task_id="extract", topic="nightly_extract", path=PATH)
    TxnProduceOperator(task_id="nameless", topic="nightly_nameless", path=PATH)
