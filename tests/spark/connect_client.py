"""A program on Spark Connect, as a process of its own: classic and Connect do not live in one.

python -m tests.spark.connect_client URL CHECKPOINT: reads, streams through the sink, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from txn_engine.errors import TxnEngineError
from txn_engine.spark import load_files, read_topic, write_topic

LOCAL = "spark.connect.grpc.binding.address"


def main(url: str, checkpoint: str) -> None:
    spark = SparkSession.builder.remote("local[2]").config(LOCAL, "127.0.0.1").getOrCreate()
    options = {"url": url, "subscribe": "payments"}
    rows = spark.read.format("txn_engine").options(**options).load()
    seen: dict[str, object] = {"session": type(spark).__module__, "count": rows.count()}
    stream = spark.readStream.format("txn_engine").options(**options, startingOffsets="earliest").load()
    sink = {"url": url, "topic": "copies", "checkpointLocation": checkpoint}
    columns = [name for name in stream.columns if not name.startswith("_")]
    for _ in range(2):
        query = stream.select(*columns).writeStream.format("txn_engine").options(**sink)
        query.trigger(availableNow=True).start().awaitTermination()
    refused = {
        "read_topic": lambda: read_topic(spark, url, "payments"),
        "write_topic": lambda: write_topic(rows.select(*columns), url, "copies", transactional_id="connect"),
        "load_files": lambda: load_files(spark, url, "copies", "/nowhere.csv", run_id="1"),
    }
    for name, call in refused.items():
        try:
            call()
        except TxnEngineError as error:
            seen[name] = str(error)
    print(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
