"""
### Loads files into a topic, each once

One part of the mapped task for each file, each with a transactional id of its own: `example_txn_load_files/load/` and
a digest of the path. Clear a part, retry it, run the whole date again, with a longer list too: nothing is loaded twice.
`check` waits until readers see every part.

Params: the files, as the workers see them (csv with a header line, jsonl or parquet; columns `account_id`, `amount`),
below a folder that the deployment names in TXN_ENGINE_INPUT_ROOTS. Params are what anybody writes who may trigger the
DAG, so the operator takes only files that the deployment permits.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import Param, dag, get_current_context, task

from txn_engine_airflow import TransactionFinalSensor, TxnEngineHook, TxnProduceOperator, topic_alias

TOPIC = "example_payments"


@dag(
    dag_id="example_txn_load_files",
    description="csv, jsonl or parquet files into a topic, each in one transaction of its own",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # parts of two runs with the same id would fence each other
    params={
        "files": Param(
            [],
            type="array",
            items={"type": "string"},
            description="Files to load, below a folder that TXN_ENGINE_INPUT_ROOTS names",
        )
    },
    tags=["txn-engine", "example"],
)
def example_txn_load_files() -> None:
    """Topic, load, check."""

    @task
    def make_topic() -> None:
        import pyarrow as pa

        with TxnEngineHook().engine() as engine:
            if TOPIC not in engine.admin.list_topics():
                columns: dict[str, pa.DataType] = {"account_id": pa.int64(), "amount": pa.decimal128(18, 2)}
                engine.admin.create_topic(TOPIC, partitions=2, schema=pa.schema(columns), key="account_id")

    @task
    def files() -> list[str]:
        asked: list[str] = get_current_context()["params"]["files"]
        return asked

    # The outlets of a mapped task are not the operator's own to add: they stand here.
    load = TxnProduceOperator.partial(
        task_id="load", topic=TOPIC, only_permitted_files=True, retries=2, outlets=[topic_alias(TOPIC)]
    ).expand(path=files())
    check = TransactionFinalSensor.partial(task_id="check", poke_interval=5, timeout=600).expand(
        transactional_id=load.output.map(lambda told: told["transactional_id"])
    )
    make_topic() >> load >> check


example_txn_load_files()
