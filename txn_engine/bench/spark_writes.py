"""`write_topic` beside Spark's own Parquet writer: the same rows, the same codec, in turn in one session."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from txn_engine.bench.measure import Measured, paired, ratio_of
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str, int, int], None]
_AIM = 1.2
_LOADED_ROWS = 1_000_000
_PARTITIONS = (1, 4)


@dataclass(slots=True)
class _Writers:
    """Writes what is in `source`, again and again, each time into a place of its own."""

    spark: SparkSession
    engine: Engine
    source: str
    prefix: str
    partitions: int
    rows: int
    numbers: count[int] = field(default_factory=count)

    def ours(self) -> None:
        from txn_engine.spark import write_topic

        topic = f"{self.prefix}-{next(self.numbers)}"
        key = "account_id" if self.partitions > 1 else None
        self.engine.admin.create_topic(topic, partitions=self.partitions, schema=SCHEMA, key=key)
        written = write_topic(self._frame(), self.engine, topic, transactional_id=self.prefix)
        if written.records != self.rows:
            raise TxnEngineError(
                f"{written.records} rows were written", actor="bench", expected=f"{self.rows}"
            )

    def bare(self) -> None:
        place = f"{self.source}-bare-{self.partitions}-{next(self.numbers)}"
        self._frame().write.option("compression", "zstd").parquet(place)

    def bare_split(self) -> None:
        """As many folders as the topic has partitions, by a hash of the same column."""
        from pyspark.sql import functions as sf

        place = f"{self.source}-split-{next(self.numbers)}"
        number = sf.pmod(sf.hash("account_id"), sf.lit(self.partitions))
        writer = self._frame().withColumn("number", number).write.partitionBy("number")
        writer.option("compression", "zstd").parquet(place)

    def _frame(self) -> DataFrame:
        from txn_engine.spark.opening import read_options

        return self.spark.read.options(**read_options(self.spark, self.engine.store)).parquet(self.source)


def spark_write_numbers(
    spark: SparkSession,
    engine: Engine,
    prefix: str,
    *,
    rows: int,
    rounds: int,
    progress: Progress,
    warm_up: int = 1,
) -> Iterator[Measured]:
    """A write of `rows` payments into a topic of one partition, and split by key into one of four: beside Spark's
    writer, which splits nothing, and beside the same with `partitionBy`.

    The rows are read from Parquet files on the same store. Rounds of `warm_up` do not count.
    """
    source = _loaded(engine, prefix, rows, progress)
    for partitions in _PARTITIONS:
        writers = _Writers(spark, engine, source, f"{prefix}-{partitions}p", partitions, rows)
        progress(f"write by Spark into {partitions} partitions", 0, rounds)
        mine, theirs = paired(writers.ours, writers.bare, rounds, warm_up)
        kind = "1 partition" if partitions == 1 else f"{partitions} partitions, by key"
        yield _measured(mine, theirs, rows, kind, "df.write.parquet")
        if partitions > 1:
            mine, theirs = paired(writers.ours, writers.bare_split, rounds, warm_up)
            yield _measured(
                mine, theirs, rows, f"{kind}, bare split too", "df.write.partitionBy(...).parquet"
            )


def _loaded(engine: Engine, prefix: str, rows: int, progress: Progress) -> str:
    """Plain Parquet files with the rows, on the engine's store beside its topics; where Spark reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number in range(math.ceil(rows / _LOADED_ROWS)):
        first = number * _LOADED_ROWS
        progress("rows for the write", first, rows)
        sink = pa.BufferOutputStream()
        pq.write_table(payments(min(_LOADED_ROWS, rows - first), first), sink, compression="zstd")
        engine.store.put_if_absent(f"{prefix}/source/{number:05d}.parquet", sink.getvalue().to_pybytes())
    from txn_engine.spark.hadoop import spark_url

    return spark_url(engine.store.uri(f"{prefix}/source"))


def _measured(mine: list[float], theirs: list[float], rows: int, kind: str, bare: str) -> Measured:
    ratio = ratio_of(mine, theirs)
    return Measured(
        f"write by Spark, {rows / 1e6:g} M, {kind}", "Mrow/s", rows / statistics.median(mine) / 1e6,
        rows / statistics.median(theirs) / 1e6, ratio, f"time at most {_AIM}", ratio <= _AIM, len(mine),
        f"write_topic, committed and synced; bare: {bare} of the same rows, zstd, not synced",
    )  # fmt: skip
