"""Compaction on Spark, its processes killed at every step: readers see the same table, and the next run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.maintain.tables import SCHEMA, TABLE, held, rows, table_of
from tests.spark.dying_compaction import POLICY, STEPS
from tests.spark.kills import run_once
from txn_engine.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]


def kill_at(steps: Sequence[tuple[str, str]], engine: Engine, folder: Path) -> None:
    """Each time with new records of old keys; a killed task is tried again, after a killed driver the next run goes
    on. At the end each key is there once.
    """
    engine.admin.create_topic(TABLE, partitions=1, schema=SCHEMA, key="key", cleanup_policy="compact")
    log = engine.partition(TABLE, 0)
    for number, (step, victim) in enumerate(steps):
        for part in range(4):
            log.append(rows(*((f"key-{n}", number * 4 + part) for n in range(part, 20))))
        wanted = table_of(held(engine))
        (folder / "at").write_text(f"{step} {victim}")
        done = run_once("tests.spark.dying_compaction", engine, folder)
        assert not (folder / "at").exists(), (step, done.stderr[-2000:])
        assert (done.returncode == 0) == (victim == "worker"), (step, victim, done.stderr[-2000:])
        assert table_of(held(engine)) == wanted
    assert run_once("tests.spark.dying_compaction", engine, folder).returncode == 0
    assert table_of(held(engine)) == wanted
    assert len(held(engine)) == 20
    assert engine.maintenance.compact(TABLE, policy=POLICY).partitions == ()


@pytest.mark.shard("spark")
def test_after_an_upload(ledger: Engine, tmp_path: Path) -> None:
    """The driver is killed when a task has uploaded a file that no entry of the log names."""
    kill_at([("uploaded", "driver")], ledger, tmp_path)


@pytest.mark.shard("spark")
@pytest.mark.parametrize(
    ("victim", "steps"),
    [("jvm", STEPS), ("driver", STEPS), ("worker", ("keys", "merging", "uploaded"))],
    ids=["jvm", "driver", "worker"],
)
def test_at_every_step(ledger: Engine, tmp_path: Path, victim: str, steps: tuple[str, ...]) -> None:
    """From the first key to the last row; a worker runs tasks only."""
    kill_at([(step, victim) for step in steps], ledger, tmp_path)
