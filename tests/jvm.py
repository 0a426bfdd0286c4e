"""The JVM that PySpark leaves behind in a test process."""

from __future__ import annotations


def is_running() -> bool:
    """Whether this process has one."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def end() -> None:
    """End it: one that was started without the S3A jars serves no later test that needs them."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
        SparkContext._gateway = SparkContext._jvm = None
