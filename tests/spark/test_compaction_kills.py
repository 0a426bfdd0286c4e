"""Compaction on Spark, whose processes are killed at every step: readers see the same table, and the next run
goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.maintain.tables import SCHEMA, TABLE, held, rows, table_of
from tests.spark import dying_compaction
from tests.spark.dying_compaction import POLICY, STEPS
from tests.spark.kills import kill_at, run_here
from txn_engine.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.shard("kills")
@pytest.mark.parametrize(
    ("victim", "steps"),
    [("jvm", STEPS), ("driver", STEPS), ("worker", ("keys", "merging", "uploaded"))],
    ids=["jvm", "driver", "worker"],
)
def test_at_every_step(
    spark: SparkSession, ledger: Engine, tmp_path: Path, victim: str, steps: tuple[str, ...]
) -> None:
    """Compaction is killed at every step from the first key to the last row, each time with new records of
    old keys. Spark tries a killed task again, and after a killed driver the next run goes on. At the end each
    key is there once."""
    ledger.admin.create_topic(TABLE, partitions=1, schema=SCHEMA, key="key", cleanup_policy="compact")
    log = ledger.partition(TABLE, 0)
    for number, step in enumerate(steps):
        for part in range(4):
            log.append(rows(*((f"key-{n}", number * 4 + part) for n in range(part, 20))))
        wanted = table_of(held(ledger))
        kill_at(step, victim, dying_compaction, ledger, tmp_path)
        assert table_of(held(ledger)) == wanted
    run_here(dying_compaction, ledger, tmp_path)
    assert table_of(held(ledger)) == wanted
    assert len(held(ledger)) == 20
    assert ledger.maintenance.compact(TABLE, policy=POLICY).partitions == ()
