"""The JVM that PySpark leaves behind in a test process."""

from __future__ import annotations

import sys


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
