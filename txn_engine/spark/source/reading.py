"""The source of `format("txn_engine")`: a bounded read, and a stream."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from storage import ObjectStore
from txn_engine.clock import monotonic_ms
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.log.objects import Objects
from txn_engine.log.reading import read_slice
from txn_engine.log.topics import Topic
from txn_engine.spark.errors import reasons_in_text
from txn_engine.spark.opening import store_for_executors
from txn_engine.spark.source.columns import (
    RANGES,
    check_still_there,
    check_wanted,
    shaped,
    source_schema,
    stored_columns,
)
from txn_engine.spark.source.opening import open_engine
from txn_engine.spark.source.options import ReadOptions
from txn_engine.spark.source.planning import Part, Planner, tasks
from txn_engine.spark.source.positions import Positions, distance, limited, whole_files
from txn_engine.types import TopicPartition

_LOGGER: Final = logging.getLogger(__name__)
_LOOK_AGAIN_MS: Final = 1_000


@dataclass
class ReadTask(InputPartition):
    """What one task of Spark's reads: files, or what is to be read of them, and the store that they are on."""

    store: ObjectStore
    parts: tuple[Part, ...]


@dataclass
class RangesTask(InputPartition):
    """The offsets of a micro-batch, as rows of `RANGES`."""

    rows: tuple[tuple[str, int, int, int, int], ...]


class BatchReader(DataSourceReader):
    """A read between two bounds. What it takes is fixed when Spark plans it, once a query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @reasons_in_text()
    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read."""
        with open_engine(self._options.store) as engine:
            planner = Planner(engine, self._options)
            check_wanted(self._schema, source_schema(planner.topics(), self._options))
            start, end = planner.bounds()
            return _tasks(engine, planner, self._options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's records."""
        return _read(partition, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. It lives in one process as long as the query, except for `read`, which executors call.

    The start options count where a query begins, never where it is started again: then the checkpoint does.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Positions | None = None
        self._reported: dict[str, Any] | None = None
        self._waiting_since_ms: int | None = None
        self._next_look_ms = 0
        self._planned: tuple[object, Sequence[InputPartition]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What executors need to read."""
        return {"_options": self._options, "_schema": self._schema}

    @cached_property
    def _engine(self) -> Engine:
        return open_engine(self._options.store)

    @cached_property
    def _planner(self) -> Planner:
        planner = Planner(self._engine, self._options)
        if not self._options.ranges_only:
            check_wanted(self._schema, source_schema(planner.topics(), self._options))
        return planner

    def _check_still_there(self, topics: Sequence[Topic]) -> None:
        if topics and not self._options.ranges_only:
            check_still_there(self._schema, source_schema(topics, self._options))

    # --- offsets --------------------------------------------------------------------------------------------

    @reasons_in_text()
    def initialOffset(self) -> dict[str, Any]:
        """Where a query that has no checkpoint yet begins."""
        return self._planner.start().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`."""
        most = self._options.limits.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @reasons_in_text()
    def prepareForTriggerAvailableNow(self) -> None:
        """The end of what this run of the query reads: what is there now."""
        self._target = self._planner.latest()

    @reasons_in_text()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself where there is nothing to be read yet.

        Spark asks a hundred times a second. Where there was nothing the store is looked at again a second later.
        """
        if monotonic_ms() < self._next_look_ms:
            return start
        position = Positions.from_json(start)
        self._check_still_there(self._planner.topics())
        latest, log_ends = self._planner.ahead(position)
        self._reported = latest.to_json() | {"_logEnd": replace(log_ends, store_id="").to_json()}
        end = latest if self._target is None else _at_most(latest, self._target)
        at = _begun(self._planner, position, end)
        waiting = distance(at, end.offsets)
        if not waiting or not self._is_due(waiting):
            self._next_look_ms = monotonic_ms() + (_LOOK_AGAIN_MS if self._target is None else 0)
            return start
        self._waiting_since_ms = None
        offsets = end.offsets
        if isinstance(limit, ReadMaxRows):
            offsets = limited(at, offsets, limit.max_rows)
            offsets = whole_files(at, offsets, self._planner.cut_files(offsets, end), limit.max_rows)
        kept = {tp: max(offset, at.get(tp, 0)) for tp, offset in offsets.items()}
        return replace(end, offsets=kept).to_json()

    def _is_due(self, waiting: int) -> bool:
        """Whether that much is worth a micro-batch, or has waited for `maxTriggerDelay`."""
        least = self._options.limits.min_offsets
        if least is None or self._target is not None or waiting >= least:
            return True
        now_ms = monotonic_ms()
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        return now_ms - self._waiting_since_ms >= self._options.limits.max_delay_ms

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: where the topics end, and under `_logEnd` with what is undecided yet."""
        return self._reported

    # --- records --------------------------------------------------------------------------------------------

    @reasons_in_text()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch. Spark asks several times for the same one."""
        asked = (start, end)
        if self._planned is None or self._planned[0] != asked:
            first, last = Positions.from_json(start), Positions.from_json(end)
            planned = _tasks(self._engine, self._planner, self._options, first, last)
            parts = (part for task in planned if isinstance(task, ReadTask) for part in task.parts)
            self._check_still_there(list({part.topic.name: part.topic for part in parts}.values()))
            self._planned = asked, planned
        return self._planned[1]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's records."""
        return _read(partition, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Let the group follow, for who looks at its lag. Nothing depends on it, so nothing fails for it."""
        if self._options.group_id is None:
            return
        position = Positions.from_json(end)
        try:
            known = {topic.name: topic.incarnation for topic in self._planner.topics()}
            there = {
                tp: offset
                for tp, offset in position.offsets.items()
                if known.get(tp.topic) == position.incarnation(tp.topic)
            }
            self._engine.admin.reset_offsets(self._options.group_id, there, execute=True)
        except TxnEngineError as error:
            _LOGGER.warning("group %r does not follow the stream: %s", self._options.group_id, error)

    def stop(self) -> None:
        """Close what the query held."""
        if "_engine" in self.__dict__:
            self._engine.close()


def _at_most(latest: Positions, target: Positions) -> Positions:
    """The end of a run that reads what was there when it began: of those topics and partitions."""
    offsets = {
        tp: min(latest.offsets[tp], offset)
        for tp, offset in target.offsets.items()
        if tp in latest.offsets and latest.incarnation(tp.topic) == target.incarnation(tp.topic)
    }
    return replace(latest, offsets=offsets)


def _of_the_same_topics(position: Positions, end: Positions) -> dict[TopicPartition, int]:
    """The offsets that are about the topics of `end`; another topic of such a name is read from its beginning."""
    return {
        tp: offset
        for tp, offset in position.offsets.items()
        if position.incarnation(tp.topic) == end.incarnation(tp.topic)
    }


def _begun(planner: Planner, position: Positions, end: Positions) -> dict[TopicPartition, int]:
    """Where a read from `position` to `end` begins; in partitions that are new to it at their logs' starts."""
    at = _of_the_same_topics(position, end)
    new = end.offsets.keys() - at.keys()
    return at | planner.log_starts(new) if new else at


def _tasks(
    engine: Engine, planner: Planner, options: ReadOptions, start: Positions, end: Positions
) -> Sequence[InputPartition]:
    parts = planner.parts(start, end)
    if options.ranges_only:
        at = _begun(planner, start, end)
        rows = [
            (tp.topic, end.incarnation(tp.topic), tp.partition, at.get(tp, 0), offset)
            for tp, offset in end.offsets.items()
        ]
        return [RangesTask(tuple(rows))]
    store = store_for_executors(engine.store)
    return [
        ReadTask(store, group)
        for group in tasks(
            parts, at_least=options.min_partitions, most_records=options.max_records_per_partition
        )
    ]


def _read(task: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    if isinstance(task, RangesTask):
        rows = [dict(zip(RANGES.names, row, strict=True)) for row in task.rows]
        yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(RANGES))
        return
    if not isinstance(task, ReadTask):
        return  # what Spark makes where there is nothing to read
    columns = stored_columns(schema)
    try:
        with reasons_in_text():
            objects = Objects(task.store)
            for part in task.parts:
                for table in read_slice(objects, part.topic, part.slice, columns):
                    yield from shaped(table, part.topic, schema)
    finally:
        task.store.close()
