"""A stream runs next to every other user of the topic while the topic's columns change in every way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.schemas.test_in_flight import PUBLISHED, Flight, flight, wrong
from tests.support.waiting import wait_for
from txn_engine.reasons import Reason
from txn_engine.schemas.changes import DropColumn, RenameColumn, WidenColumn
from txn_engine.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.shard("spark")]

_PATIENCE_S = 120
STOPS = (RenameColumn, WidenColumn, DropColumn)
"""What a stream cannot follow that has the column; all else it does not notice."""


class Stream:
    """`format("txn_engine")` into this process. The rows of a micro-batch are stored under its number, and
    replaced if Spark runs it again."""

    def __init__(self, spark: SparkSession, url: str, checkpoint: Path) -> None:
        self._spark = spark
        self._url = url
        self._checkpoint = str(checkpoint)
        self.batches: dict[int, pa.Table] = {}
        self.refusals: list[str] = []
        self.query = self._started()

    def _started(self) -> StreamingQuery:
        options = {"url": self._url, "subscribe": "t", "startingOffsets": "earliest"}
        rows = self._spark.readStream.format("txn_engine").options(**options).load()
        return (
            rows.writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", self._checkpoint)
            .trigger(processingTime="100 milliseconds")
            .start()
        )

    def _keep(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = frame.toArrow()

    @property
    def ids(self) -> list[int]:
        return sorted(number for table in self.batches.values() for number in table["id"].to_pylist())

    def await_all(self, numbers: list[int]) -> None:
        """Wait until the stream has these records. If it ends before that, remember its error line and start
        it again."""
        wait_for(
            lambda: set(numbers) <= set(self.ids),
            what="records that the stream has to read",
            limit_s=_PATIENCE_S,
            meanwhile=self._start_again_if_ended,
            seen=lambda: (self.query.status, self.query.lastProgress),
        )

    def _start_again_if_ended(self) -> None:
        if not self.query.isActive:
            self.refusals.append(self._line())
            self.query = self._started()

    def _line(self) -> str:
        error = self.query.exception()
        assert isinstance(error, StreamingQueryException)
        lines = [line for line in str(error).splitlines() if "SCHEMA_CHANGED" in line]
        assert lines, str(error)
        return lines[0]


@contextmanager
def stream(spark: SparkSession, all_of_them: Flight, url: str, checkpoint: Path) -> Iterator[Stream]:
    register(spark)
    found = Stream(spark, url, checkpoint)
    try:
        yield found
    finally:
        found.query.stop()


def test_every_kind_of_change_beside_a_running_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The stream has each record once and correctly. If one of its own columns is renamed, widened or
    dropped, it ends with one line and goes on from its checkpoint. No other change stops it."""
    url = tmp_path.joinpath("store").as_uri()
    with (
        flight(url, pace_s=0.1) as all_of_them,
        stream(spark, all_of_them, url, tmp_path / "checkpoint") as running,
    ):
        all_of_them.actors.begin(all_of_them.publish)
        for change in PUBLISHED:
            all_of_them.await_more()
            running.await_all(list(all_of_them.sent))
            ended = len(running.refusals)
            all_of_them.change(change)
            all_of_them.await_more()
            running.await_all(list(all_of_them.sent))
            assert len(running.refusals) == ended + isinstance(change, STOPS), running.refusals
        all_of_them.actors.end()
        running.await_all(all_of_them.sent)
        assert running.ids == sorted(all_of_them.sent)
        assert not [row for table in running.batches.values() for row in wrong(table)]
        names = [name for table in running.batches.values() for name in table.schema.names]
        assert {"note", "text", "size", "extra"} <= set(names)
    reasons = (Reason.UNKNOWN_COLUMN, Reason.TYPE_MISMATCH, Reason.UNKNOWN_COLUMN)
    for said, column, reason in zip(running.refusals, ("note", "size", "size"), reasons, strict=True):
        assert f"'{column}'" in said
        assert f"[SCHEMA_CHANGED {reason}]" in said
