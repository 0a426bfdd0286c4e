"""
### Produce, consume, and wait: exactly once from end to end

`load` makes payments and commits them in one transaction, named after the DAG run's logical date; it does so once for
each date. `sum_up` hands them to a function, batch by batch, and commits what that returns together with the position
of its group. `caught_up` waits in the triggerer until the group has everything that was committed, `cut` makes a cut of
both topics, and `compare` holds their sums against each other as of it, whatever is loaded meanwhile. `end_old_load`
aborts what a producer of another kind may have left open.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import dag, task

from txn_engine_airflow import (
    GroupCaughtUpSensor,
    TxnAbortOperator,
    TxnConsumeOperator,
    TxnCutOperator,
    TxnEngineHook,
    TxnProduceOperator,
)

if TYPE_CHECKING:
    import pyarrow as pa

PAYMENTS, BALANCES, GROUP = "example_payments", "example_balances", "example_balances"


def make_payments(accounts: int) -> pa.Table:
    """A payment for each account."""
    from decimal import Decimal

    import pyarrow as pa

    amounts = pa.array([Decimal("2.50")] * accounts, pa.decimal128(18, 2))
    return pa.table({"account_id": pa.array(range(accounts), pa.int64()), "amount": amounts})


def sum_up(payments: pa.Table) -> pa.Table:
    """What each account got in this batch."""
    import pyarrow.compute as pc

    sums = payments.group_by("account_id").aggregate([("amount", "sum")])
    amounts = pc.cast(sums.column("amount_sum"), payments.schema.field("amount").type)
    return sums.select(["account_id"]).append_column("amount", amounts)


@dag(
    dag_id="example_txn_pipeline",
    description="Payments in, balances out, with no record lost or doubled",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"owner": "txn-engine", "retries": 2},
    tags=["txn-engine", "example"],
)
def example_txn_pipeline() -> None:
    """Topics, then one after the other."""

    @task
    def make_topics() -> None:
        import pyarrow as pa

        columns: dict[str, pa.DataType] = {"account_id": pa.int64(), "amount": pa.decimal128(18, 2)}
        with TxnEngineHook().engine() as engine:
            for topic in {PAYMENTS, BALANCES} - set(engine.admin.list_topics()):
                engine.admin.create_topic(topic, partitions=2, schema=pa.schema(columns), key="account_id")

    load = TxnProduceOperator(
        task_id="load", topic=PAYMENTS, python_callable=make_payments, op_kwargs={"accounts": 100}
    )
    consume = TxnConsumeOperator(
        task_id="sum_up", topics=PAYMENTS, group_id=GROUP, python_callable=sum_up, output_topic=BALANCES
    )
    caught_up = GroupCaughtUpSensor(
        task_id="caught_up", topic=PAYMENTS, group_id=GROUP, poke_interval=5, timeout=600
    )
    cut = TxnCutOperator(task_id="cut", topics=[PAYMENTS, BALANCES], keep_days=1)

    @task
    def compare(number: int) -> str:
        import pyarrow.compute as pc

        with TxnEngineHook().engine() as engine:
            tables = [engine.scan(topic, cut=number).to_table(["amount"]) for topic in (PAYMENTS, BALANCES)]
        paid, summed = (pc.sum(table.column("amount")).as_py() for table in tables)
        if paid != summed:
            raise ValueError(f"as of cut {number}: {paid} was paid, {summed} summed up")
        return str(paid)

    end_old_load = TxnAbortOperator(task_id="end_old_load", transactional_id="example_old_load")
    make_topics() >> load >> consume >> caught_up >> cut
    compare(cut.output)  # type: ignore[arg-type]
    load >> end_old_load


example_txn_pipeline()
