"""What Spark does with topics, beside bare Spark in the same session: reads, writes and streams."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from txn_engine.bench.measure import Measured
from txn_engine.bench.spark_reads import spark_read_numbers
from txn_engine.bench.spark_streams import spark_stream_numbers
from txn_engine.bench.spark_writes import spark_write_numbers
from txn_engine.engine import Engine

SparkPart = Literal["all", "reads", "writes", "streams"]
_READ_ROWS, _WRITE_ROWS, _STREAM_ROWS = 50_000_000, 20_000_000, 40_000_000
_QUICK = 10
"""How much less `quick` does."""
_FEW_FILES, _MANY_FILES = 400, 20_000


def spark_numbers(
    engine: Engine,
    prefix: str,
    *,
    part: SparkPart,
    rows: int | None,
    quick: bool,
    progress: Callable[[str, int, int], None],
) -> Iterator[Measured]:
    """The numbers of a part, or of all; of so many rows, where that is told."""
    from txn_engine.spark import spark_session

    share = _QUICK if quick else 1
    rounds = 3 if quick else 5
    with tempfile.TemporaryDirectory(prefix="txn-engine-bench-spark-") as folder:
        spark = spark_session(engine.url, app_name="txn-engine bench", log_path=Path(folder, "spark.log"))
        try:
            if part in ("all", "reads"):
                for files in (_FEW_FILES // share, _MANY_FILES // share):
                    yield from spark_read_numbers(
                        spark,
                        engine,
                        prefix,
                        rows=rows or _READ_ROWS // share,
                        files=files,
                        rounds=rounds,
                        progress=progress,
                    )
            if part in ("all", "writes"):
                wanted = rows or _WRITE_ROWS // share
                yield from spark_write_numbers(
                    spark, engine, prefix, rows=wanted, rounds=rounds, progress=progress
                )
            if part in ("all", "streams"):
                wanted = rows or _STREAM_ROWS // share
                yield from spark_stream_numbers(
                    spark, engine, prefix, rows=wanted, rounds=rounds, progress=progress
                )
        finally:
            spark.stop()
