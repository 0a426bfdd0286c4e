"""The engine of a data source: Spark makes it anew in each of its processes, from the options alone."""

from __future__ import annotations

from txn_engine.engine import Engine, connect
from txn_engine.spark.session import check_spark_url
from txn_engine.spark.source.options import StoreOptions


def open_engine(store: StoreOptions) -> Engine:
    """Whoever opens it closes it. Raises for a store in memory, which is of one process."""
    check_spark_url(store.url)
    return connect(store.url, endpoint=store.endpoint)
