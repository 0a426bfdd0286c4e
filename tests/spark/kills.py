"""Work on Spark that is killed at one step after another."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from unittest import mock

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.conftest import SCHEMA, load
from tests.support.kills import run_module, said_by
from txn_engine.engine import Engine

PATIENCE_S = 800
"""A run takes 20 s on a quiet machine. This is for one that starts a JVM on a machine where much else runs."""


def run_apart(module: ModuleType, engine: Engine, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a module of this folder in a process of its own, which may be killed at a step that `folder` names."""
    dying = os.environ | {"DYING": str(folder)}
    return run_module(module.__name__, engine.url, str(folder / "ck"), environment=dying, limit_s=PATIENCE_S)


def run_here(module: ModuleType, engine: Engine, folder: Path) -> None:
    """Run a module of this folder in the session of this process, whose workers may die at a step."""
    dying = {"DYING": str(folder)}
    session = SparkSession.getActiveSession()
    assert session is not None
    with mock.patch.dict(os.environ, dying), mock.patch.dict(session.sparkContext.environment, dying):
        module.main(engine.url, str(folder / "ck"))


def kill_at(step: str, victim: str, module: ModuleType, engine: Engine, folder: Path) -> None:
    """Run once, and be killed at one step. A worker is killed in the session of this process, and the JVM and
    the driver in a process of their own. Spark tries the task of a killed worker again, so the run may still
    succeed."""
    (folder / "at").write_text(f"{step} {victim}")
    told = ""
    if victim == "worker":
        with suppress(StreamingQueryException):
            run_here(module, engine, folder)
    else:
        done = run_apart(module, engine, folder)
        told = said_by(done)
        assert done.returncode != 0, (step, victim)
        assert (done.returncode == -signal.SIGKILL) == (victim == "driver"), (step, victim, told)
    assert not (folder / "at").exists(), (step, victim, told)


def kill_a_stream(module: ModuleType, steps: Sequence[tuple[str, str]], engine: Engine, folder: Path) -> None:
    """Kill a stream at one step after another, each time while records wait. At the end each record is there
    once.

    The run after the last kill uses the session of this process.
    """
    engine.admin.create_topic("copies", partitions=2, schema=SCHEMA, key="account_id")
    for number, (step, victim) in enumerate(steps):
        load(engine, number * 60, 60)
        kill_at(step, victim, module, engine, folder)
    run_here(module, engine, folder)
    copied = engine.scan("copies").to_table(["trans_id"]).sort_by("trans_id")
    assert copied.column("trans_id").to_pylist() == list(range(len(steps) * 60))
