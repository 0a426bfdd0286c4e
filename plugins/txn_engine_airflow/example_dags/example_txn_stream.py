"""
### Follows a topic with Spark, a bounded piece after the other

Each run reads what was committed since the last one, in micro-batches of at most 100,000 records, and ends
(`availableNow`). What a micro-batch writes and the group's new position are committed in one transaction, so a run that
is killed, retried or cleared writes nothing twice. Where the query came to is in the store, not in a checkpoint: each
run makes a temporary one, and may be run by any worker.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import dag, task

from txn_engine_airflow import NewRecordsSensor, TxnEngineHook

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txn_engine.spark import StreamBatch

PAYMENTS, LARGE, GROUP = "example_payments", "example_large_payments", "example_stream"


def large_ones(payments: DataFrame, _batch: StreamBatch) -> DataFrame:
    """The payments that somebody is to look at."""
    return payments.where("amount >= 2").select("account_id", "amount")


@dag(
    dag_id="example_txn_stream",
    description="A Spark stream that ends when it has all, again and again",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"owner": "txn-engine", "retries": 2},
    tags=["txn-engine", "example"],
)
def example_txn_stream() -> None:
    """Wait, then follow."""
    new_payments = NewRecordsSensor(
        task_id="new_payments", topic=PAYMENTS, group_id=GROUP, poke_interval=5, timeout=3_600
    )

    @task
    def make_topic() -> None:
        import pyarrow as pa

        with TxnEngineHook().engine() as engine:
            if LARGE not in engine.admin.list_topics():
                columns: dict[str, pa.DataType] = {"account_id": pa.int64(), "amount": pa.decimal128(18, 2)}
                engine.admin.create_topic(LARGE, partitions=2, schema=pa.schema(columns), key="account_id")

    @task
    def follow() -> int:
        from txn_engine.spark import spark_session, stream_topic

        with TxnEngineHook().engine() as engine:
            records = 0

            def each(payments: DataFrame, batch: StreamBatch) -> DataFrame:
                nonlocal records
                records += batch.record_count
                return large_ones(payments, batch)

            spark = spark_session(engine.url)
            try:
                query = stream_topic(
                    spark,
                    engine,
                    PAYMENTS,
                    each=each,
                    transactional_id="example_txn_stream/follow",
                    group_id=GROUP,
                    output_topic=LARGE,
                    max_offsets_per_trigger=100_000,
                    trigger={"availableNow": True},
                )
                query.awaitTermination()
            finally:
                spark.stop()
        return records

    [make_topic(), new_payments] >> follow()


example_txn_stream()
