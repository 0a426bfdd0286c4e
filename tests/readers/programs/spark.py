"""A Spark of this environment, with its jars."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession


def session(**settings: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("readers")
    fixed = {
        "spark.jars": os.environ["READER_JARS"],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in {**fixed, **settings}.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    return found
