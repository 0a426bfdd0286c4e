"""
### Finishes decided transactions

**What it does.** A transaction is decided by one row in the coordinator's log; readers see it once a marker
stands in each of its partitions. Producers write the markers themselves, unless they run with
`markers="deferred"` or die in between. Every minute this DAG finds the decided transactions that are not
complete (`find_pending`), deals the coordinator partitions that hold them out to at most `tasks_max` tasks
(`write_markers`, many markers to an entry), and looks whether all that were found are complete
(`check_complete`). A decision only rolls forward: repeating this, or two runs at once, is harmless.

**When to worry.**

- *`check_complete` is red:* the named transactions are committed or aborted for good, but readers do not see
  it yet in some partition. The log of `write_markers` says which partition refused, and why. No data is at
  risk; readers lag.
- *`write_markers` is red and `check_complete` green:* somebody else finished them meanwhile. Nothing to do.
- *`find_pending` finds more in each run:* producers decide faster than one run a minute completes; raise
  `tasks_max`, or let producers write their markers inline.

**What to do.**

    txn-engine doctor                                   does the store answer, are the credentials right
    txn-engine transactions list                        PrepareCommit and PrepareAbort are the pending ones
    txn-engine transactions describe ID                 its partitions
    txn-engine coordinator markers                      this DAG's work by hand
    txn-engine verify                                   when an error names a damaged object

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. For another store, trigger the DAG with
its connection in `conn_id`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, TriggerRule, dag, task


@dag(
    dag_id="txn_write_markers",
    description="Write the missing markers of decided transactions, and complete them",
    doc_md=__doc__,
    schedule="* * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=30),
    default_args={
        "owner": "txn-engine",
        "retries": 1,
        "retry_delay": timedelta(seconds=15),
        "execution_timeout": timedelta(minutes=10),
    },
    params={
        "conn_id": Param("txn_engine_default", type="string", description="Airflow connection of the store"),
        "tasks_max": Param(4, type="integer", minimum=1, maximum=50, description="Tasks that share the work"),
    },
    tags=["txn-engine", "coordinator"],
)
def txn_write_markers() -> None:
    """Find, write in parallel, check."""

    @task(multiple_outputs=False)
    def find_pending(params: dict[str, str | int] | None = None):
        from txn_engine_airflow import sweeps

        return sweeps.find_pending_markers(params["conn_id"], tasks_max=params["tasks_max"])

    @task(multiple_outputs=False)
    def write_markers(work, params: dict[str, str | int] | None = None):
        from txn_engine_airflow import sweeps

        return sweeps.write_pending_markers(work, params["conn_id"])

    # Also after tasks that failed; not where the finding failed, nor where it found nothing.
    @task(multiple_outputs=False, trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)
    def check_complete(found, params: dict[str, str | int] | None = None):
        from txn_engine_airflow import sweeps

        return sweeps.check_markers_written(found, params["conn_id"])

    found = find_pending()
    write_markers.expand(work=found) >> check_complete(found)


txn_write_markers()
