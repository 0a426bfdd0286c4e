"""
### Snapshots, last stable offsets, lag, dead letters; and who must be told

**What it does.** Every five minutes: `write_snapshots` puts a snapshot of each log that has grown, so that
readers replay few entries when they open it. `last_stable_offsets` shows how far read_committed readers may
go in each partition, how many offsets that is behind the log's end, and who holds it there; `aborted_transactions`
counts the partition's aborted index. `group_lags` shows every consumer group against those offsets: `lag` up to them,
`held_back` from there to the log's end, which waits for an open transaction however small the lag is.
`hanging_transactions` shows what is open and owned by nobody, `dead_letters` how many rows of the last hour
(`dead_letters_window_s`) became dead letters, beside the records of their topic. The tables are in the tasks' logs and
in their XCom (`columns`, `rows`, worst first). Nothing here changes what readers see.

**When to worry.** The six tasks named `alert_...` are red when a person has to look, and tell it (see "Alerts"
in docs/AIRFLOW.md); the run is red as long as the condition lasts.

- *`alert_lso_stalled`:* readers of a partition wait behind one transaction for longer than
  `stalled_after_s` (900). The text names the holder, its state, and what ends it.
- *`alert_hanging_transaction`:* no coordinator row knows a transaction that is open on a partition, so no sweep
  will end it. Once you are sure that its producer is gone, end it with the command in the text.
- *`alert_lag_growing`:* a group's lag grew in each of the last `lag_growing_runs` (6) runs: its consumer does not
  keep up, or does not run.
- *`alert_dead_letters`:* of a topic's rows more than `dead_letters_max` (1%) became dead letters. They wait in the
  dead-letter topic; `txn-engine dead-letters list TOPIC` says why.
- *`alert_damaged`:* a topic or a partition cannot be read. The tables say all about the rest, which goes on; the
  text names the object. What to do: "What a damaged object does" in docs/operations.md.
- *`alert_pool_missing`:* a pool that these DAGs are meant to run in does not exist, so their tasks stay in
  `default_pool`, where other tasks may hold them up. The text has the command that makes it.
- *`pending_producer_id` is not -1 in two runs in a row:* a consumer's transaction is between its output and
  its decision.
- *`write_snapshots` fails with a damaged object:* the snapshots of all else are written; run `txn-engine verify`.

**What to do.**

    txn-engine transactions describe ID                 the holder: state, timeout, partitions
    txn-engine coordinator sweep                        ends what has timed out, now
    txn-engine transactions find-hanging                lists hanging ones; `txn-engine transactions abort` ends one
    txn-engine groups describe GROUP                    the same lag, live
    txn-engine coordinator snapshot                     the snapshots by hand

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. For another store, trigger the DAG with
its connection in `conn_id` (one that TXN_ENGINE_CONNECTIONS names); with `dry_run` it writes no snapshots.

**Metrics.** `txn_engine.lso_lag.<topic>.<partition>`, `txn_engine.dead_letters.<topic>`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Context, dag, get_current_context, task

from txn_engine_airflow.alerts import on_run_failure
from txn_engine_airflow.dag_defaults import START, conn_id_param, coordinator_tasks, dry_run_param


def snapshots_may_be_written(context: Context) -> bool:
    """Not in a dry run."""
    return not context["params"]["dry_run"]


@dag(
    dag_id="txn_compute_lso",
    description="Write snapshots; report last stable offsets, who holds them back, and every group's lag",
    doc_md=__doc__,
    schedule="*/5 * * * *",
    start_date=START,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=60),
    on_failure_callback=on_run_failure,
    default_args=coordinator_tasks(minutes=20, retries=2, retry_delay_s=30),
    params={"conn_id": conn_id_param(), "dry_run": dry_run_param("what the tables say")},
    tags=["txn-engine", "coordinator", "monitoring"],
)
def txn_compute_lso() -> None:
    """Tables that do not wait for each other, nor for the snapshots; each followed by the alert that it is for."""

    @task.run_if(snapshots_may_be_written, skip_message="a dry run: no snapshot is written")
    @task(multiple_outputs=False)
    def write_snapshots(params: dict | None = None):
        from txn_engine_airflow import tables

        return tables.write_snapshots(params["conn_id"])

    @task(multiple_outputs=False)
    def last_stable_offsets(params: dict | None = None):
        from txn_engine_airflow import tables

        return tables.last_stable_offsets(params["conn_id"])

    @task(multiple_outputs=False)
    def group_lags(params: dict | None = None):
        from txn_engine_airflow import tables

        return tables.group_lags(params["conn_id"])

    @task(multiple_outputs=False)
    def hanging_transactions(params: dict | None = None):
        from txn_engine_airflow import tables

        return tables.hanging_transactions(params["conn_id"])

    @task(multiple_outputs=False)
    def dead_letters(params: dict | None = None):
        from txn_engine_airflow import tables

        return tables.dead_letters(params["conn_id"])

    @task
    def alert_lso_stalled(table):
        from txn_engine_airflow import alert_tasks

        alert_tasks.lso_stalled(table)

    @task
    def alert_hanging_transaction(table):
        from txn_engine_airflow import alert_tasks

        alert_tasks.hanging_transaction(table)

    @task
    def alert_lag_growing(table):
        from txn_engine_airflow import alert_tasks

        alert_tasks.lag_growing(table, get_current_context()["ti"])

    @task
    def alert_dead_letters(table):
        from txn_engine_airflow import alert_tasks

        alert_tasks.dead_letters(table)

    @task
    def alert_pool_missing():
        from txn_engine_airflow import alert_tasks

        alert_tasks.pool_missing(get_current_context()["dag_run"].conf)

    @task
    def alert_damaged(offsets, hanging, lags, letters):
        from txn_engine_airflow import alert_tasks

        alert_tasks.damaged(offsets, hanging, lags, letters)

    write_snapshots()
    alert_pool_missing()
    offsets, hanging, lags, letters = (
        last_stable_offsets(),
        hanging_transactions(),
        group_lags(),
        dead_letters(),
    )
    alert_lso_stalled(offsets)
    alert_hanging_transaction(hanging)
    alert_lag_growing(lags)
    alert_dead_letters(letters)
    alert_damaged(offsets, hanging, lags, letters)


txn_compute_lso()
