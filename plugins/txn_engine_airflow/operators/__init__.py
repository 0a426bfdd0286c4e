"""Operators: tasks that produce to, consume from and mend a store, exactly once however often Airflow runs them."""

from txn_engine_airflow.operators.abort import TxnAbortOperator
from txn_engine_airflow.operators.consume import TxnConsumeOperator
from txn_engine_airflow.operators.produce import TxnProduceOperator
from txn_engine_airflow.operators.spark_consume import TxnSparkConsumeOperator

__all__ = ["TxnAbortOperator", "TxnConsumeOperator", "TxnProduceOperator", "TxnSparkConsumeOperator"]
