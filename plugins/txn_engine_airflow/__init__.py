"""What the DAGs stand on: the connection to a store, its assets, and the body of each task.

Importing this package is cheap: the engine, Spark and Great Expectations are imported inside the calls that need them.
"""

from txn_engine_airflow.assets import topic_asset, topic_schedule
from txn_engine_airflow.connection import DEFAULT_CONN_ID, StoreConnection
from txn_engine_airflow.hook import open_engine

__all__ = ["DEFAULT_CONN_ID", "StoreConnection", "open_engine", "topic_asset", "topic_schedule"]
