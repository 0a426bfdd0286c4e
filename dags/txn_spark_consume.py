"""
### Consumes a topic with Spark, exactly once

**What it does.** `wait_for_records` waits, in the triggerer and for at most `wait_s`, until `topic` has committed
records behind the position of `group_id`; where none come the run ends there, skipped (an error is red, as anywhere).
`consume` reads them up to the last stable offset, applies `transform` (a function of a Spark DataFrame), and writes the
result to `output_topic`. Output and the group's new position are committed in one transaction of `transactional_id`:
either both are there, or neither. The transaction carries the run, so that a try whose reply was lost is recognised by
the next one. When new output was committed, the task emits an event of the output topic's asset
(`txn-engine://<bucket or path>/<topic>`) with the offsets it stands for, which starts `txn_verify_exactly_once`.

An event of the topic `payments` starts it: of an operator that wrote through the connection `txn_engine_default`, of
the topic's asset where the environment names the store, and of the watch in the triggerer that looks for records
of anybody else, which goes on telling while the group does not move. It can be started by hand as well; with
`dry_run` `wait_for_records` says in its log and its XCom which records would be read, and nothing is written.

**Checks vote before the commit.** Where the deployment names suites of Great Expectations (`TXN_ENGINE_SUITES`), the
output is held against `checks` once it is uploaded and before anything names it. A critical check that fails or cannot
be made leaves nothing to be seen, and the group where it was.

**Retries and overlaps are safe.** A killed run leaves an open transaction that nobody sees, and data files
that no reader finds; the next run reads the same range again. Of two runs over the same range one commits,
the other is refused.

**When to worry.**

- *`OFFSETS_MOVED`:* another run of the same group was faster. Its output is there, this one's is not. The
  retry goes on from where that one ended.
- *`OFFSETS_PENDING` or `UNSTABLE_OFFSET_COMMIT` for longer than a transaction's timeout:* a run died between
  output and decision, and `txn_coordinator_sweep` has not ended it. Is that DAG green?
- *`CHECKS_FAILED`:* the output broke a check. Nothing of it is visible, and the next run reads the same records. The
  line names checks, counts and the report, which lies on the worker, for its user alone.
- *`CHECKS_ERRORED`:* a check could not be made, which says nothing of the data; it is tried again.
- *`PRODUCER_FENCED`:* somebody else uses the same `transactional_id` at the same time. Give each job its own.
- *Green, but the group's lag in `txn_compute_lso` grows:* it is started too seldom, or readers are held back
  there.

**What to do.**

    txn-engine groups describe GROUP                    position, pending commits, lag
    txn-engine transactions describe ID                 the job's transaction, its partitions, since when
    txn-engine doctor                                   the store, the credentials, Java
    txn-engine groups reset-offsets GROUP --topic TOPIC --to-earliest --execute
                                                        reads a range again; its output is then there twice

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. `topic`, `group_id`, `output_topic`,
`transactional_id`, `transform`, `checks`, `spark_settings` and `conn_id` are held against what the deployment permits
(docs/operations.md, "What params may name") before Spark starts; master, jars and Java's options are the deployment's
alone.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Context, Param, dag
from airflow.sdk.exceptions import AirflowSkipException

from txn_engine_airflow.alerts import on_run_failure
from txn_engine_airflow.assets import CONSUMED_ALIAS, topic_schedule
from txn_engine_airflow.dag_defaults import (
    START,
    checks_param,
    conn_id_param,
    dry_run_param,
    fields_from_params,
    job_param,
    job_tasks,
    spark_settings_param,
    transform_param,
)
from txn_engine_airflow.deployment import OWN_JOB, OWN_TRANSFORM
from txn_engine_airflow.operators import TxnSparkConsumeOperator
from txn_engine_airflow.sensors import NewRecordsSensor
from txn_engine_airflow.watchers import watched_topic

TOPIC, GROUP, OUTPUT_TOPIC = (OWN_JOB[param] for param in ("topic", "group_id", "output_topic"))

wait_fields = fields_from_params(topic="topic", group_id="group_id", timeout="wait_s", conn_id="conn_id")
consume_fields = fields_from_params(
    topic="topic",
    group_id="group_id",
    output_topic="output_topic",
    transactional_id="transactional_id",
    transform="transform",
    spark_settings="spark_settings",
    checks="checks",
    conn_id="conn_id",
)


def prepare_wait(context: Context) -> None:
    """The run's params; a dry run looks once, and waits for nothing."""
    wait_fields(context)
    if context["params"]["dry_run"]:
        context["task"].timeout = 0


def prepare_consume(context: Context) -> None:
    """The run's params; a dry run ends here."""
    consume_fields(context)
    if context["params"]["dry_run"]:
        raise AirflowSkipException("a dry run: wait_for_records says what would be read; nothing was written")


@dag(
    dag_id="txn_spark_consume",
    description="Spark job: committed records in, output and offsets out in one transaction",
    doc_md=__doc__,
    schedule=topic_schedule(TOPIC) | watched_topic(TOPIC, group_id=GROUP),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=12),
    on_failure_callback=on_run_failure,
    default_args=job_tasks(minutes=120, retries=3, retry_delay_s=60),
    params={
        "topic": job_param("topic", "The topic to read"),
        "group_id": job_param("group_id", "The group whose position moves"),
        "output_topic": job_param("output_topic", "Where the result goes"),
        "transactional_id": job_param("transactional_id", "One for each job"),
        "transform": transform_param(),
        "spark_settings": spark_settings_param(),
        "checks": checks_param(),
        "wait_s": Param(
            600,
            type="integer",
            minimum=0,
            maximum=36_000,
            description="How long to wait for records where there are none yet; 0: only look",
        ),
        "conn_id": conn_id_param(),
        "dry_run": dry_run_param("which records would be read: from where to where, and how many"),
    },
    tags=["txn-engine", "spark"],
)
def txn_spark_consume() -> None:
    """Wait for something to do; then one task, for a transaction has one owner."""
    wait_for_records = NewRecordsSensor(
        task_id="wait_for_records",
        topic=TOPIC,
        group_id=GROUP,
        soft_fail=True,
        pre_execute=prepare_wait,
    )
    consume = TxnSparkConsumeOperator(
        task_id="consume",
        topic=TOPIC,
        group_id=GROUP,
        output_topic=OUTPUT_TOPIC,
        transform=OWN_TRANSFORM,
        outlets=[CONSUMED_ALIAS],
        pre_execute=prepare_consume,
    )
    wait_for_records >> consume


txn_spark_consume()
