"""A stream in a process of its own, killed at one step after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.conftest import SCHEMA, load
from txn_engine.engine import Engine

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 800
"""A run takes 20 s on a quiet machine. This is for one that starts a JVM on a machine where much else runs."""


def run_once(module: str, engine: Engine, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a module of this folder, which may be killed at a step that `folder` names."""
    return subprocess.run(
        [sys.executable, "-m", module, engine.url, str(folder / "ck")],
        cwd=REPOSITORY,
        env=os.environ | {"DYING": str(folder)},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE_S,
    )


def kill_a_worker(module: ModuleType, step: str, engine: Engine, folder: Path) -> None:
    """Killed at one step in the session of this process: its Python worker dies there, and the stream with it.

    The next run goes on from the checkpoint.
    """
    _create_copies(engine)
    load(engine, 0, 60)
    (folder / "at").write_text(f"{step} worker")
    with mock.patch.dict(os.environ, {"DYING": str(folder)}):
        with pytest.raises(StreamingQueryException):
            module.main(engine.url, str(folder / "ck"))
        assert not (folder / "at").exists()
        module.main(engine.url, str(folder / "ck"))
    assert _copied(engine) == list(range(60))


def kill_at_every_step(
    module: ModuleType, steps: Sequence[tuple[str, str]], engine: Engine, folder: Path
) -> None:
    """Killed at one step after the other, each time with records waiting; at the end each is there once.

    The run after the last kill is one of this process, in the session that it has.
    """
    _create_copies(engine)
    for number, (step, victim) in enumerate(steps):
        load(engine, number * 60, 60)
        (folder / "at").write_text(f"{step} {victim}")
        done = run_once(module.__name__, engine, folder)
        assert not (folder / "at").exists(), (step, done.stderr[-2000:])
        if victim != "worker":
            assert done.returncode != 0, (step, victim)
    with mock.patch.dict(os.environ, {"DYING": str(folder)}):
        module.main(engine.url, str(folder / "ck"))
    assert _copied(engine) == list(range(len(steps) * 60))


def _create_copies(engine: Engine) -> None:
    engine.admin.create_topic("copies", partitions=2, schema=SCHEMA, key="account_id")


def _copied(engine: Engine) -> list[int]:
    return sorted(engine.scan("copies").to_table(["trans_id"]).column("trans_id").to_pylist())
