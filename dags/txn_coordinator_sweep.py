"""
### Ends the transactions whose producers died

**What it does.** Every minute, or as often as TXN_ENGINE_SWEEP_SECONDS says, it looks for transactions that
have been open for longer than their own timeout, fences their producer (a higher epoch: a producer that wakes up
later is refused), aborts them and writes their abort markers. In the first five minutes of each hour, and in a run
started by hand, it also expires transactional ids that have been idle for the store's
`transactional.id.expiration.ms` (7 days unless somebody has set it). Running it twice, or beside another sweep, is
harmless.

**When to worry.**

- *A run is red with `NETWORK_EXCEPTION` (no answer from the store):* nothing is swept meanwhile; readers wait
  in front of transactions whose producers died. No data is at risk.
- *A run is red with "could not be finished":* what could be ended has been. A transaction that was aborted
  but lacks markers is finished by `txn_write_markers`, one that could not be aborted by the next run; the
  line says what was in the way.
- *`abort_timed_out_transactions` reports the same transactional id again and again:* that producer's timeout
  is shorter than its work.
- *Readers lag while this DAG is green:* see `txn_compute_lso`, column `held_by`.

**What to do.**

    txn-engine doctor                                   does the store answer, are the credentials right
    txn-engine transactions list                        who is in which state
    txn-engine transactions describe ID                 its partitions, its timeout, since when
    txn-engine coordinator sweep                        this sweep by hand
    txn-engine coordinator expire                       the expiry by hand
    txn-engine transactions find-hanging                open data that no coordinator row knows

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. To sweep another store, trigger the DAG
with its connection in `conn_id` (one that TXN_ENGINE_CONNECTIONS names); with `dry_run` it only says what it would do.

**Metrics.** `txn_engine.open_transactions`, `txn_engine.oldest_open_transaction_s`, `txn_engine.sweep_duration`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Context, dag, task

from txn_engine_airflow import deployment
from txn_engine_airflow.alerts import on_run_failure
from txn_engine_airflow.dag_defaults import (
    START,
    conn_id_param,
    coordinator_tasks,
    dry_run_param,
    sweep_schedule,
)

EXPIRY_MINUTES = max(
    5, deployment.sweep_seconds() / 60
)  # of each hour; a run that is skipped is no hour lost


def expiry_is_due(context: Context) -> bool:
    """In the first minutes of an hour, and whenever a person asks."""
    run = context["dag_run"]
    return run.run_type == "manual" or run.run_after.minute < EXPIRY_MINUTES


@dag(
    dag_id="txn_coordinator_sweep",
    description="Abort timed-out transactions, every minute as a rule; expire idle transactional ids hourly",
    doc_md=__doc__,
    schedule=sweep_schedule(),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=15),
    on_failure_callback=on_run_failure,
    default_args=coordinator_tasks(minutes=5),
    params={
        "conn_id": conn_id_param(),
        "dry_run": dry_run_param("which transactions would be aborted and which ids would expire"),
    },
    tags=["txn-engine", "coordinator"],
)
def txn_coordinator_sweep() -> None:
    """Two sweeps that do not wait for each other."""

    @task(multiple_outputs=False)
    def abort_timed_out_transactions(params: dict | None = None):
        from txn_engine_airflow import sweeps

        return sweeps.abort_timed_out_transactions(params["conn_id"], dry_run=params["dry_run"])

    @task.run_if(expiry_is_due, skip_message="ids are expired in the first minutes of each hour")
    @task(multiple_outputs=False)
    def expire_transactional_ids(params: dict | None = None):
        from txn_engine_airflow import sweeps

        return sweeps.expire_transactional_ids(params["conn_id"], dry_run=params["dry_run"])

    abort_timed_out_transactions()
    expire_transactional_ids()


txn_coordinator_sweep()
