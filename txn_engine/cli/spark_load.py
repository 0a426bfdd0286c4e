"""`txn-engine produce --engine spark`: files that Spark lists and its executors read, into a topic."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from txn_engine.cli.command import Place
from txn_engine.cli.output import Output
from txn_engine.cli.produced import tell_committed_before, tell_produced


def load_by_spark(
    place: Place,
    out: Output,
    topic: str,
    paths: Sequence[str],
    transactional_id: str | None,
    run_id: str,
    timeout_s: int,
    spark_conf: Sequence[str],
    reading: dict[str, Any],
) -> None:
    """Load them in one transaction of the run, and say where the records went."""
    settings = _settings(spark_conf)
    name = transactional_id or f"load-files/{topic}"
    place.to_environment()
    with place.open() as engine, tempfile.TemporaryDirectory(prefix="txn-engine-spark-") as folder:
        engine.admin.describe_topic(topic)  # refused before a JVM is started
        from txn_engine.spark import load_files, spark_session

        with out.progress("starting Spark"):
            spark = spark_session(
                engine.url,
                app_name=f"txn-engine produce {topic}",
                extra=settings,
                log_path=Path(folder, "spark.log"),
            )
        try:
            with out.progress("loading by Spark"):
                limit_ms = engine.config.limits.max_transaction_timeout_ms
                result = load_files(
                    spark,
                    engine,
                    topic,
                    list(paths),
                    run_id=run_id,
                    transactional_id=name,
                    transaction_timeout_ms=min(timeout_s * 1_000, limit_ms),
                    **reading,
                )
        finally:
            spark.stop()
    if result.already_committed:
        tell_committed_before(out, name, run_id)
    else:
        tell_produced(out, result.batches, transactional_id=name, run_id=run_id, committed_before=False)


def _settings(given: Sequence[str]) -> dict[str, str]:
    settings = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.UsageError("--spark-conf takes a setting of Spark's, such as spark.master=local[4]")
        settings[name] = value
    return settings
