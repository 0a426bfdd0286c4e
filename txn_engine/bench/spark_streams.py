"""Streams of Spark: how many rows a second, beside a batch of the same rows; and what one micro-batch takes, beside
Spark's own file source and sink.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from txn_engine.bench.measure import Measured, paired, timed
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.spark_reads import load_files_of
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Progress = Callable[[str, int, int], None]
_FILES = 80
_BATCHES = 4
_SMALL_ROWS = 1_000
_AIM_SOURCE, _AIM_NATIVE, _AIM_LATENCY = 0.4, 0.9, 1.5


def spark_stream_numbers(
    spark: SparkSession,
    engine: Engine,
    prefix: str,
    *,
    rows: int,
    rounds: int,
    progress: Progress,
    warm_up: int = 1,
    batches: int = _BATCHES,
) -> Iterator[Measured]:
    """All rows of a topic into another, in so many micro-batches; then micro-batches of nothing and of 1,000 rows.
    Rounds of `warm_up` do not count.
    """
    from txn_engine.spark import register

    register(spark)
    with tempfile.TemporaryDirectory(prefix="txn-engine-bench-streams-", dir=".") as folder:
        streams = _Streams(spark, engine, prefix, rows, batches, Path(folder).resolve())
        load_files_of(engine, streams.topic, rows=rows, files=_FILES, progress=progress)
        for name, work, aim in (
            ("source and sink", streams.by_format, _AIM_SOURCE),
            ("stream_topic", streams.by_function, _AIM_NATIVE),
        ):
            progress(f"stream by {name}", 0, rounds)
            sustained: list[float] = []

            def stream(work: Callable[[], float] = work, sustained: list[float] = sustained) -> None:
                sustained.append(work())

            whole, batch = paired(stream, streams.batch, rounds, warm_up)
            mine = sustained[-len(whole) :]
            speed = statistics.median(b / a for a, b in zip(mine, batch, strict=True))
            yield Measured(
                f"stream by {name}, {rows / 1e6:g} M", "Mrow/s", rows / statistics.median(mine) / 1e6,
                rows / statistics.median(batch) / 1e6, speed, f"speed at least {aim}", speed >= aim, len(mine),
                f"{batches} micro-batches, the sum of Spark's triggerExecution; {statistics.median(whole):.1f} s from "
                "start() to the end; bare: read_topic and write_topic of all rows at once",
            )  # fmt: skip
        progress("micro-batches", 0, rounds)
        yield from _latencies(streams, rounds, warm_up)


class _Streams:
    """Queries over `topic`, each run with a checkpoint and an output of its own."""

    def __init__(
        self, spark: SparkSession, engine: Engine, prefix: str, rows: int, batches: int, folder: Path
    ) -> None:
        self.spark, self.engine, self.rows, self.folder = spark, engine, rows, folder
        self.topic = f"{prefix}-stream"
        self._numbers = count()
        # Offsets of markers are between the rows: a little more than a batch's share, so that there is no batch more.
        self._most = rows // batches + rows // 50

    def output(self) -> str:
        """A new topic."""
        name = f"{self.topic}-{next(self._numbers)}"
        self.engine.admin.create_topic(name, partitions=4, schema=SCHEMA, key="account_id")
        return name

    def by_format(self) -> float:
        """How long its micro-batches took."""
        output = self.output()
        query = self.copy(self.topic, output, str(self.folder / output), most=self._most)
        self._check(output)
        return _triggers_s(query)

    def by_function(self) -> float:
        """How long its micro-batches took."""
        from txn_engine.spark import stream_topic

        output = self.output()
        query = stream_topic(
            self.spark,
            self.engine,
            self.topic,
            each=lambda df, _: df.select(*SCHEMA.names),
            checkpoint=self.folder / output,
            transactional_id=output,
            output_topic=output,
            max_offsets_per_trigger=self._most,
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        self._check(output)
        return _triggers_s(query)

    def batch(self) -> None:
        from txn_engine.spark import read_topic, write_topic

        output = self.output()
        read = read_topic(self.spark, self.engine, self.topic, group_id=output)
        write_topic(
            read.df.select(*SCHEMA.names),
            self.engine,
            output,
            transactional_id=output,
            offsets=read.offsets,
        )
        self._check(output)

    def copy(self, source: str, output: str, checkpoint: str, most: int | None = None) -> StreamingQuery:
        """What is new in one topic into another, by the data source and its sink."""
        options = {"url": self.engine.url, "subscribe": source, "startingOffsets": "earliest"}
        if most is not None:
            options["maxOffsetsPerTrigger"] = str(most)
        rows = self.spark.readStream.format("txn_engine").options(**options).load().select(*SCHEMA.names)
        writer = rows.writeStream.format("txn_engine").options(
            url=self.engine.url, topic=output, checkpointLocation=checkpoint
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def _check(self, output: str) -> None:
        seen = sum(file.record_count for file in self.engine.scan(output).files())
        if seen != self.rows:
            raise TxnEngineError(f"{seen} rows were written", actor="bench", expected=f"{self.rows}")


def _latencies(streams: _Streams, rounds: int, warm_up: int) -> Iterator[Measured]:
    """A query that is run for 1,000 new rows, and for none; each round both ways."""
    source, output = streams.output(), streams.output()
    numbers = count()
    folder = streams.folder / "files"
    (folder / "in").mkdir(parents=True)
    spark = streams.spark
    schema = _spark_schema(streams)

    def ours() -> StreamingQuery:
        return streams.copy(source, output, str(folder / "ours"))

    def bare() -> StreamingQuery:
        rows = spark.readStream.schema(schema).parquet(str(folder / "in"))
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "bare"))
        query = writer.trigger(availableNow=True).start(str(folder / "out"))
        query.awaitTermination()
        return query

    def more() -> None:
        table = payments(_SMALL_ROWS, _SMALL_ROWS * next(numbers))
        with streams.engine.producer() as producer:
            producer.produce(source, table).result()
        pq.write_table(table, folder / "in" / f"{next(numbers):05d}.parquet")

    small: list[tuple[float, float]] = []
    empty: list[tuple[float, float]] = []
    for number in range(warm_up + rounds):
        more()
        took = (_triggers_s(ours()), _triggers_s(bare()))
        nothing = (timed(ours), timed(bare))
        if number >= warm_up:
            small.append(took)
            empty.append(nothing)
    yield _latency(f"micro-batch of {_SMALL_ROWS:,} rows", small, "Spark's triggerExecution")
    yield _latency("query that finds nothing", empty, "AvailableNow, from start to end")


def _spark_schema(streams: _Streams) -> Any:
    from txn_engine.spark import read_topic

    return read_topic(streams.spark, streams.engine, streams.topic).df.select(*SCHEMA.names).schema


def _triggers_s(query: StreamingQuery) -> float:
    """The time of the micro-batches that had rows."""
    took = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
    if not took:
        raise TxnEngineError("no micro-batch had rows", actor="bench", expected="one at least")
    return float(sum(took)) / 1_000


def _latency(name: str, seconds: list[tuple[float, float]], note: str) -> Measured:
    mine, theirs = (statistics.median(each) for each in zip(*seconds, strict=True))
    ratio = statistics.median(a / b for a, b in seconds)
    return Measured(
        name, "s", mine, theirs, ratio, f"time at most {_AIM_LATENCY}", ratio <= _AIM_LATENCY, len(seconds),
        f"{note}; bare: Spark's file source and sink on the local disk",
    )  # fmt: skip
