"""Operators: tasks that produce to, consume from, cut and mend a store, exactly once however often they are run."""

from txn_engine_airflow.operators.abort import TxnAbortOperator
from txn_engine_airflow.operators.consume import TxnConsumeOperator
from txn_engine_airflow.operators.cut import TxnCutOperator
from txn_engine_airflow.operators.produce import TxnProduceOperator
from txn_engine_airflow.operators.spark_consume import TxnSparkConsumeOperator

__all__ = [
    "TxnAbortOperator",
    "TxnConsumeOperator",
    "TxnCutOperator",
    "TxnProduceOperator",
    "TxnSparkConsumeOperator",
]
