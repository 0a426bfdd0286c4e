"""What Spark's connector of Hadoop is told about a bucket: the same as the engine's own store was."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from storage import Backend, BucketStore, Hadoop, backend_of
from txn_engine.reasons import Reason
from txn_engine.spark.errors import SparkSessionError


def spark_scheme(scheme: str) -> str:
    """The scheme under which Spark finds what has a URL of this one."""
    backend = backend_of(f"{scheme}://")
    return backend.hadoop.scheme if backend is not None and backend.hadoop is not None else scheme


def spark_url(uri: str) -> str:
    """The URL of an object, or of a folder of them, as Spark takes it: a path as it is."""
    scheme, separator, rest = uri.partition("://")
    return f"{spark_scheme(scheme)}://{rest}" if separator else uri


def bucket_options(spark: SparkSession, store: BucketStore) -> dict[str, str]:
    """The options of one read of the bucket. They live in that DataFrame: neither the session nor another read of a
    bucket of this name, somewhere else or with other keys, gets at them.

    Hadoop keeps one connection a bucket *name* and JVM, whoever opened it. So the first connection of a name is kept,
    after one that may be there from elsewhere was closed; a read with other settings opens its own, file by file.
    Raises `SparkSessionError` for a session that was started without the connector's jars, and for a store for which
    there is no connector.
    """
    connector = _connector(store)
    jvm: Any = spark.sparkContext._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    _check_jars(jvm, hadoop, connector.scheme, store.url)
    options = store.hadoop_options()
    bucket = store.config.bucket
    mine = hashlib.sha256(json.dumps(sorted(options.items())).encode()).hexdigest()
    first = jvm.java.lang.System.getProperties().putIfAbsent(f"txn-engine.{connector.scheme}.{bucket}", mine)
    if first is None:
        _close_cached(jvm, hadoop, f"{connector.scheme}://{bucket}/", options)
    elif first != mine:
        options[f"fs.{connector.scheme}.impl.disable.cache"] = "true"
    return options


def _connector(store: BucketStore) -> Hadoop:
    if store.backend.hadoop is None:
        raise _no_connector(store.backend, store.url)
    return store.backend.hadoop


def _no_connector(backend: Backend, url: str) -> SparkSessionError:
    return SparkSessionError(
        f"Spark cannot open {backend.schemes[0]}:// by itself here",
        actor="spark",
        place=url,
        expected=f"a store that one of Spark's connectors opens; there is no connector for {backend.name} here",
        action='read topics with spark.read.format("txn_engine") (txn_engine.spark.register(spark)), which needs no '
        "connector, and keep checkpoints on a disk or in another bucket",
        reason=Reason.NO_CONNECTOR,
    )


def _close_cached(jvm: Any, hadoop: Any, url: str, options: dict[str, str]) -> None:
    """Close what the JVM keeps open for the bucket's name: somebody else opened it, with settings of his own."""
    settings = jvm.org.apache.hadoop.conf.Configuration(hadoop)
    for name, value in options.items():
        settings.set(name, value)
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(url), settings).close()


def check_readable(spark: SparkSession, url: str) -> None:
    """Raise `SparkSessionError` for a URL of a bucket that Spark cannot open by itself in this session; it is for Spark
    to judge any other URL.
    """
    backend = backend_of(url)
    if backend is None:
        return
    if backend.hadoop is None:
        raise _no_connector(backend, url)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    _check_jars(spark.sparkContext._jvm, hadoop, url.partition(":")[0], url)


def _check_jars(jvm: Any, hadoop: Any, scheme: str, url: str) -> None:
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)
    except Py4JJavaError as error:
        raise SparkSessionError(
            f"the Spark session has no {scheme.upper()} jars",
            actor="spark",
            place=url,
            expected="a session made by txn_engine.spark.spark_session(url) with this URL",
            action="stop the session that runs, or start it with txn_engine.spark.jars.jar_settings(url)",
            reason=Reason.NO_CONNECTOR_JARS,
        ) from error
