"""stream_topic, killed at every step of a micro-batch: each record once, however often it is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark import dying_topic_stream
from tests.spark.kills import kill_at_every_step, of_the_day
from txn_engine.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow]


AROUND_THE_DECISION = (
    ("uploaded", "driver"),
    ("undecided", "jvm"),
    ("decided", "driver"),
    ("working", "worker"),
)


def test_around_the_decision(ledger: Engine, tmp_path: Path) -> None:
    """All is done in the driver but the work of tasks, where a worker is killed; two steps each day, all in `live`."""
    kill_at_every_step("dying_topic_stream", of_the_day(AROUND_THE_DECISION), ledger, tmp_path)


@pytest.mark.shard("spark")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", ["jvm", "driver"])
def test_at_every_step(ledger: Engine, tmp_path: Path, victim: str) -> None:
    """From the plan to Spark's own note of the commit."""
    steps = [(step, victim) for step in dying_topic_stream.STEPS]
    kill_at_every_step("dying_topic_stream", steps, ledger, tmp_path)
