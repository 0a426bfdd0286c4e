"""stream_topic is killed at every step of a micro-batch: each record is written once, however often it
restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark import dying_topic_stream
from tests.spark.dying_topic_stream import STEPS
from tests.spark.kills import kill_a_stream
from txn_engine.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.shard("kills")
@pytest.mark.parametrize(
    ("victim", "steps"),
    [("jvm", STEPS), ("driver", STEPS), ("worker", ("working",))],
    ids=["jvm", "driver", "worker"],
)
def test_at_every_step(
    spark: SparkSession, ledger: Engine, tmp_path: Path, victim: str, steps: tuple[str, ...]
) -> None:
    """The query is killed at every step from the plan to Spark's own note of the commit. Only tasks run in a
    worker; the driver does everything else."""
    kill_a_stream(dying_topic_stream, [(step, victim) for step in steps], ledger, tmp_path)
