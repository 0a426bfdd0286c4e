"""`txn-engine quality run` with Spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.spark.conftest import Command, load
from txn_engine.engine import Engine

pytestmark = pytest.mark.spark


@pytest.fixture
def run(ledger: Engine, command: Command, tmp_path: Path) -> Command:
    """Prove the topic `payments`."""
    common = ("quality", "run", "payments", "--record-id", "trans_id", "--report", str(tmp_path / "report"))
    return partial(command, ledger, *common)


def test_spark_proves_more_records_than_one_process_takes(ledger: Engine, run: Command) -> None:
    """Spark ends with the command, which reports what counted. The next proof continues in this process."""
    load(ledger, 1, 200)
    first = run("--spark-above", "100", "--spark-conf", "spark.master=local[1]", "--json")
    assert first.code == 0, first.stderr
    seen = first.json
    assert (seen["engine"], seen["success"], seen["proof"]["proof"]) == ("Spark", True, 0)
    assert SparkContext._active_spark_context is None
    load(ledger, 201, 10)
    second = run("--engine", "local", "--spark-above", "0")
    assert second.code == 0, second.stderr
    assert "in process (DuckDB)" in second.stderr


def test_a_setting_that_spark_does_not_have(run: Command) -> None:
    """A setting that is not Spark's is a usage error, before anything is read."""
    answer = run("--spark-conf", "master=local", "--json")
    assert (answer.code, answer.error_code, answer.error_reason) == (2, "USAGE", "not_a_spark_setting")
