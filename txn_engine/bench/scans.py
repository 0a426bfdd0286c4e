"""read_committed scans, by PyArrow and by Spark, beside the same engine reading the same files bare."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pyarrow.fs as fs

from storage import BucketStore, ObjectStore
from txn_engine.bench.measure import Measured, paired, ratio_of
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.progress import Progress
from txn_engine.configs.client import ConsumerSettings
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS = 250_000
_AIM = 1.1
_POLL_AIM = 0.9
_POLLED = ConsumerSettings().max_poll_records


@dataclass(frozen=True, slots=True)
class ScanSizes:
    """Committed rows, and how often they are read."""

    rows: int
    rounds: int


QUICK, USUAL = ScanSizes(500_000, 3), ScanSizes(5_000_000, 7)


def scan_numbers(
    engine: Engine, prefix: str, *, sizes: ScanSizes, spark: bool, progress: Progress
) -> Iterator[Measured]:
    """A topic of committed rows (with aborted ones between them), read in full."""
    rows, rounds = sizes.rows, sizes.rounds
    topic = f"{prefix}-scan"
    _load(engine, topic, rows, progress)
    files = [file.uri for file in engine.scan(topic).files()]
    progress("scan by PyArrow", 0, rounds)
    yield _pyarrow(engine, topic, files, rows, rounds)
    progress("poll", 0, rounds)
    yield _polls(engine, topic, rows, rows * 3 // 5, rounds)
    if spark:
        progress("scan by Spark", 0, rounds)
        yield _spark(engine, topic, files, rows, rounds)


def _load(engine: Engine, topic: str, rows: int, progress: Progress) -> None:
    engine.admin.create_topic(topic, partitions=4, schema=SCHEMA, key="account_id")
    with engine.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        for first in range(0, rows, _BATCH_ROWS):
            progress("rows for the scan", first, rows)
            with producer.transaction():
                producer.produce(topic, payments(min(_BATCH_ROWS, rows - first), first))
            producer.begin_transaction()
            producer.produce(topic, payments(1_000, rows + first))
            producer.flush()
            producer.abort_transaction()


def _pyarrow(engine: Engine, topic: str, files: Sequence[str], rows: int, rounds: int) -> Measured:
    root, files_of = engine.store.uri(""), filesystem(engine.store)
    paths = [uri.removeprefix(root) for uri in files]

    def ours() -> None:
        _expect(engine.scan(topic).to_table().num_rows, rows)

    def bare() -> None:
        _expect(ds.dataset(paths, format="parquet", filesystem=files_of).to_table().num_rows, rows)

    mine, theirs = paired(ours, bare, rounds, warm_up=1)
    return _speed(
        "scan by PyArrow", mine, theirs, rows, "read_committed; bare: pyarrow.dataset over the same files"
    )


def _polls(engine: Engine, topic: str, rows: int, polled: int, rounds: int) -> Measured:
    """Of as many rows as are polled; the scan beside it is of all."""

    def ours() -> None:
        seen = 0
        with engine.consumer() as consumer:
            consumer.subscribe([topic])
            while seen < polled:
                table = consumer.poll(min(_POLLED, polled - seen))
                if table is None:
                    break
                seen += table.num_rows
        _expect(seen, polled)

    def scan() -> None:
        _expect(engine.scan(topic).to_table().num_rows, rows)

    mine, theirs = paired(ours, scan, rounds, warm_up=1)
    speeds = [polled / seconds / 1e6 for seconds in mine], [rows / seconds / 1e6 for seconds in theirs]
    ratio = ratio_of(*speeds)
    return Measured(
        f"consumer.poll, {polled / 1e6:g} M", "Mrow/s", statistics.median(speeds[0]), statistics.median(speeds[1]),
        ratio, f"at least {_POLL_AIM}", ratio >= _POLL_AIM, rounds,
        f"{_POLLED:,} records a call; not bare: scan().to_table() of {rows / 1e6:g} M",
    )  # fmt: skip


def _spark(engine: Engine, topic: str, files: Sequence[str], rows: int, rounds: int) -> Measured:
    from txn_engine.spark import spark_session

    with tempfile.TemporaryDirectory(prefix="txn-engine-bench-spark-") as folder:
        spark = spark_session(engine.url, app_name="txn-engine bench", log_path=Path(folder, "spark.log"))
        try:
            return _spark_with(spark, engine, topic, files, rows, rounds)
        finally:
            spark.stop()


def _spark_with(
    spark: SparkSession, engine: Engine, topic: str, files: Sequence[str], rows: int, rounds: int
) -> Measured:
    from txn_engine.spark import read_topic
    from txn_engine.spark.hadoop import spark_url
    from txn_engine.spark.opening import read_options

    paths = [spark_url(uri) for uri in files]
    schema = read_topic(spark, engine, topic).df.schema
    options = read_options(spark, engine.store)

    def ours() -> None:
        frame = read_topic(spark, engine, topic).df.select(*SCHEMA.names)
        frame.write.format("noop").mode("overwrite").save()

    def bare() -> None:
        wanted = [field for field in schema.fields if field.name in SCHEMA.names]
        frame = spark.read.schema(type(schema)(wanted)).options(**options).parquet(*paths)
        frame.write.format("noop").mode("overwrite").save()

    mine, theirs = paired(ours, bare, rounds)
    return _speed(
        "scan by Spark",
        mine,
        theirs,
        rows,
        "read_committed; bare: spark.read.schema(...).parquet(the same files)",
    )


def _speed(name: str, mine: list[float], theirs: list[float], rows: int, note: str) -> Measured:
    ratio = ratio_of(mine, theirs)
    return Measured(
        f"{name}, {rows / 1e6:g} M", "Mrow/s", rows / statistics.median(mine) / 1e6,
        rows / statistics.median(theirs) / 1e6, ratio, f"time at most {_AIM}", ratio <= _AIM, len(mine), note,
    )  # fmt: skip


def _expect(seen: int, rows: int) -> None:
    if seen != rows:
        raise TxnEngineError(f"{seen} rows were read", actor="bench", expected=f"{rows}")


def filesystem(store: ObjectStore) -> fs.FileSystem:
    """PyArrow's own over a store: its paths are keys."""
    if isinstance(store, BucketStore):
        found: fs.FileSystem = store.arrow_files()
        return found
    return fs.SubTreeFileSystem(store.uri(""), fs.LocalFileSystem())
