"""
### Consumes a topic with Spark, exactly once

**What it does.** Reads what is committed in `topic` between the position of `group_id` and the last stable
offset, applies `transform` (a function of a Spark DataFrame), and writes the result to `output_topic`. Output
and the group's new position are committed in one transaction of `transactional_id`: either both are there, or
neither. The transaction carries the id of this DAG run, so that a try whose reply was lost is recognised by
the next one. When new output was committed, the task emits an event of the output topic's asset
(`txn-engine://<bucket or path>/<topic>`) with the offsets it stands for.

With the store named in the environment (`TXN_ENGINE_URL` or `AIRFLOW_CONN_TXN_ENGINE_DEFAULT`, for the DAG
processor too) an event of the asset of `payments` starts it; else it is started by hand or by another DAG.

**Retries and overlaps are safe.** A killed run leaves an open transaction that nobody sees, and data files
that no reader finds; the next run reads the same range again. Of two runs over the same range one commits,
the other is refused.

**When to worry.**

- *`OFFSETS_MOVED`:* another run of the same group was faster. Its output is there, this one's is not. The
  retry goes on from where that one ended.
- *`OFFSETS_PENDING` or `UNSTABLE_OFFSET_COMMIT` for longer than a transaction's timeout:* a run died between
  output and decision, and `txn_coordinator_sweep` has not ended it. Is that DAG green?
- *`PRODUCER_FENCED`:* somebody else uses the same `transactional_id` at the same time. Give each job its own.
- *Green, but the group's lag in `txn_compute_lso` grows:* it is started too seldom, or readers are held back
  there.

**What to do.**

    txn-engine groups describe GROUP                    position, pending commits, lag
    txn-engine transactions describe ID                 the job's transaction, its partitions, since when
    txn-engine doctor                                   the store, the credentials, Java
    txn-engine groups reset-offsets GROUP --topic TOPIC --to-earliest --execute
                                                        reads a range again; its output is then there twice

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. `transform` names code that runs with
the worker's rights: who may trigger this DAG may run any function that the worker can import.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import AssetAlias, Param, dag, get_current_context, task

from txn_engine_airflow import topic_schedule

INPUT_TOPIC = "payments"
OUTPUT = AssetAlias("txn_spark_consume")  # which topic's asset it is, the run's params say


@dag(
    dag_id="txn_spark_consume",
    description="Spark job: committed records in, output and offsets out in one transaction",
    doc_md=__doc__,
    schedule=topic_schedule(INPUT_TOPIC),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=6),
    default_args={
        "owner": "txn-engine",
        "retries": 3,
        "retry_delay": timedelta(seconds=60),
        "execution_timeout": timedelta(hours=2),
    },
    params={
        "topic": Param(INPUT_TOPIC, type="string", minLength=1, description="The topic to read"),
        "group_id": Param(
            "balances", type="string", minLength=1, description="The group whose position moves"
        ),
        "output_topic": Param("balances", type="string", minLength=1, description="Where the result goes"),
        "transactional_id": Param(
            "balances", type="string", minLength=1, maxLength=1000, description="One for each job"
        ),
        "transform": Param(
            "txn_engine.spark.balances:balances",
            type="string",
            pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
            description="module:function, from the input's DataFrame to the output's",
        ),
        "spark_settings": Param({}, type="object", description="Spark settings, such as spark.master"),
        "conn_id": Param("txn_engine_default", type="string", description="Airflow connection of the store"),
    },
    tags=["txn-engine", "spark"],
)
def txn_spark_consume() -> None:
    """One task: a transaction has one owner."""

    @task(multiple_outputs=False, outlets=[OUTPUT])
    def consume(params: dict[str, str] | None = None):
        from txn_engine_airflow.consume import consume_with_spark

        context = get_current_context()
        return consume_with_spark(
            params,
            run_id=f"{context['dag_run'].dag_id} {context['dag_run'].run_id}",
            emit=context["outlet_events"][OUTPUT].add,
        )

    consume()


txn_spark_consume()
