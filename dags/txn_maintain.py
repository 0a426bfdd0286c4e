"""
### Keeps the ledger small and quick

**What it does.** Once a day, after `check_params`, one job after the other:

1. `publish_tables` lets the tables of topics with `tables.publish` show a new cut: first, so that who follows a table
   sees new files as they came, and merges of them later
2. `compact` merges small committed files with their neighbours (and keeps of each key the latest record, where the
   topic's `cleanup.policy` says so); readers see the same records at the same offsets before, during and after. What
   one process does not do in good time is Spark's, with the deployment's settings (TXN_ENGINE_SPARK_CONF): the
   report's columns `engine` and `why` say which it was
3. `retain` moves where partitions begin: records older than their topic's retention, and entries that verified
   snapshots hold
4. `seal` overwrites entries that only snapshots need any more; no entry of a topic that lives is ever deleted
5. `expire_producers` forgets producers that were idle for the store's limit
6. `clean` finishes erasures that were begun and cut off, then deletes files dead for 24 hours, files that no entry ever
   named, and needless snapshots
7. `remove_deleted_topics` deletes what is left of topics that were deleted 24 hours ago, their entries too
8. `expire_group_offsets`, only where the store's `offsets.retention.minutes` is set, or a run says
   `group_offsets_days`: no schedule alone makes a group lose its place, and no run one that committed within the days
   that the deployment keeps (TXN_ENGINE_GROUP_OFFSETS_DAYS, 7)

How little `entries_days` and `orphan_days` may be is the deployment's too: TXN_ENGINE_ENTRIES_DAYS and
TXN_ENGINE_ORPHAN_DAYS, each a day where nothing says otherwise.

The snapshots that this needs are written by `txn_compute_lso`. Every job decides on what it reads back from the
store, may be killed anywhere, and may run beside writers, readers and another run of itself: the next one goes on.
Each shows what it did by partition in its log and in its XCom `report`. Start it with `dry_run` to see what is due.

**When to worry.** A job is red when a partition needs somebody's eye; the other partitions, and the jobs behind it,
are done all the same.

- *`CORRUPT_MESSAGE`:* an object is damaged, or a snapshot differs from a replay. Nothing was deleted or sealed in
  that partition. Run `txn-engine verify` and restore the named object from a copy.
- *`NETWORK_EXCEPTION`, `CLUSTER_AUTHORIZATION_FAILED`:* the store did not answer, or refused: overwriting and
  deleting need rights of their own (docs/operations.md).
- *`POLICY_VIOLATION`:* a partition is too large for one process, and there is no Spark on the worker: install it, or
  run with `engine` `local` and take the time.
- *`OVERTAKEN` (in the log, not red):* another run was quicker; the next one does what is left.
- *`publish_tables` is red:* the line says which topic and why; somebody wrote into its table's folder, say
  (docs/TABLES.md). Nothing else depends on it.
- *Nothing is ever sealed or cleaned:* is `txn_compute_lso` green? Without snapshots that are days old nothing may go.

**What to do.**

    txn-engine tables publish --dry-run                 which tables are behind
    txn-engine maintain compact --dry-run               what would be merged
    txn-engine maintain retention --dry-run             where partitions would begin
    txn-engine maintain clean --dry-run                 what would be forgotten, sealed, deleted
    txn-engine verify                                   the audit, before and after

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. For another store, trigger the DAG with
its connection in `conn_id` (one that TXN_ENGINE_CONNECTIONS names).
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, TriggerRule, chain, dag, get_current_context, task

from txn_engine_airflow.alerts import on_run_failure
from txn_engine_airflow.dag_defaults import (
    START,
    conn_id_param,
    coordinator_tasks,
    days_param,
    dry_run_param,
    optional_topic_param,
)


def announce(key: str, value: object) -> None:
    """Into the task's XCom at once: a task that fails later has it too."""
    get_current_context()["ti"].xcom_push(key, value)


@dag(
    dag_id="txn_maintain",
    description="Compaction, retention, sealing, clean-up: daily, or by hand, also as a dry run",
    doc_md=__doc__,
    schedule="17 3 * * *",
    start_date=START,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=23),
    on_failure_callback=on_run_failure,
    default_args=coordinator_tasks(minutes=6 * 60, retries=2, retry_delay_s=60)
    | {"priority_weight": 1, "trigger_rule": TriggerRule.ALL_DONE_MIN_ONE_SUCCESS},
    params={
        "dry_run": dry_run_param("what would be done"),
        "topic": optional_topic_param(
            None, "Only this topic, also one that was deleted; empty: all, and the internal ones"
        ),
        "partition": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            maximum=1_000_000,
            description="Only this partition of the topic; empty: all",
        ),
        "target_mib": Param(
            64,
            type="number",
            exclusiveMinimum=0,
            maximum=1_024,
            description="compact: merge up to about this size; three such files fit the worker's memory",
        ),
        "min_files": Param(
            8,
            type="integer",
            minimum=2,
            maximum=1_000,
            description="compact: leave fewer small neighbours alone",
        ),
        "dirty_ratio": Param(
            None,
            type=["null", "number"],
            minimum=0,
            maximum=1,
            description="compact: go by key once this part of a partition's bytes is new (topics with "
            "cleanup.policy=compact); 0: always; empty: as the topic's min.cleanable.dirty.ratio says",
        ),
        "engine": Param(
            "auto",
            type="string",
            enum=["auto", "local", "spark"],
            description="compact: who reads keys and makes files: the task's own process, Spark, or Spark for a "
            "partition of more than spark_above records or 128 GB; it is started when it is needed",
        ),
        "spark_above": Param(
            1_000_000_000,
            type="integer",
            minimum=0,
            maximum=10**15,
            description="compact, engine auto: so many records of a partition are the task's own, more are Spark's",
        ),
        "entries_days": days_param(
            "entries_days",
            7,
            "retain: keep entries so long after a snapshot holds them; at least orphan_days",
        ),
        "orphan_days": days_param(
            "orphan_days",
            7,
            "clean: delete a file without an entry once its upload began so long ago; its writer is refused from "
            "then on",
        ),
        "group_offsets_days": days_param(
            "group_offsets_days",
            None,
            "Forget group offsets committed longer ago than this (of the topic and partition, where they are named); "
            "empty: as the store's offsets.retention.minutes says, by default never. A group that is forgotten starts "
            "again where auto_offset_reset says",
        ),
        "conn_id": conn_id_param(),
    },
    tags=["txn-engine", "maintenance"],
)
def txn_maintain() -> None:
    """One job after the other, each also after one that failed, if only the params can be meant; the last task is what
    makes a run red or green.
    """

    @task(multiple_outputs=False, trigger_rule=TriggerRule.ALL_SUCCESS)
    def check_params(params: dict | None = None):
        from txn_engine_airflow import maintenance

        maintenance.check_params(params)

    @task(multiple_outputs=False)
    def publish_tables(params: dict | None = None):
        from txn_engine_airflow import maintenance

        return maintenance.publish_tables(params, announce)

    @task(multiple_outputs=False)
    def compact(params: dict | None = None):
        from txn_engine_airflow import maintenance

        return maintenance.compact(params, announce)

    @task(multiple_outputs=False)
    def retain(params: dict | None = None):
        from txn_engine_airflow import maintenance

        return maintenance.retain(params, announce)

    @task(multiple_outputs=False)
    def seal(params: dict | None = None):
        from txn_engine_airflow import maintenance

        return maintenance.seal(params, announce)

    @task(multiple_outputs=False)
    def expire_producers(params: dict | None = None):
        from txn_engine_airflow import maintenance

        return maintenance.expire_producers(params, announce)

    @task(multiple_outputs=False)
    def clean(params: dict | None = None):
        from txn_engine_airflow import maintenance

        return maintenance.clean(params, announce)

    @task(multiple_outputs=False)
    def remove_deleted_topics(params: dict | None = None):
        from txn_engine_airflow import maintenance

        return maintenance.remove_deleted_topics(params, announce)

    @task(multiple_outputs=False)
    def expire_group_offsets(params: dict | None = None):
        from txn_engine_airflow import maintenance

        return maintenance.expire_group_offsets(params)

    # A run is as red as its last task: this one is not run where any before it failed.
    @task(multiple_outputs=False, trigger_rule=TriggerRule.NONE_FAILED)
    def all_done():
        return "every job did what was due"

    # Only the last job may skip: Airflow skips a task with ALL_DONE_MIN_ONE_SUCCESS where any upstream was skipped.
    jobs = [
        publish_tables(),
        compact(),
        retain(),
        seal(),
        expire_producers(),
        clean(),
        remove_deleted_topics(),
        expire_group_offsets(),
    ]
    check_params() >> jobs  # its success is the one that each job needs
    chain(*jobs)
    jobs >> all_done()


txn_maintain()
