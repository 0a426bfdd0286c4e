"""
### Snapshots, last stable offsets, lag

**What it does.** Every five minutes: `write_snapshots` puts a snapshot of each log that has grown, so that
readers replay few entries when they open it. `last_stable_offsets` shows how far read_committed readers may
go in each partition, how many offsets that is behind the log's end, and who holds it there. `group_lags`
shows every consumer group against those offsets. Both tables are in the task's log and in its XCom
(`columns`, `rows`, worst first). Nothing here changes what readers see.

**When to worry.**

- *`behind` is not 0, and `held_for_s` grows from run to run:* `held_by` has a transaction open. Its producer
  is slow, or it died: then `txn_coordinator_sweep` ends it once its timeout has passed. Longer than the
  timeout: is that DAG green?
- *`held_by` is `producer N`:* no coordinator row knows the transaction, so no sweep will end it: a hanging
  transaction.
- *`lag` grows while `behind` is 0:* the consumer does not keep up, or does not run.
- *`pending_producer_id` is not -1 in two runs in a row:* a consumer's transaction is between its output and
  its decision.
- *`write_snapshots` fails with a damaged object:* stop, and run `txn-engine verify` before anything else.

**What to do.**

    txn-engine transactions describe ID                 the holder: state, timeout, partitions
    txn-engine coordinator sweep                        ends what has timed out, now
    txn-engine transactions find-hanging                lists hanging ones; `txn-engine transactions abort` ends one
    txn-engine groups describe GROUP                    the same lag, live
    txn-engine coordinator snapshot                     the snapshots by hand

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. For another store, trigger the DAG with
its connection in `conn_id`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, dag, task


@dag(
    dag_id="txn_compute_lso",
    description="Write snapshots; report last stable offsets, who holds them back, and every group's lag",
    doc_md=__doc__,
    schedule="*/5 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=60),
    default_args={
        "owner": "txn-engine",
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "execution_timeout": timedelta(minutes=20),
    },
    params={
        "conn_id": Param("txn_engine_default", type="string", description="Airflow connection of the store")
    },
    tags=["txn-engine", "coordinator", "monitoring"],
)
def txn_compute_lso() -> None:
    """Three tasks that do not wait for each other: where a snapshot fails, the run is red and the tables are there."""

    @task(multiple_outputs=False)
    def write_snapshots(params: dict[str, str] | None = None):
        from txn_engine_airflow import tables

        return tables.write_snapshots(params["conn_id"])

    @task(multiple_outputs=False)
    def last_stable_offsets(params: dict[str, str] | None = None):
        from txn_engine_airflow import tables

        return tables.last_stable_offsets(params["conn_id"])

    @task(multiple_outputs=False)
    def group_lags(params: dict[str, str] | None = None):
        from txn_engine_airflow import tables

        return tables.group_lags(params["conn_id"])

    write_snapshots()
    last_stable_offsets()
    group_lags()


txn_compute_lso()
