"""stream_topic, killed at every step of a micro-batch: each record is written once, however often it restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark import dying_topic_stream
from tests.spark.kills import kill_at_every_step
from txn_engine.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.shard("spark")
def test_after_the_decision(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """The driver is killed when a micro-batch is decided, before Spark notes it. The next run does not repeat it."""
    kill_at_every_step(dying_topic_stream, [("decided", "driver")], ledger, tmp_path)


@pytest.mark.shard("spark")
@pytest.mark.parametrize("victim", ["jvm", "driver"])
def test_at_every_step(spark: SparkSession, ledger: Engine, tmp_path: Path, victim: str) -> None:
    """From the plan to Spark's own note of the commit. Only tasks run in a worker; the driver does everything else."""
    steps = [(step, victim) for step in dying_topic_stream.STEPS]
    if victim == "jvm":
        steps.append(("working", "worker"))
    kill_at_every_step(dying_topic_stream, steps, ledger, tmp_path)
