"""The engine behind a Spark call, and the store as executors open it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from storage import BucketStore, ObjectStore
from txn_engine.engine import Engine, connect
from txn_engine.spark.errors import SparkSessionError
from txn_engine.spark.hadoop import bucket_options
from txn_engine.spark.session import check_spark_url

UrlOrEngine = str | os.PathLike[str] | Engine


def is_connect(spark: object) -> bool:
    """Whether this is a session of Spark Connect."""
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(spark).__mro__)


def check_classic(spark: object, actor: str) -> None:
    """Raise `SparkSessionError` for a session of Spark Connect: plans are made in another process, where a client can
    neither name files nor choose what Spark is told of them.
    """
    if is_connect(spark):
        raise SparkSessionError(
            "a session of Spark Connect",
            actor=actor,
            expected="a classic session: spark_session()",
            action='on Spark Connect use spark.read.format("txn_engine") (txn_engine.spark.register(spark))',
        )


@contextmanager
def opened(url_or_engine: UrlOrEngine, **connect_kwargs: Any) -> Iterator[Engine]:
    """The engine given, left open; or one of the URL, for the length of the block. Refuses a store in memory."""
    if isinstance(url_or_engine, Engine):
        check_spark_url(url_or_engine.url)
        yield url_or_engine
        return
    url = os.fspath(url_or_engine)
    check_spark_url(url)
    with connect(url, **connect_kwargs) as engine:
        yield engine


def read_options(spark: SparkSession, store: ObjectStore) -> dict[str, str]:
    """The options of Spark's own reader for this store: a bucket's endpoint and credentials; for a folder none."""
    return bucket_options(spark, store) if isinstance(store, BucketStore) else {}


def store_for_executors(store: ObjectStore) -> ObjectStore:
    """A store that pickles to where the driver's points, with the credentials that the driver has now."""
    return store.with_credentials_of_now() if isinstance(store, BucketStore) else store
