"""
### Starts by itself when records are committed

No task polls: the triggerer looks at the topic's logs every five seconds, and starts a run when there are committed
records that the group has not read. The run reads from its group's position on, whatever started it, so an event that
comes twice does no harm, and one that was lost is made up for by the next.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import dag

from txn_engine_airflow import TxnConsumeOperator, watched_topic

if TYPE_CHECKING:
    import pyarrow as pa

PAYMENTS, GROUP = "example_payments", "example_watchers"


def tell(payments: pa.Table) -> None:
    """Log how many there are; with no output topic a batch may come again after a crash, and never goes missing."""
    logging.getLogger(__name__).info("%d new payments", payments.num_rows)


@dag(
    dag_id="example_txn_watch",
    description="Runs when a topic has new committed records",
    doc_md=__doc__,
    schedule=watched_topic(PAYMENTS, group_id=GROUP, poll_interval_s=5),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"owner": "txn-engine", "retries": 2},
    tags=["txn-engine", "example"],
)
def example_txn_watch() -> None:
    """One task."""
    TxnConsumeOperator(task_id="tell", topics=PAYMENTS, group_id=GROUP, python_callable=tell)


example_txn_watch()
