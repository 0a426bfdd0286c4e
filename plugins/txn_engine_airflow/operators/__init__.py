"""Operators: tasks that produce to, consume from, cut and mend a store, exactly once however often they are run."""

from txn_engine_airflow.operators.abort import TxnAbortOperator
from txn_engine_airflow.operators.consume import TxnConsumeOperator
from txn_engine_airflow.operators.cut import TxnCutOperator
from txn_engine_airflow.operators.from_postgres import PostgresToTxnOperator
from txn_engine_airflow.operators.produce import TxnProduceOperator
from txn_engine_airflow.operators.spark_consume import TxnSparkConsumeOperator
from txn_engine_airflow.operators.to_postgres import TxnToPostgresOperator

__all__ = [
    "PostgresToTxnOperator",
    "TxnAbortOperator",
    "TxnConsumeOperator",
    "TxnCutOperator",
    "TxnProduceOperator",
    "TxnSparkConsumeOperator",
    "TxnToPostgresOperator",
]
