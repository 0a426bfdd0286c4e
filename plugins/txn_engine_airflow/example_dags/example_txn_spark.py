"""
### Waits for payments, and sums them up with Spark

`new_payments` waits, in the triggerer, until there is something committed that the group has not read; then Spark reads
exactly that, and its result and the group's new position are committed in one transaction. `CHECKS` vote on the result
before: they are a plain dict, so that parsing this file does not import Great Expectations.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import dag, task

from txn_engine_airflow import NewRecordsSensor, TxnEngineHook, TxnSparkConsumeOperator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAYMENTS, BALANCES, GROUP = "example_payments", "example_spark_balances", "example_spark"
CHECKS = {
    "name": "balances",
    "expectations": [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "account_id"}},
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "account_id"}},
    ],
}


def sum_up(payments: DataFrame) -> DataFrame:
    """What each account got."""
    from pyspark.sql import functions as sf

    total = sf.sum("amount").cast("decimal(18, 2)").alias("amount")
    return payments.groupBy("account_id").agg(total)


@dag(
    dag_id="example_txn_spark",
    description="Spark consume job behind a sensor that holds no worker",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"owner": "txn-engine", "retries": 2},
    tags=["txn-engine", "example"],
)
def example_txn_spark() -> None:
    """Wait, then consume."""
    new_payments = NewRecordsSensor(
        task_id="new_payments", topic=PAYMENTS, group_id=GROUP, poke_interval=5, timeout=3_600
    )

    @task
    def make_topic() -> None:
        import pyarrow as pa

        with TxnEngineHook().engine() as engine:
            if BALANCES not in engine.admin.list_topics():
                columns: dict[str, pa.DataType] = {"account_id": pa.int64(), "amount": pa.decimal128(18, 2)}
                engine.admin.create_topic(BALANCES, partitions=2, schema=pa.schema(columns), key="account_id")

    consume = TxnSparkConsumeOperator(
        task_id="sum_up",
        topic=PAYMENTS,
        group_id=GROUP,
        output_topic=BALANCES,
        transform=sum_up,
        checks=CHECKS,
    )
    [make_topic(), new_payments] >> consume


example_txn_spark()
