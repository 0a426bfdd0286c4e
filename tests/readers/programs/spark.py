"""A Spark of this environment, with its jars."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

_running: list[tuple[SparkSession, dict[str, str]]] = []
"""The session of this process, if any, and the settings that it began with."""


def session(**settings: str) -> SparkSession:
    """A session with these settings.

    Programs that run in one process share its JVM. They share Spark's context too, and have a session each, unless
    they need another extension or file system: then the context is stopped, and a new one begins.
    """
    if _running:
        first, held = _running[0]
        if _fixed_in(held) == _fixed_in(settings):
            found = first.newSession()
            for name in settings.keys() - _fixed_in(settings).keys():
                found.conf.set(name, settings[name])
            return found
        _stop()
    found = _begun(settings)
    _running.append((found, settings))
    return found


def _fixed_in(settings: dict[str, str]) -> dict[str, str]:
    """The settings that a context keeps from its beginning."""
    return {
        name: value
        for name, value in settings.items()
        if name == "spark.sql.extensions" or name.startswith("spark.hadoop.")
    }


def _stop() -> None:
    """Stop the context. The JVM holds its settings as properties, and would give them to the next."""
    first, held = _running.pop()
    properties = first.sparkContext._jvm.java.lang.System
    first.stop()
    for name in held:
        properties.clearProperty(name)


def _begun(settings: dict[str, str]) -> SparkSession:
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
