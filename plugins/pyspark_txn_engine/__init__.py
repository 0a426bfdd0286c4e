"""Spark looks into packages of this kind of name for data sources: `format("txn_engine")` needs no registration."""

from txn_engine.spark.source import TxnEngineSource as DefaultSource

__all__ = ["DefaultSource"]
