"""The streaming sink, killed at every step of a micro-batch: each record once, however often it is started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import SCHEMA, load
from tests.spark.dying_source import STEPS
from txn_engine.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow]
REPOSITORY = Path(__file__).resolve().parents[2]


def run_once(engine: Engine, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.spark.dying_stream", engine.url, str(folder / "ck")]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | {"DYING": str(folder)},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=240,
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(("jvm", "driver", "worker"), id="one after the other"),
        *(
            pytest.param((victim,), id=victim, marks=pytest.mark.live)
            for victim in ("jvm", "driver", "worker")
        ),
    ],
)
def test_killed_at_every_step(ledger: Engine, tmp_path: Path, victims: tuple[str, ...]) -> None:
    """Killed at one step after the other, each time with records waiting; at the end each is there once."""
    ledger.admin.create_topic("copies", partitions=2, schema=SCHEMA, key="account_id")
    for number, step in enumerate(STEPS):
        victim = victims[number % len(victims)]
        load(ledger, number * 60, 60)
        (tmp_path / "at").write_text(f"{step} {victim}")
        done = run_once(ledger, tmp_path)
        assert not (tmp_path / "at").exists(), (step, done.stderr[-2000:])
        if victim != "worker":
            assert done.returncode != 0, (step, victim)
    last = run_once(ledger, tmp_path)
    assert last.returncode == 0, last.stderr[-3000:]
    copied = ledger.scan("copies").to_table(["trans_id"]).column("trans_id").to_pylist()
    assert sorted(copied) == list(range(len(STEPS) * 60))
