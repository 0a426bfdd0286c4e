"""The JVMs of Spark that tests start, and the one that PySpark leaves behind in a test process."""

from __future__ import annotations

import os
import sys

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def be_brief() -> None:
    """Let each Spark that this process or one of its children starts compile once and quickly: none lives for long, and
    half of a JVM's processor time went into optimizing what ran for seconds. A session's own options come after these.
    """
    os.environ.setdefault("SPARK_SUBMIT_OPTS", BRIEF)


def is_running() -> bool:
    """Whether this process has one; PySpark is not imported to find out."""
    return "pyspark" in sys.modules and sys.modules["pyspark"].SparkContext._gateway is not None


def end() -> None:
    """End it, and the context in it: one that was started without the S3A jars serves no later test that needs them."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
        SparkContext._gateway = SparkContext._jvm = None
