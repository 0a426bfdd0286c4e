"""A worker that is killed (SIGKILL): `python -m tests.blocks.killed KIND` runs one task of a kind and dies in
the middle."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, Final

import tests.support.airflow_home as airflow_home
from tests.support.kills import kill_myself

OUTBOX: Final = ", txn_engine_run text"
QUERY: Final = "SELECT account_id, amount FROM incoming"


def task(kind: str) -> Any:
    """The task `move` of this kind."""
    from txn_engine_airflow import PostgresToTxnOperator, TxnToPostgresOperator

    if kind == "out":
        return TxnToPostgresOperator(
            task_id="move", topics="payments", group_id="out", table="arrived", create=True, max_records=4
        )
    source = {"sql": QUERY} if kind == "query" else {"outbox": "outbox", "batch_rows": 4}
    return PostgresToTxnOperator(task_id="move", topic="payments", **source)  # type: ignore[arg-type]


def main(kind: str) -> int:
    """Run the task as the run of the tests' day, and die after the commit that counts."""
    airflow_home.make_database()
    from airflow.sdk import DAG

    from tests.blocks.conftest import DAY
    from tests.support.bundles import keep
    from txn_engine.databases import consuming
    from txn_engine.postgres import outbox
    from txn_engine.producer import Producer

    commit = Producer.commit_transaction

    def commit_and_die(producer: Producer, **settings: Any) -> None:
        commit(producer, **settings)
        kill_myself()

    if kind == "out":
        consuming.ConsumeRun.follow = kill_myself  # type: ignore[method-assign]
    elif kind == "outbox":
        outbox.Outbox.take_away = kill_myself  # type: ignore[method-assign]
    else:
        Producer.commit_transaction = commit_and_die  # type: ignore[assignment,method-assign]
    with DAG(f"killed_{kind}", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        task(kind)
    keep(dag)
    dag.test(logical_date=DAY)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
