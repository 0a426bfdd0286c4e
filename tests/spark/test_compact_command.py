"""`txn-engine maintain compact` with Spark: the command, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.maintain.tables import SCHEMA, TABLE, rows
from txn_engine.engine import Engine

pytestmark = pytest.mark.spark


def compact(engine: Engine, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "txn_engine",
        "maintain",
        "compact",
        "--url",
        engine.url,
        "--dirty-ratio",
        "0",
    ]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def test_a_partition_above_the_limit_is_sparks(ledger: Engine, tmp_path: Path) -> None:
    """It starts for that one alone and ends with the command; who did what and why is told. Where nothing is due, it
    does not start.
    """
    ledger.admin.create_topic(TABLE, partitions=2, schema=SCHEMA, key="key", cleanup_policy="compact")
    for partition, count in ((0, 3), (1, 30)):
        for number in range(2):
            ledger.partition(TABLE, partition).append(rows(*((f"key-{n}", number) for n in range(count))))
    done = compact(ledger, "--spark-above", "20", "--spark-conf", "spark.master=local[1]")
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["Engine", "local", "spark"]
    spark, local = done.stderr.splitlines()
    assert spark.startswith("table-1 by Spark: 60 records in ")
    assert "more than 20 records" in spark
    assert local.startswith("table-0 by this process: 6 records in ")
    left = ledger.scan(TABLE).to_table(["_partition", "value"])
    assert sorted(left.column("_partition").to_pylist()) == [0] * 3 + [1] * 30
    assert set(left.column("value").to_pylist()) == {1}
    again = compact(ledger, "--engine", "spark", "--json")
    assert (again.returncode, json.loads(again.stdout)["compacted"]) == (0, [])
