"""The streaming sink is killed at every step of a micro-batch: each record is written once, however often it
restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark import dying_source, dying_stream
from tests.spark.kills import kill_a_stream
from txn_engine.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]


def test_before_the_decision(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """The process that commits is killed when a micro-batch is uploaded but not decided. The next run writes the batch
    once. The shard kills Spark's JVM and the driver as well.
    """
    kill_a_stream(dying_stream, [("undecided", "worker")], ledger, tmp_path)


@pytest.mark.shard("spark")
@pytest.mark.parametrize("victim", ["jvm", "driver", "worker"])
def test_at_every_step(spark: SparkSession, ledger: Engine, tmp_path: Path, victim: str) -> None:
    """The sink is killed at every step from the plan to Spark's own note of the commit."""
    steps = [(step, victim) for step in dying_source.STEPS]
    kill_a_stream(dying_stream, steps, ledger, tmp_path)
