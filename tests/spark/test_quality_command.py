"""`txn-engine quality run` with Spark: the command, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import load
from txn_engine.engine import Engine

pytestmark = pytest.mark.spark


def run(engine: Engine, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "txn_engine", "quality", "run", "payments", "--record-id", "trans_id"]
    command += ["--url", engine.url, "--report", str(folder / "report"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_spark_proves_what_is_more_than_one_process_takes(ledger: Engine, tmp_path: Path) -> None:
    """It ends with the command; who counted is told; the next proof goes on from it in this process."""
    load(ledger, 1, 200)
    first = run(ledger, tmp_path, "--spark-above", "100", "--spark-conf", "spark.master=local[1]", "--json")
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert (told["engine"], told["success"], told["proof"]["proof"]) == ("Spark", True, 0)
    load(ledger, 201, 10)
    second = run(ledger, tmp_path, "--engine", "local", "--spark-above", "0")
    assert second.returncode == 0, second.stderr
    assert "in process (DuckDB)" in second.stderr


def test_a_setting_that_is_none_of_sparks(ledger: Engine, tmp_path: Path) -> None:
    """A usage error, before anything is read."""
    answer = run(ledger, tmp_path, "--spark-conf", "master=local")
    assert answer.returncode == 2
    assert "--spark-conf takes a setting of Spark's" in answer.stderr
