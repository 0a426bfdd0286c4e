"""What Spark reads of a topic, beside bare Spark over the same files: from the call to the result, in turn."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txn_engine.bench.measure import Measured, paired, ratio_of, timed
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str, int, int], None]
ROWS = 50_000_000
FILES = 400
PARTITIONS = 4
_RANGE_ROWS = 1_000
_RANGE_LIMIT_S = 1.0
_FILES_A_TRANSACTION = 200


@dataclass(frozen=True, slots=True)
class _Query:
    """A query, and how long it may take, measured in the time of the bare one."""

    name: str
    aim: float
    ours: Callable[[DataFrame], object]
    bare: Callable[[DataFrame], object]


def load_files_of(
    engine: Engine, topic: str, *, rows: int, files: int, progress: Progress, partitions: int = PARTITIONS
) -> None:
    """A topic of so many committed rows in so many files, in turn over the partitions; with snapshots, as
    `txn_compute_lso` leaves them.
    """
    engine.admin.create_topic(topic, partitions=partitions, schema=SCHEMA, key="account_id")
    with engine.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        for begin in range(0, files, _FILES_A_TRANSACTION):
            progress("rows to read", rows * begin // files, rows)
            with producer.transaction():
                for number in range(begin, min(begin + _FILES_A_TRANSACTION, files)):
                    first, behind = rows * number // files, rows * (number + 1) // files
                    producer.produce(topic, payments(behind - first, first), partition=number % partitions)
    engine.admin.snapshot(topic)


def spark_read_numbers(
    spark: SparkSession,
    engine: Engine,
    prefix: str,
    *,
    rows: int,
    files: int,
    rounds: int,
    progress: Progress,
    warm_up: int = 1,
) -> Iterator[Measured]:
    """Counts, sums, a point filter and offsets over a topic of `rows` in `files`. Rounds of `warm_up` do not count."""
    from txn_engine.spark import read_topic

    topic = f"{prefix}-read-{files}"
    load_files_of(engine, topic, rows=rows, files=files, progress=progress)
    bare = _Bare(spark, engine, topic)
    for query in _queries(rows // 3):
        progress(f"{query.name}, {files:,} files", 0, rounds)
        yield _compared(
            query,
            lambda query=query: query.ours(read_topic(spark, engine, topic).df),  # type: ignore[misc]
            lambda query=query: query.bare(bare.frame()),  # type: ignore[misc]
            rounds,
            warm_up,
            f"{rows / 1e6:g} M rows in {files:,} files",
        )
    yield from _ranges(spark, engine, topic, rows, files, rounds)


class _Bare:
    """The topic's files, read by nobody but Spark."""

    def __init__(self, spark: SparkSession, engine: Engine, topic: str) -> None:
        from txn_engine.spark import read_topic
        from txn_engine.spark.hadoop import spark_url
        from txn_engine.spark.opening import read_options

        self._spark = spark
        self._options = read_options(spark, engine.store)
        folders = dict.fromkeys(file.uri.rpartition("/")[0] for file in engine.scan(topic).files())
        self._folders = [spark_url(uri) for uri in folders]
        schema = read_topic(spark, engine, topic).df.schema
        self._schema = type(schema)([field for field in schema.fields if field.name in SCHEMA.names])

    def frame(self) -> DataFrame:
        reader = self._spark.read.schema(self._schema).options(**self._options)
        return reader.option("pathGlobFilter", "*.parquet").parquet(*self._folders)


def _queries(wanted: int) -> Iterator[_Query]:
    from pyspark.sql import functions as sf

    def count(df: DataFrame) -> int:
        return df.count()

    def sums(df: DataFrame) -> Any:
        grouped = df.groupBy("account_id").agg(sf.sum("amount").alias("amount"), sf.count("*").alias("n"))
        return grouped.agg(sf.sum("amount"), sf.sum("n")).first()

    def point(df: DataFrame) -> Any:
        return [row["account_id"] for row in df.filter(sf.col("trans_id") == wanted).collect()]

    def last_offsets(df: DataFrame) -> int:
        found = df.groupBy("_partition").agg(sf.max("_offset").alias("last")).collect()
        return len(found) - PARTITIONS

    def stored_column(df: DataFrame) -> int:
        found = df.groupBy(sf.col("account_id") % 4).agg(sf.sum("trans_id")).collect()
        return len(found) - PARTITIONS

    yield _Query("count", 1.1, count, count)
    yield _Query("group-by of all", 1.05, sums, sums)
    yield _Query("point filter, all columns", 1.2, point, point)
    yield _Query("max(_offset) by partition", 1.3, last_offsets, stored_column)


def _compared(
    query: _Query,
    ours: Callable[[], object],
    bare: Callable[[], object],
    rounds: int,
    warm_up: int,
    what: str,
) -> Measured:
    seen, expected = ours(), bare()
    if seen != expected:
        raise TxnEngineError(f"{query.name}: {seen}", actor="bench", expected=f"{expected}, as of bare files")
    mine, theirs = paired(ours, bare, rounds, warm_up)
    ratio = ratio_of(mine, theirs)
    note = f"{what}; read_topic(...) and the query; bare: spark.read.schema(...).parquet(the same folders)"
    if ours is not bare and query.name.startswith("max"):
        note = f"{what}; bare: a sum over a stored column, of as many groups"
    return Measured(
        f"{query.name}, {what.rsplit(' in ', 1)[1]}", "s", statistics.median(mine), statistics.median(theirs),
        ratio, f"time at most {query.aim}", ratio <= query.aim, len(mine), note,
    )  # fmt: skip


def _ranges(
    spark: SparkSession, engine: Engine, topic: str, rows: int, files: int, rounds: int
) -> Iterator[Measured]:
    """1,000 records from the middle of a partition, by both ways to read."""
    from txn_engine.spark import read_topic, register

    register(spark)
    place = TopicPartition(topic, 1)
    first = rows // PARTITIONS // 2
    all_of = {
        tp: (first, first + _RANGE_ROWS) if tp == place else (0, 0) for tp in engine.scan(topic).offsets
    }
    start = {tp: bounds[0] for tp, bounds in all_of.items()}
    end = {tp: bounds[1] for tp, bounds in all_of.items()}

    def by_read_topic() -> None:
        _expect(len(read_topic(spark, engine, topic, start=start, end=end).df.collect()))

    def by_options() -> None:
        options = {
            "url": engine.url,
            "assign": json.dumps({topic: [1]}),
            "startingOffsets": json.dumps({topic: {"1": first}}),
            "endingOffsets": json.dumps({topic: {"1": first + _RANGE_ROWS}}),
        }
        _expect(len(spark.read.format("txn_engine").options(**options).load().collect()))

    for name, work in (("read_topic(start, end)", by_read_topic), ("the data source", by_options)):
        work()
        seconds = statistics.median(timed(work) for _ in range(rounds))
        yield Measured(
            f"1,000 offsets by {name}, {files:,} files", "s", seconds, _RANGE_LIMIT_S, seconds / _RANGE_LIMIT_S,
            "1 s", seconds <= _RANGE_LIMIT_S, rounds, f"of {rows / 1e6:g} M rows; against one second",
        )  # fmt: skip


def _expect(seen: int) -> None:
    # a marker in the range is an offset without a record
    if not _RANGE_ROWS - 100 <= seen <= _RANGE_ROWS:
        raise TxnEngineError(f"{seen} records of a range", actor="bench", expected=f"about {_RANGE_ROWS}")
