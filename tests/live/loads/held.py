"""DAGs whose commits wait with their transaction open, as long as the folder `files/held` has a file with the DAG's
name. Before a commit waits, it makes the file `<DAG>.open`.
"""

from __future__ import annotations

import functools
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from airflow.sdk import DAG, get_current_context

from txn_engine.producer import Producer
from txn_engine_airflow import TxnProduceOperator

FOLDER = Path(__file__).parent / "files" / "held"
_commit = Producer.commit_transaction


@functools.wraps(_commit)
def held_commit(producer: Producer, **settings: Any) -> Any:
    hold = FOLDER / get_current_context()["ti"].dag_id
    while hold.exists():
        hold.with_suffix(".open").touch()
        time.sleep(0.1)
    return _commit(producer, **settings)


Producer.commit_transaction = held_commit  # type: ignore[method-assign]

for name in ("task_marked", "run_marked"):
    with DAG(
        name,
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        default_args={"retries": 2, "retry_delay": timedelta(0)},
    ):
        TxnProduceOperator(
            task_id="load",
            topic=f"{name}_load",
            python_callable=lambda: pa.table({"id": [1, 2]}),
            transaction_timeout_s=900,
        )
