"""A Spark session for the length of a command, with the settings that it was given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from txn_engine.cli.failures import Misuse
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_settings(given: Sequence[str]) -> dict[str, str]:
    """What `--spark-conf` says, by name. Raises `Misuse`, a usage error."""
    settings = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise Misuse(
                "--spark-conf takes a setting of Spark's, such as spark.master=local[4]",
                reason=Reason.NOT_A_SPARK_SETTING,
            )
        settings[name] = value
    return settings


@contextmanager
def spark_of_command(url: str, app_name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session that ends with the block; what Spark says goes into a file that goes with it."""
    from txn_engine.spark import spark_session

    with tempfile.TemporaryDirectory(prefix="txn-engine-spark-") as folder:
        spark = spark_session(url, app_name=app_name, extra=settings, log_path=Path(folder, "spark.log"))
        try:
            yield spark
        finally:
            spark.stop()
