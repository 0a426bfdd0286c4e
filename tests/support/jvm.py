"""The one JVM of Spark that a test process starts, and the options of the JVMs that its children start.

A session in a new JVM takes some 14 s of processor time until its first job is done. A session in a JVM that
has run one already takes 1 s. So all tests of a process that are marked `spark` share one JVM
(`tests/conftest.py`). Each test or package still makes a session of its own, and only the JVM outlives it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

REPOSITORY = Path(__file__).parents[2]
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_shared: list[JavaGateway] = []


def be_brief() -> None:
    """Let each Spark that this process or one of its children starts compile once and quickly.

    No such JVM lives for long, and half of its processor time went into optimizing code that ran for seconds.
    A session's own options come after these.

    If there is an archive of Spark's classes (`python -m tests.support.class_archive`), the JVM maps it
    instead of loading and checking 20,000 classes, which is half of the processor time of a session and its
    first jobs. A JVM ignores an archive that another Java or another Spark made.

    Python workers come from `tests/support/spark_python.py`, which imports once what each of them needs.
    """
    options = BRIEF
    if archive().is_file():
        options += f" -XX:SharedArchiveFile={archive()} -Xlog:cds=off -Xlog:cds+dynamic=off"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
    os.environ.setdefault("TXN_ENGINE_TEST_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", str(Path(__file__).with_name("spark-python")))


def archive() -> Path:
    """The archive of Spark's classes; it may not exist."""
    return Path(os.environ.get("TXN_ENGINE_CACHE") or REPOSITORY / ".cache", "spark-classes.jsa")


@contextmanager
def shared_jvm(log: Path) -> Iterator[None]:
    """Run one JVM for all sessions of this process until the block ends.

    It brings the jars of S3A, because a session for a folder may be the first one and a session for a bucket
    a later one. It has no other setting, because each option of a JVM would be a default of every session.
    Python workers get the environment of this moment, and all that Spark logs goes to `log`, whatever
    `log_path` a session is given. So a test of credentials in the environment or of a session's log starts
    its session in a child process.
    """
    from pyspark import SparkContext

    end_session()
    gateway = _start(log)
    SparkContext._ensure_initialized(gateway=gateway)
    _shared.append(gateway)
    try:
        yield
    finally:
        _shared.remove(gateway)
        end_session()


def end_session() -> None:
    """Stop the session that runs in this process, if any, and end its JVM unless that is the shared one."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway = SparkContext._gateway
    if gateway is None or gateway in _shared:
        return
    gateway.proc.stdin.close()  # the JVM ends where its input does
    gateway.proc.wait(timeout=30)
    gateway.shutdown()  # before, to close a connection on which a callback waits could wait for ever
    SparkContext._gateway = SparkContext._jvm = None


def let_queries_propagate() -> None:
    """Undo a change of PySpark, whose logger of failed queries stops propagating once a query has failed.

    pytest adds its handler to each such logger, and a logger of PySpark gives each handler a JSON format. So
    every later test would read JSON in `caplog.text`.
    """
    if "pyspark.logger" not in sys.modules:
        return
    from txn_engine.spark_query_log import FAILED_QUERIES

    for name in FAILED_QUERIES:
        if isinstance(logger := logging.root.manager.loggerDict.get(name), logging.Logger):
            logger.propagate = True


def _start(log: Path) -> JavaGateway:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    from txn_engine.spark.java import find_java_home

    conf = SparkConf(loadDefaults=False)
    for name, value in _s3a_jars().items():
        conf.set(name, value)
    environment = {"JAVA_HOME": str(find_java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    with mock.patch.dict(os.environ, environment), log.open("ab") as said:
        gateway = launch_gateway(conf, {"stdout": said, "stderr": subprocess.STDOUT})
    # The jars stay on the class path. As a setting, each session would copy them once more.
    gateway.jvm.java.lang.System.clearProperty("spark.jars")
    return gateway


def _s3a_jars() -> dict[str, str]:
    """The jars that set-up has fetched. Set-up goes on without them, and then only the tests of S3A fail."""
    from txn_engine.spark.errors import SparkSessionError
    from txn_engine.spark.jars import jar_settings

    try:
        return jar_settings("s3://none")
    except SparkSessionError:
        return {}
