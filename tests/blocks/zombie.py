"""A worker that Airflow has given up: `python -m tests.blocks.zombie DAG_ID FOLDER` tries a task and waits in
the middle."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tests.support.airflow_home as airflow_home
from tests.support.waiting import wait_for


def main(dag_id: str, folder: Path) -> int:
    """Send records, create `sent`, wait for `go`, and finish the task. Returns 0 only if it was committed, else it
    prints the reason."""
    airflow_home.make_database()
    from airflow.sdk import DAG

    from tests.blocks.conftest import DAY
    from tests.blocks.payments import payments
    from tests.support.bundles import keep
    from tests.support.running import collected_failures
    from txn_engine_airflow import TxnProduceOperator

    def source() -> Any:
        yield payments(500, 5)
        (folder / "sent").touch()
        wait_for((folder / "go").exists, what="the other try", limit_s=900)

    with DAG(dag_id, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        TxnProduceOperator(task_id="load", topic="payments", python_callable=source)
    keep(dag)
    with collected_failures() as failures:
        run = dag.test(logical_date=DAY)
    for error in failures:
        print("this try failed:", error.reason)
    return 0 if str(run.state) == "success" else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
