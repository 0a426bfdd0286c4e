"""`stream_topic` from `payments` into `copies` until there is no more, killed at one step of a micro-batch, once.

python -m tests.spark.dying_topic_stream URL CHECKPOINT, with `DYING` set (dying_source).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.spark.conftest import SCHEMA
from tests.spark.dying_source import die_at
from txn_engine.producer import Producer
from txn_engine.spark import StreamBatch, spark_session, stream_topic, streaming, writing

STEPS = ("planned", "read", "working", "uploaded", "undecided", "decided", "processed")


def working(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task."""
    for batch in batches:
        die_at("working")
        yield batch


def each(rows: DataFrame, batch: StreamBatch) -> DataFrame:
    die_at("read")
    assert batch.record_count > 0
    copied = rows.select(*SCHEMA.names)
    return copied.mapInArrow(working, copied.schema)


def main(url: str, checkpoint: str) -> None:
    spark = spark_session(url, master="local[2,3]")
    jvm = spark._jvm
    assert jvm is not None
    folder = Path(os.environ["DYING"])
    (folder / "jvm").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    (folder / "driver").write_text(str(os.getpid()))
    commit, upload, process = Producer.commit_transaction, writing.upload_rows, streaming._Work.process

    def dying_upload(*args: Any) -> Any:
        uploaded = upload(*args)
        die_at("uploaded")
        return uploaded

    def dying_commit(producer: Producer, *, max_block_ms: int) -> None:
        die_at("undecided")
        commit(producer, max_block_ms=max_block_ms)
        die_at("decided")

    def dying_process(work: Any, ranges: DataFrame, batch_id: int) -> None:
        die_at("planned")
        process(work, ranges, batch_id)
        die_at("processed")

    with (
        mock.patch.object(writing, "upload_rows", dying_upload),
        mock.patch.object(Producer, "commit_transaction", dying_commit),
        mock.patch.object(streaming._Work, "process", dying_process),
    ):
        stream_topic(
            spark,
            url,
            "payments",
            each=each,
            checkpoint=checkpoint,
            transactional_id="copier",
            output_topic="copies",
            trigger={"availableNow": True},
            max_offsets_per_trigger=40,
        ).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
