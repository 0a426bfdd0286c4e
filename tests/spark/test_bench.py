"""`txn-engine bench --spark` runs completely and checks what it measures. How fast it is, the command
reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from txn_engine.bench.spark_reads import spark_read_numbers
from txn_engine.bench.spark_streams import spark_stream_numbers
from txn_engine.bench.spark_writes import spark_write_numbers
from txn_engine.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.shard("spark")]


def silent(_what: str, _done: int, _total: int) -> None:
    """A progress that prints nothing."""


@pytest.mark.parametrize(
    ("rows", "batches", "warm_up"),
    [pytest.param(2_000, 1, 0, id="few"), pytest.param(20_000, 4, 1, id="many")],
)
def test_reads_writes_and_streams(
    spark: SparkSession,
    ledger: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    batches: int,
    warm_up: int,
) -> None:
    """Every number of the table is measured with few rows. A result that differs from the bare one's
    raises."""
    monkeypatch.chdir(tmp_path)
    common: Any = {"rounds": 1, "progress": silent, "warm_up": warm_up}
    reads = spark_read_numbers(spark, ledger, "r", rows=20_000, files=8, **common)
    writes = spark_write_numbers(spark, ledger, "w", rows=rows, **common)
    streams = spark_stream_numbers(spark, ledger, "s", rows=rows, batches=batches, **common)
    numbers = [*reads, *writes, *streams]
    assert [number.name.split(",")[0] for number in numbers] == [
        "count",
        "group-by of all",
        "point filter",
        "max(_offset) by partition",
        "1",
        "1",
        "write by Spark",
        "write by Spark",
        "write by Spark",
        "stream by source and sink",
        "stream by stream_topic",
        "micro-batch of 1",
        "query that finds nothing",
    ]
    assert all(number.ours > 0 and number.bare > 0 for number in numbers)
