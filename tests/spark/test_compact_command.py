"""`txn-engine maintain compact` with Spark."""

from __future__ import annotations

import pytest
from pyspark import SparkContext

from tests.maintain.tables import SCHEMA, TABLE, rows
from tests.spark.conftest import Command
from txn_engine.engine import Engine

pytestmark = pytest.mark.spark


COMPACT = ("maintain", "compact", "--dirty-ratio", "0")


def test_spark_compacts_a_partition_above_the_limit(ledger: Engine, command: Command) -> None:
    """Spark starts for that partition alone and ends with the command, which reports who compacted which partition and
    why. Where nothing is due, Spark does not start.
    """
    ledger.admin.create_topic(TABLE, partitions=2, schema=SCHEMA, key="key", cleanup_policy="compact")
    for partition, count in ((0, 3), (1, 30)):
        for number in range(2):
            ledger.partition(TABLE, partition).append(rows(*((f"key-{n}", number) for n in range(count))))
    done = command(ledger, *COMPACT, "--spark-above", "20", "--spark-conf", "spark.master=local[1]")
    assert done.code == 0, done.stderr
    assert SparkContext._active_spark_context is None
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["Engine", "local", "spark"]
    spark, local = done.stderr.splitlines()
    assert spark.startswith("table-1 by Spark: 60 records in ")
    assert "more than 20 records" in spark
    assert local.startswith("table-0 by this process: 6 records in ")
    left = ledger.scan(TABLE).to_table(["_partition", "value"])
    assert sorted(left.column("_partition").to_pylist()) == [0] * 3 + [1] * 30
    assert set(left.column("value").to_pylist()) == {1}
    again = command(ledger, *COMPACT, "--engine", "spark", "--json")
    assert (again.code, again.json["compacted"]) == (0, [])
