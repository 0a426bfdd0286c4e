"""A store of txn-engine in Airflow: connection and hook, operators, sensors, watchers, and what the DAGs are made of.

Importing this package imports nothing: Airflow asks it for the provider's description while it starts itself. What it
offers is imported at its first use, and the engine, Spark and Great Expectations inside the calls that need them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txn_engine_airflow.assets import topic_alias, topic_asset, topic_schedule
    from txn_engine_airflow.connection import DEFAULT_CONN_ID, StoreConnection
    from txn_engine_airflow.hook import TxnEngineHook, open_engine
    from txn_engine_airflow.operators import (
        PostgresToTxnOperator,
        TxnAbortOperator,
        TxnConsumeOperator,
        TxnCutOperator,
        TxnProduceOperator,
        TxnSparkConsumeOperator,
        TxnToPostgresOperator,
    )
    from txn_engine_airflow.sensors import GroupCaughtUpSensor, NewRecordsSensor, TransactionFinalSensor
    from txn_engine_airflow.watchers import watched_topic
else:
    _MODULES = {
        "assets": ("topic_alias", "topic_asset", "topic_schedule"),
        "connection": ("DEFAULT_CONN_ID", "StoreConnection"),
        "hook": ("TxnEngineHook", "open_engine"),
        "operators": (
            "PostgresToTxnOperator",
            "TxnAbortOperator",
            "TxnConsumeOperator",
            "TxnCutOperator",
            "TxnProduceOperator",
            "TxnSparkConsumeOperator",
            "TxnToPostgresOperator",
        ),
        "sensors": ("GroupCaughtUpSensor", "NewRecordsSensor", "TransactionFinalSensor"),
        "watchers": ("watched_topic",),
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

    def __getattr__(name: str) -> object:
        """Import what is asked for."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        except ModuleNotFoundError as error:
            # Only here, so that a DAG file imports nothing of the engine.
            from txn_engine.extras import imports_named

            with imports_named(__name__):
                raise error


__all__ = [
    "DEFAULT_CONN_ID",
    "GroupCaughtUpSensor",
    "NewRecordsSensor",
    "PostgresToTxnOperator",
    "StoreConnection",
    "TransactionFinalSensor",
    "TxnAbortOperator",
    "TxnConsumeOperator",
    "TxnCutOperator",
    "TxnEngineHook",
    "TxnProduceOperator",
    "TxnSparkConsumeOperator",
    "TxnToPostgresOperator",
    "open_engine",
    "topic_alias",
    "topic_asset",
    "topic_schedule",
    "watched_topic",
]
