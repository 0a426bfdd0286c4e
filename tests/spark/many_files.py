"""A topic of very many small files, and how long the driver plans a read of it.

python -m tests.spark.many_files [--files 1 400 20000 100000]     prints seconds, and what the JVM holds
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import txn_engine
from txn_engine.engine import Engine
from txn_engine.ids import new_write_id
from txn_engine.log.data_files import EncodedFile, encode_data_file
from txn_engine.protocol.file_names import DataFileName
from txn_engine.spark import read_topic, spark_session

ROWS_A_FILE = 10
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string())])
_FILES_A_TRANSACTION = 2_000
_NAMES_A_FILE = 20_000  # a file system counts the names of a file, and has an end to them


def make_topic(engine: Engine, topic: str, *, files: int, partitions: int = 4) -> None:
    """Committed files with the same ten records, distributed over the partitions: one file under many
    names."""
    engine.admin.create_topic(topic, partitions=partitions, schema=SCHEMA, key="key")
    info = engine.logs.topics.look_up(topic)
    root = Path(engine.url.removeprefix("file://"))
    records = pa.table({"key": range(ROWS_A_FILE), "value": [str(n) for n in range(ROWS_A_FILE)]}, SCHEMA)
    with engine.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        for first in range(0, files, _FILES_A_TRANSACTION):
            with producer.transaction():
                sent: list[tuple[int, EncodedFile]] = []
                for number in range(first, min(first + _FILES_A_TRANSACTION, files)):
                    partition = number % partitions
                    name = DataFileName(0, producer.producer_id, producer.producer_epoch, new_write_id())
                    if number % _NAMES_A_FILE == 0:
                        data, encoded = encode_data_file(records, info.schemas.layout, name, 1_000)
                        content = root.parent / f"{topic}-{number}.parquet"
                        content.write_bytes(data)
                    path = root / info.prefix(partition) / name.data_path
                    path.parent.mkdir(parents=True, exist_ok=True)
                    os.link(content, path)
                    file = type(encoded.file)(name.data_path, len(data), encoded.file.checksum)
                    sent.append((partition, EncodedFile(file, ROWS_A_FILE, 1_000, 1_000)))
                producer.produce_files(info, sent).result()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def cpu_s(spark: SparkSession) -> float:
    """Processor time of this process and of the JVM (Linux), which is what a planning takes if nothing else
    runs."""
    process = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    spent = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return time.process_time() + sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def heap_mib(spark: SparkSession) -> float:
    """MiB in the JVM's heap after a collection."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def measure(spark: SparkSession, engine: Engine, files: int, *, count: bool) -> None:
    """Plan a read of a new topic twice. The second time, the JVM's code is already compiled."""
    topic = f"files-{files}"
    written, _ = timed(lambda: make_topic(engine, topic, files=files))
    scanned, _ = timed(lambda: engine.scan(topic).files())
    first, _ = timed(lambda: read_topic(spark, engine, topic))
    before, cpu = heap_mib(spark), cpu_s(spark)
    planned, read = timed(lambda: read_topic(spark, engine, topic))
    cpu = cpu_s(spark) - cpu
    held = heap_mib(spark) - before
    plan, _ = timed(lambda: read.df.where("key = 3")._jdf.queryExecution().executedPlan())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{read.file_count:,} files: written {written:.1f} s, scan.files() {scanned:.2f} s,"
        f" read_topic {first:.2f} then {planned:.2f} s ({cpu:.2f} of processor), plan of a filter {plan:.2f} s,"
        f" JVM holds {held:.0f} MiB more, Python's peak {peak:.0f} MiB",
        flush=True,
    )
    if count:
        counted, rows = timed(read.df.count)
        print(f"  count {rows:,} in {counted:.1f} s", flush=True)


def main() -> None:
    """Measure one size after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1, 400, 20_000, 100_000])
    parser.add_argument("--count", action="store_true", help="also read them")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="txn-engine-many-files-") as folder,
        txn_engine.connect(f"{folder}/ledger") as engine,
    ):
        spark = spark_session(engine.url, log_path=f"{folder}/spark.log")
        for files in options.files:
            measure(spark, engine, files, count=options.count)
        spark.stop()


if __name__ == "__main__":
    main()
