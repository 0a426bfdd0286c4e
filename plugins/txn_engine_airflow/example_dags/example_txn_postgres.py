"""
### From a Postgres outbox into a topic, and from the topic into a Postgres table

Applications insert payments into the table `example_outbox` of the connection `postgres_default`, in transactions of
their own. `load` puts them into a topic, each once, and deletes them there; a row that does not fit the topic is a dead
letter beside them. `store` writes the topic into the table `example_payments`, each payment once. Kill a worker, clear
a task, run a date again: nothing is there twice, and nothing is missing.

    CREATE TABLE example_outbox (
        id bigserial PRIMARY KEY, account_id bigint, amount numeric, txn_engine_run text);
    CREATE INDEX ON example_outbox (txn_engine_run);
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import dag, task

from txn_engine_airflow import PostgresToTxnOperator, TxnEngineHook, TxnToPostgresOperator

PAYMENTS, DEAD = "example_shop_payments", "example_shop_payments_dead"


@dag(
    dag_id="example_txn_postgres",
    description="A Postgres outbox into a topic, and the topic into a Postgres table",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"owner": "txn-engine", "retries": 2},
    tags=["txn-engine", "example"],
)
def example_txn_postgres() -> None:
    """Topics, load, store."""

    @task
    def make_topics() -> None:
        import pyarrow as pa

        from txn_engine.loading import DEAD_LETTERS

        columns: dict[str, pa.DataType] = {"account_id": pa.int64(), "amount": pa.decimal128(18, 2)}
        with TxnEngineHook().engine() as engine:
            known = engine.admin.list_topics()
            if PAYMENTS not in known:
                engine.admin.create_topic(PAYMENTS, partitions=2, schema=pa.schema(columns), key="account_id")
            if DEAD not in known:
                engine.admin.create_topic(DEAD, partitions=1, schema=DEAD_LETTERS)

    load = PostgresToTxnOperator(
        task_id="load",
        topic=PAYMENTS,
        outbox="example_outbox",
        dead_letter_topic=DEAD,
        max_dead_letters="5%",
    )
    store = TxnToPostgresOperator(
        task_id="store",
        topics=PAYMENTS,
        group_id="example_to_postgres",
        table="example_payments",
        create=True,
    )
    make_topics() >> load >> store


example_txn_postgres()
