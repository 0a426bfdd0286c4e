"""
### Finishes decided transactions

**What it does.** A transaction is decided by one row in the coordinator's log; readers see it once a marker
stands in each of its partitions. Producers write the markers themselves, unless they run with
`markers="deferred"` or die in between. This DAG starts when a producer in Airflow has committed with deferred
markers (an event of the alias `txn_engine_default/__transaction_state`), and every minute in any case. It finds the
decided transactions that are not complete (`find_pending`), deals the coordinator partitions that hold them out to
at most `tasks_max` tasks (`write_markers`, many markers to an entry), and looks whether all that were found are
complete (`check_complete`). A decision only rolls forward: repeating this, or two runs at once, is harmless.
`make_cut` then makes a cut of all topics where the newest one is an hour old (TXN_ENGINE_CUT_MINUTES), and has it kept
for a week (TXN_ENGINE_CUT_DAYS); its number and offsets are in the XCom and the log, and it sends the event of the
alias `txn_engine_default/__cuts`. In most runs none is due, and the task is skipped. A retry makes at most one more.

**When to worry.**

- *`check_complete` is red:* the named transactions are committed or aborted for good, but readers do not see
  it yet in some partition. The log of `write_markers` says which partition refused, and why. No data is at
  risk; readers lag.
- *`write_markers` is red and `check_complete` green:* somebody else finished them meanwhile. Nothing to do.
- *`make_cut` is red:* readers of everything as of one moment have to do with an older cut. The line says what was
  in the way: a damaged topic, or a transaction that is marked in one partition and not in another. It is tried again
  by a run ten minutes later.
- *`find_pending` finds more in each run:* producers decide faster than one run a minute completes; raise
  `tasks_max`, or let producers write their markers inline.

**What to do.**

    txn-engine doctor                                   does the store answer, are the credentials right
    txn-engine transactions list                        PrepareCommit and PrepareAbort are the pending ones
    txn-engine transactions describe ID                 its partitions
    txn-engine coordinator markers                      this DAG's work by hand
    txn-engine cuts list                                the cuts there are; `txn-engine cuts create` makes one now
    txn-engine verify                                   when an error names a damaged object

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. For another store, trigger the DAG with
its connection in `conn_id` (one that TXN_ENGINE_CONNECTIONS names); with `dry_run` it only says what waits.

**Metrics.** `txn_engine.marker_backlog`, as found, before anything is written.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import (
    AssetOrTimeSchedule,
    CronTriggerTimetable,
    Param,
    TriggerRule,
    dag,
    get_current_context,
    task,
)

from txn_engine_airflow import topic_alias, topic_schedule
from txn_engine_airflow.alerts import on_run_failure
from txn_engine_airflow.assets import COORDINATOR_TOPIC, CUTS
from txn_engine_airflow.dag_defaults import START, conn_id_param, coordinator_tasks, dry_run_param
from txn_engine_airflow.deployment import connections


@dag(
    dag_id="txn_write_markers",
    description="Write the missing markers of decided transactions, and complete them",
    doc_md=__doc__,
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("* * * * *", timezone="UTC"), assets=topic_schedule(COORDINATOR_TOPIC)
    ),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=30),
    on_failure_callback=on_run_failure,
    default_args=coordinator_tasks(minutes=10),
    params={
        "conn_id": conn_id_param(),
        "tasks_max": Param(4, type="integer", minimum=1, maximum=50, description="Tasks that share the work"),
        "dry_run": dry_run_param("which decided transactions wait, and whether a cut is due"),
    },
    tags=["txn-engine", "coordinator"],
)
def txn_write_markers() -> None:
    """Find, write in parallel, check; then a cut, now and then."""

    @task(multiple_outputs=False)
    def find_pending(params: dict | None = None):
        from txn_engine_airflow import sweeps

        return sweeps.find_pending_markers(
            params["conn_id"], tasks_max=params["tasks_max"], dry_run=params["dry_run"]
        )

    @task(multiple_outputs=False, on_failure_callback=None)  # what is left, check_complete tells once
    def write_markers(work, params: dict | None = None):
        from txn_engine_airflow import sweeps

        return sweeps.write_pending_markers(work, params["conn_id"])

    # Also after tasks that failed; not where the finding failed, nor where it found nothing.
    @task(multiple_outputs=False, trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)
    def check_complete(found, params: dict | None = None):
        from txn_engine_airflow import sweeps

        return sweeps.check_markers_written(found, params["conn_id"])

    # Also where there was nothing to write; not where what was decided could not be completed.
    @task(
        multiple_outputs=False,
        trigger_rule=TriggerRule.NONE_FAILED,
        outlets=[topic_alias(CUTS, conn_id) for conn_id in connections()],
    )
    def make_cut(params: dict | None = None):
        from txn_engine_airflow import cuts

        context = get_current_context()
        events = context["outlet_events"][topic_alias(CUTS, params["conn_id"])]
        return cuts.make_due_cut(
            params["conn_id"],
            try_number=context["ti"].try_number,
            dry_run=params["dry_run"],
            emit=events.add,
        )

    found = find_pending()
    checked = check_complete(found)
    write_markers.expand(work=found) >> checked >> make_cut()


txn_write_markers()
