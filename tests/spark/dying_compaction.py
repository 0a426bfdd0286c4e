"""One compaction of `table` on Spark, killed at one step, once.

python -m tests.spark.dying_compaction URL CHECKPOINT, with `DYING` set (dying_source); there is no checkpoint.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.spark.dying_source import die_at
from txn_engine.log.entry_log import EntryLog
from txn_engine.maintain import MaintenancePolicy
from txn_engine.spark import compact_topic, compaction, spark_session
from txn_engine.spark.compaction import KeyReader, Merger, Work

POLICY = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0, target_file_bytes=1_200)
STEPS = ("keys", "merging", "uploaded", "unnamed", "named")


class DyingReader(KeyReader):
    """Dies in a task, while it reads keys."""

    __slots__ = ()

    def __call__(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in KeyReader.__call__(self, parts):
            die_at("keys")
            yield batch


class DyingMerger(Merger):
    """Dies in a task, before or after its files are on the store."""

    __slots__ = ()

    def __call__(self, works: Iterable[Work]) -> Iterator[Any]:
        die_at("merging")
        for done in Merger.__call__(self, works):
            die_at("uploaded")
            yield done


def main(url: str, _: str) -> None:
    spark = spark_session(url, master="local[2,3]")
    jvm = spark._jvm
    assert jvm is not None
    folder = Path(os.environ["DYING"])
    (folder / "jvm").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    (folder / "driver").write_text(str(os.getpid()))
    append = EntryLog.append_one

    def dying_append(log: EntryLog, *args: Any) -> Any:
        die_at("unnamed")
        verdict = append(log, *args)
        die_at("named")
        return verdict

    with (
        mock.patch.object(compaction, "KeyReader", DyingReader),
        mock.patch.object(compaction, "Merger", DyingMerger),
        mock.patch.object(EntryLog, "append_one", dying_append),
    ):
        report = compact_topic(spark, url, "table", policy=POLICY, engine="spark")
    if report.failures:
        raise SystemExit(report.failures[0].message)


if __name__ == "__main__":
    main(*sys.argv[1:])
    SparkSession.active().stop()  # fails if the JVM was killed, even after the last job
