"""A query that copies `payments` into `copies` until there is no more: a process that may be killed.

python -m tests.spark.dying_stream URL CHECKPOINT, with `DYING` set (dying_source).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.spark.dying_source import DyingSource
from txn_engine.spark import register, spark_session


def main(url: str, checkpoint: str) -> None:
    spark = spark_session(url, master="local[2,3]")
    register(spark)
    spark.dataSource.register(DyingSource)
    jvm = spark._jvm
    assert jvm is not None
    folder = Path(os.environ["DYING"])
    (folder / "jvm").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    (folder / "driver").write_text(str(os.getpid()))
    source = {
        "url": url,
        "subscribe": "payments",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
    }
    rows = spark.readStream.format("txn_engine").options(**source).load()
    sink = {"url": url, "topic": "copies", "checkpointLocation": checkpoint}
    columns = [name for name in rows.columns if not name.startswith("_")]
    query = (
        rows.select(*columns).writeStream.format("dying").options(**sink).trigger(availableNow=True).start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
