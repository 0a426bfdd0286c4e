"""`stream_topic`: a query whose micro-batches are native reads, each committed with its output in one transaction."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from storage import BucketStore, ObjectStore
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, OffsetsMovedError, UnknownTopicOrPartitionError
from txn_engine.producer import Producer
from txn_engine.reasons import Reason
from txn_engine.spark.dead_letters import DeadLettersTo, dead_letters_to
from txn_engine.spark.errors import reasons_in_text
from txn_engine.spark.hadoop import check_readable
from txn_engine.spark.job import Output, outputs_of
from txn_engine.spark.layout import FileLayout
from txn_engine.spark.opening import UrlOrEngine, check_classic, opened
from txn_engine.spark.reading import ReadOffsets, read_topic
from txn_engine.spark.source import NAME, register
from txn_engine.spark.source.opening import write_access
from txn_engine.spark.voting import Checks, Vote, vote_of
from txn_engine.spark.writing import DEFAULT_TIMEOUT_MS, check_write, commit_offsets, write_with
from txn_engine.types import MarkerMode, TopicPartition


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A micro-batch: its number in the query, what it covers, and how many records that is."""

    batch_id: int
    offsets: ReadOffsets
    record_count: int


Each = Callable[[DataFrame, StreamBatch], Output]


def stream_topic(
    spark: SparkSession,
    url_or_engine: UrlOrEngine,
    topic: str,
    *,
    each: Each,
    checkpoint: str | os.PathLike[str] | None = None,
    transactional_id: str,
    output_topic: str | None = None,
    group_id: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    max_offsets_per_trigger: int | None = None,
    query_name: str | None = None,
    before_commit: Callable[[], None] | None = None,
    transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    markers: MarkerMode = "inline",
    sort_within_files: bool | Sequence[str] = False,
    by_partition: bool | None = None,
    checks: Checks | None = None,
    report_folder: str | os.PathLike[str] | None = None,
    dead_letter_topic: str | None = None,
    max_dead_letters: int | str | None = None,
    **connect_kwargs: Any,
) -> StreamingQuery:
    """Start a query over a topic: `each(df, batch)` makes a micro-batch's output, or a mapping from topic to output; an
    empty one where nothing of it is to be written.

    `df` is what `read_topic` gives for the micro-batch, read by Spark's own Parquet reader. Output and the group's new
    position (`group_id`, else the transactional id) commit together, or nothing does: whatever dies and is started
    again, each record goes into committed output once. A query without a checkpoint begins where the group is, so a
    checkpoint that is lost costs nothing. `trigger`: what `DataStreamWriter.trigger` takes, such as
    `{"availableNow": True}`.

    `checks` and `report_folder` are `write_topic`'s, held against each micro-batch's output: what is red ends the query
    with `ChecksFailedError`, nothing of that micro-batch is visible, and a query that is started again does it again.
    The report is that of the last vote. `dead_letter_topic` and `max_dead_letters` (of each micro-batch) are
    `run_consume_job`'s; letters have the run id `<transactional id>/<number of the micro-batch>`.

    It needs a classic session. `checkpoint` may be in a bucket that the session's connector opens, as
    `spark_session` says.

    Raises what `read_topic` raises; an error of a micro-batch ends the query. `OffsetsMovedError`: the group is neither
    at the beginning nor at the end of the micro-batch: somebody else moved it, or an older checkpoint was restored.
    """
    check_classic(spark, "stream_topic")
    if checkpoint is not None:
        check_readable(spark, os.fspath(checkpoint))
    if max_offsets_per_trigger is not None and max_offsets_per_trigger < 1:
        raise InvalidRequestError(
            f"max_offsets_per_trigger={max_offsets_per_trigger!r}",
            actor="stream_topic",
            expected="1 or more",
            reason=Reason.BAD_ARGUMENT,
        )
    if find_spec("pyspark_txn_engine") is None:
        register(spark)
    with ExitStack() as held:
        engine = held.enter_context(opened(url_or_engine, **connect_kwargs))
        outputs = None if output_topic is None else (output_topic,)
        letters = dead_letters_to(
            engine,
            dead_letter_topic,
            max_dead_letters,
            actor="stream_topic",
            source_topic=topic,
            run_id=transactional_id,
        )
        vote = vote_of(
            checks, report_folder, engine=engine, outputs=outputs, actor="stream_topic", letters=letters
        )
        producer = held.enter_context(
            engine.producer(
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                markers=markers,
            )
        )
        producer.init_transactions()
        layout = FileLayout(sort_within_files, by_partition)
        group = group_id or transactional_id
        work = _Work(
            spark, engine, producer, topic, group, each, output_topic, layout, before_commit, vote, letters
        )
        options = _source_options(engine, topic, group, max_offsets_per_trigger)
        options |= _access_options(engine.store, held)
        ranges = spark.readStream.format(NAME).options(**options).load()
        writer = ranges.writeStream.foreachBatch(work.process)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", os.fspath(checkpoint))
        writer = writer.queryName(query_name) if query_name is not None else writer
        query = (writer.trigger(**trigger) if trigger else writer).start()
        _close_with(query, held.pop_all())
    return query


def _source_options(engine: Engine, topic: str, group_id: str, most: int | None) -> dict[str, str]:
    """The source of offsets, from where the group is."""
    with engine.consumer(group_id=group_id) as consumer:
        consumer.subscribe([topic])
        start = {str(tp.partition): at.offset for tp, at in consumer.positions().items()}
    options = {
        "url": engine.url,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: start}),
        "rangesOnly": "true",
    }
    if most is not None:
        options["maxOffsetsPerTrigger"] = str(most)
    return options


def _access_options(store: ObjectStore, held: ExitStack) -> dict[str, str]:
    """How Spark's planner, a process of its own, gets at a bucket: as this engine does."""
    if not isinstance(store, BucketStore):
        return {}
    folder = held.enter_context(tempfile.TemporaryDirectory(prefix="txn-engine-stream-"))
    return {"accessFile": write_access(folder, store.access())}


def _close_with(query: StreamingQuery, held: ExitStack) -> None:
    """Let go of engine and producer when the query ends, however it does."""

    def wait() -> None:
        with held:
            try:
                query.awaitTermination()
            except StreamingQueryException:
                return  # whoever waits for the query is told

    threading.Thread(target=wait, name=f"txn-engine-{query.id}", daemon=True).start()


@dataclass(frozen=True, slots=True)
class _Work:
    """What happens to a micro-batch."""

    spark: SparkSession
    engine: Engine
    producer: Producer
    topic: str
    group_id: str
    each: Each
    output_topic: str | None
    layout: FileLayout
    before_commit: Callable[[], None] | None
    vote: Vote | None
    letters: DeadLettersTo | None

    @reasons_in_text()
    def process(self, ranges: DataFrame, batch_id: int) -> None:
        """For `foreachBatch`: its rows are offsets."""
        rows = ranges.collect()
        if not any(row["end"] > row["start"] for row in rows):
            return
        start, end = self._bounds(rows, "start"), self._bounds(rows, "end")
        read = read_topic(self.spark, self.engine, self.topic, group_id=self.group_id, start=start, end=end)
        self._check_same_topic(rows)
        if self._is_done(start, end, batch_id):
            return
        if not read.record_count:
            commit_offsets(self.producer, read.offsets)
            return
        batch = StreamBatch(batch_id, read.offsets, read.record_count)
        outputs = outputs_of(self.each(read.df, batch), self.output_topic, "stream_topic")
        if not outputs:
            commit_offsets(self.producer, read.offsets)
            return
        check_write(self.engine, outputs, read.offsets, self.layout, letters=self.letters)
        write_with(
            self.engine,
            self.producer,
            outputs,
            offsets=read.offsets,
            run_id=None,
            layout=self.layout,
            before_commit=self.before_commit,
            vote=self.vote,
            letters=self._letters_of(batch_id),
        )

    def _letters_of(self, batch_id: int) -> DeadLettersTo | None:
        """With the micro-batch as their run."""
        if self.letters is None:
            return None
        return replace(self.letters, run_id=f"{self.letters.run_id}/{batch_id}")

    def _bounds(self, rows: list[Row], side: str) -> dict[TopicPartition, int]:
        return {TopicPartition(row["topic"], row["partition"]): row[side] for row in rows}

    def _check_same_topic(self, rows: list[Row]) -> None:
        incarnation = self.engine.logs.topics.look_up(self.topic).incarnation
        if any(row["incarnation"] != incarnation for row in rows):
            raise UnknownTopicOrPartitionError(
                f"topic {self.topic!r} was deleted and made again",
                actor="stream_topic",
                place=self.engine.url,
                action="begin with a new checkpoint",
                reason=Reason.TOPIC_MADE_AGAIN,
            )

    def _is_done(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], batch_id: int
    ) -> bool:
        """Whether this very micro-batch was committed before Spark could note it.

        It is asked after the read has fetched the group's rows: who moves the group later makes the commit fail.
        """
        with self.engine.consumer(group_id=self.group_id) as consumer:
            committed = {tp: at.offset for tp, at in consumer.committed(list(end)).items()}
        moving = {tp for tp in end if end[tp] > start[tp]}
        if all(committed.get(tp) == end[tp] for tp in moving):
            return True
        for tp in sorted(moving):
            if committed.get(tp, start[tp]) != start[tp]:
                raise OffsetsMovedError(
                    f"group {self.group_id!r} at offset {committed[tp]} of {tp}",
                    actor=f"stream_topic, batch {batch_id}",
                    place=self.engine.url,
                    expected=f"{start[tp]}, where the batch begins, or {end[tp]}, where it ends",
                    action="another query moves this group, or an older checkpoint was restored; "
                    "a new checkpoint goes on where the group is",
                    reason=Reason.GROUP_ELSEWHERE,
                )
        return False
