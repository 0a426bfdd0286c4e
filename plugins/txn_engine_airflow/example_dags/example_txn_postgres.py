"""
### Payments from a Postgres outbox, through Spark, into balances in Postgres

Applications insert payments into the table `example_outbox` of the connection `postgres_default`, in transactions of
their own. `load` puts them into a topic, each once, and deletes them there; a row that does not fit the topic is a dead
letter beside them. `sum_up` reads what is new with Spark, and writes what each account got into another topic. `store`
adds that to the table `example_balances`. Kill a worker, clear a task, run a date again: each payment counts once.

    CREATE TABLE example_outbox (
        id bigserial PRIMARY KEY, account_id bigint, amount numeric, txn_engine_run text);
    CREATE INDEX ON example_outbox (txn_engine_run);

Step by step: docs/POSTGRES_PIPELINE.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import dag, task

from txn_engine_airflow import (
    PostgresToTxnOperator,
    TxnEngineHook,
    TxnSparkConsumeOperator,
    TxnToPostgresOperator,
)

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame

PAYMENTS, DEAD, SUMS = "example_shop_payments", "example_shop_payments_dead", "example_shop_sums"


def sum_by_account(payments: DataFrame) -> DataFrame:
    """What each account got in these payments."""
    from pyspark.sql import functions as sf

    total = sf.sum("amount").cast("decimal(18, 2)").alias("amount")
    return payments.groupBy("account_id").agg(total)


def add_to_balances(connection: psycopg.Connection[Any], sums: pa.Table) -> None:
    """Adding twice would be wrong: but the position in the topic is part of this transaction, so it is added once."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS example_balances"
            " (account_id bigint PRIMARY KEY, balance numeric NOT NULL)"
        )
        cursor.executemany(
            "INSERT INTO example_balances AS old VALUES (%(account_id)s, %(amount)s)"
            " ON CONFLICT (account_id) DO UPDATE SET balance = old.balance + excluded.balance",
            sums.select(["account_id", "amount"]).to_pylist(),
        )


@dag(
    dag_id="example_txn_postgres",
    description="A Postgres outbox into a topic, summed up by Spark, into balances in Postgres",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"owner": "txn-engine", "retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["txn-engine", "example"],
)
def example_txn_postgres() -> None:
    """Topics, load, sum up, store."""

    @task
    def make_topics() -> None:
        import pyarrow as pa

        from txn_engine.loading import DEAD_LETTERS

        columns: dict[str, pa.DataType] = {"account_id": pa.int64(), "amount": pa.decimal128(18, 2)}
        schema = pa.schema([pa.field(*column, nullable=False) for column in columns.items()])
        with TxnEngineHook().engine() as engine:
            known = set(engine.admin.list_topics())
            for topic in {PAYMENTS, SUMS} - known:
                engine.admin.create_topic(topic, partitions=2, schema=schema, key="account_id")
            if DEAD not in known:
                engine.admin.create_topic(DEAD, partitions=1, schema=DEAD_LETTERS)

    load = PostgresToTxnOperator(
        task_id="load",
        topic=PAYMENTS,
        outbox="example_outbox",
        dead_letter_topic=DEAD,
        max_dead_letters="5%",
    )
    sum_up = TxnSparkConsumeOperator(
        task_id="sum_up",
        topic=PAYMENTS,
        group_id="example_shop_spark",
        output_topic=SUMS,
        transform=sum_by_account,
    )
    store = TxnToPostgresOperator(
        task_id="store",
        topics=SUMS,
        group_id="example_to_postgres",
        python_callable=add_to_balances,
    )
    make_topics() >> load >> sum_up >> store


example_txn_postgres()
