"""A Spark session that can read and write a store, from nothing but the store's URL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from storage import BucketStore, is_remote, open_store
from txn_engine.engine import URL_VARIABLE
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.spark.errors import SparkSessionError, reason
from txn_engine.spark.jars import jar_settings
from txn_engine.spark.java import find_java_home
from txn_engine.spark.transfer import QUICK_TRANSFER

DEFAULT_MASTER = "local[2]"

SHORT_JOB = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""`extra` for a session that lives for a minute or two on few cores: 7 s of processor time less of compiling, scans of
millions of rows slower.
"""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # Never a job just for looking files up: one task a path takes 20 s for 2,000 of them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    **QUICK_TRANSFER,
}
# What opening a file costs, in bytes that could be read meanwhile: with Spark's 4 MB, 1,800 small files are 57 tasks.
_OPEN_COST_BYTES_LOCAL = 128 * 1024
_OPEN_COST_BYTES_REMOTE = 1024 * 1024
_LOG_TAIL_BYTES = 20_000
_REASON_CHARS_MAX = 300


def spark_session(
    url: str | os.PathLike[str] | None = None,
    *,
    app_name: str = "txn-engine",
    master: str = DEFAULT_MASTER,
    extra: Mapping[str, str] | None = None,
    log_path: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A session fit for the store at `url` (else the environment's TXN_ENGINE_URL): the running one, else a new one.

    Nothing of it listens anywhere but on 127.0.0.1. For a bucket that a connector of Hadoop's reads it brings its jars
    (fetched once into `TXN_ENGINE_CACHE`); endpoint and credentials are set by the read itself, in memory only. What
    Spark itself keeps in a bucket of that server, such as a query's checkpoint, it opens by the endpoint and the
    credentials of the environment as it was when the session began.
    `extra`: Spark settings of your own, stronger than ours; a running session takes those that can change. `log_path`:
    a file for what Spark says, instead of standard error.

    Raises:
        JavaNotFoundError: no Java of version 17 or later.
        SparkSessionError: Spark did not start, one is running that lacks the connector's jars, or these did not come.
    """
    wanted = os.fspath(url) if url is not None else os.environ.get(URL_VARIABLE, "")
    check_spark_url(wanted)
    if SparkContext._active_spark_context is None:
        _start(app_name, master, _settings(wanted, extra), log_path)
    builder = SparkSession.builder.appName(app_name)
    for name, value in (extra or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_spark_url(url: str) -> None:
    """Raise for a store that other processes cannot open."""
    if url.startswith("memory:"):
        raise InvalidRequestError(
            "a store in memory",
            actor="spark",
            place=url,
            expected="a folder or a bucket: Spark's workers are other processes and cannot see it",
            reason=Reason.STORE_IN_MEMORY,
        )


def _settings(url: str, extra: Mapping[str, str] | None) -> dict[str, str]:
    remote = is_remote(url)
    settings = dict(_SETTINGS)
    settings["spark.sql.files.openCostInBytes"] = str(
        _OPEN_COST_BYTES_REMOTE if remote else _OPEN_COST_BYTES_LOCAL
    )
    own = dict(extra or {})
    if jars := jar_settings(url):
        own["spark.jars"] = ",".join(filter(None, (jars["spark.jars"], own.get("spark.jars"))))
        settings |= _server_settings(url)
    return settings | own


def _server_settings(url: str) -> dict[str, str]:
    """Where the store's server is, for what Spark itself keeps in a bucket, such as a query's checkpoint. No secret."""
    store = open_store(url)
    try:
        found = store.hadoop_session_settings() if isinstance(store, BucketStore) else {}
    finally:
        store.close()
    return {f"spark.hadoop.{name}": value for name, value in found.items()}


def _start(
    app_name: str, master: str, settings: Mapping[str, str], log_path: str | os.PathLike[str] | None
) -> None:
    """Start the JVM and a context in it; the environment is as it was afterwards."""
    conf = SparkConf().setMaster(master).setAppName(app_name)
    for name, value in settings.items():
        conf.set(name, value)
    log = None if log_path is None else Path(log_path).open("ab")  # noqa: SIM115 -- Spark keeps it open
    begin = 0 if log is None else log.tell()
    defaults = {"JAVA_HOME": str(find_java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    if "PYSPARK_PYTHON" not in os.environ:
        defaults["PYSPARK_PYTHON"] = sys.executable  # workers run what the driver runs
    try:
        with _environment(defaults):
            streams = {} if log is None else {"stdout": log, "stderr": subprocess.STDOUT}
            if SparkContext._gateway is None:
                SparkContext._ensure_initialized(gateway=_launch(conf, streams), conf=conf)
            SparkContext(conf=conf)
    except (PySparkException, Py4JError, OSError) as error:
        exited = isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED"
        said = _said(Path(log_path), begin) if exited and log_path is not None else reason(error)
        raise SparkSessionError(
            f"Spark did not start: {said}",
            actor="spark",
            place=None if log_path is None else str(log_path),
            action="read what Spark said",
        ) from error
    finally:
        if log is not None:
            log.close()


def _launch(conf: SparkConf, streams: Mapping[str, Any]) -> JavaGateway:
    gateway: JavaGateway = launch_gateway(conf, dict(streams))  # type: ignore[no-untyped-call]
    return gateway


def _said(log: Path, begin: int) -> str:
    """What a JVM said that ended at once: the line that begins to tell, and the next one, which often goes on."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begin, size - _LOG_TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("at ")]
    telling = (number for number, line in enumerate(lines) if line.startswith("Error") or "Exception" in line)
    first = next(telling, max(len(lines) - 2, 0))
    return " ".join(" ".join(lines[first : first + 2]).split())[:_REASON_CHARS_MAX]


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
