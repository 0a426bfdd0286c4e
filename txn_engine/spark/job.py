"""The consume job: read what is new, transform it, write the result and the position, exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from immutables import Map
from pyspark.sql import DataFrame, SparkSession

from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, UnstableOffsetCommitError
from txn_engine.producer import Producer
from txn_engine.producer.runs import check_run_id
from txn_engine.reasons import Reason
from txn_engine.spark.dead_letters import dead_letters_to
from txn_engine.spark.layout import FileLayout
from txn_engine.spark.opening import UrlOrEngine, opened
from txn_engine.spark.reading import ReadOffsets, TopicRead, read_topic
from txn_engine.spark.voting import Checks, vote_of
from txn_engine.spark.writing import DEFAULT_TIMEOUT_MS, WriteResult, check_write, commit_offsets, write_with
from txn_engine.types import MarkerMode

Output = DataFrame | Mapping[str, DataFrame]
"""What is to be written: a topic's DataFrame, or one for each topic by its name; of no topic, nothing."""
Transform = Callable[[DataFrame], Output]
"""Of the DataFrame that is new."""


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """What one run did.

    `skipped`: no record was written, because there was none to read or because this run id had committed before. The
    position moves all the same, over what markers and aborted transactions have left. `writes`: what went into each
    output topic, and nothing of a run that found no record to read. `dead_letters`: rows that went to the dead-letter
    topic in place of their own.
    """

    read_offsets: ReadOffsets
    records_in: int
    records_out: int
    skipped: bool
    writes: Mapping[str, WriteResult] = field(default_factory=Map)
    dead_letters: int = 0


def run_consume_job(
    spark: SparkSession,
    url_or_engine: UrlOrEngine,
    *,
    topic: str,
    group_id: str,
    transactional_id: str,
    transform: Transform,
    output_topic: str | None = None,
    run_id: str | None = None,
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
) -> ConsumeResult:
    """Consume, transform, produce: all output and the group's new position commit together, or nothing does.

    With `output_topic`, `transform` gives its DataFrame; without, one for each topic that it names (`write_topics`).

    However often it is run again, killed, or run twice at once, each record of `topic` goes into committed output
    once. A run first ends what an earlier one of the same transactional id left open. `before_commit` is called when
    all is written and only the decision is missing. `checks` and `report_folder` are `write_topic`'s; a mapping names
    the topics whose output they see. Where they are red the position stays as well. A run without records is not
    checked.

    Raises what `read_topic` and `write_topic` raise. `UnstableOffsetCommitError`: a run under *another* transactional
    id has offsets of this group pending; try again.
    """
    layout = FileLayout(sort_within_files, by_partition)
    if run_id is not None:
        check_run_id(run_id, actor="run_consume_job")
    with (
        opened(url_or_engine, **connect_kwargs) as engine,
        engine.producer(
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            markers=markers,
        ) as producer,
    ):
        outputs_known = None if output_topic is None else (output_topic,)
        letters = dead_letters_to(
            engine,
            dead_letter_topic,
            max_dead_letters,
            actor="run_consume_job",
            source_topic=topic,
            run_id=run_id,
        )
        vote = vote_of(
            checks,
            report_folder,
            engine=engine,
            outputs=outputs_known,
            actor="run_consume_job",
            letters=letters,
        )
        read, initialised = _read(spark, engine, producer, topic, group_id)
        if not read.record_count:
            if read.offsets.start != read.offsets.end:
                if not initialised:
                    producer.init_transactions()
                commit_offsets(producer, read.offsets)
            return ConsumeResult(read.offsets, 0, 0, skipped=True)
        outputs = outputs_of(transform(read.df), output_topic, "run_consume_job")
        if outputs:
            check_write(engine, outputs, read.offsets, layout, letters=letters)
        if not initialised:
            producer.init_transactions()
        if not outputs:
            if run_id is not None and producer.has_committed(run_id):
                return ConsumeResult(read.offsets, 0, 0, skipped=True)
            commit_offsets(producer, read.offsets)
            return ConsumeResult(read.offsets, read.record_count, 0, skipped=False)
        written = write_with(
            engine,
            producer,
            outputs,
            offsets=read.offsets,
            run_id=run_id,
            layout=layout,
            before_commit=before_commit,
            vote=vote,
            letters=letters,
        )
    if any(result.already_committed for result in written.values()):
        return ConsumeResult(read.offsets, 0, 0, skipped=True, writes=written)
    records = sum(result.records for result in written.values())
    dead = sum(result.dead_letters for result in written.values())
    return ConsumeResult(
        read.offsets, read.record_count, records, skipped=False, writes=written, dead_letters=dead
    )


def outputs_of(output: Output, output_topic: str | None, actor: str) -> Mapping[str, DataFrame]:
    """By topic. Raises `InvalidRequestError` where it is not said, or said twice, which topic is written to, and for
    what is no DataFrame.
    """
    given = "DataFrames by topic" if isinstance(output, Mapping) else type(output).__name__
    if output_topic is None and isinstance(output, Mapping):
        for topic, frame in output.items():
            if not isinstance(frame, DataFrame):
                raise InvalidRequestError(
                    f"{type(frame).__name__} for topic {topic!r}",
                    actor=actor,
                    expected="a DataFrame",
                    action="nothing was written",
                    reason=Reason.NOT_A_DATAFRAME,
                )
        return output
    if output_topic is not None and isinstance(output, DataFrame):
        return {output_topic: output}
    raise InvalidRequestError(
        f"an output of {given}, and output_topic {output_topic!r}",
        actor=actor,
        expected="a DataFrame and its output_topic, or a mapping from topic to DataFrame and no output_topic",
        action="nothing was written",
        reason=Reason.OUTPUT_WITHOUT_TOPIC,
    )


def _read(
    spark: SparkSession, engine: Engine, producer: Producer, topic: str, group_id: str
) -> tuple[TopicRead, bool]:
    """What is new; and whether the producer had to be initialised for it, to end what an earlier run had pending."""
    try:
        return read_topic(spark, engine, topic, group_id=group_id), False
    except UnstableOffsetCommitError:
        producer.init_transactions()
        return read_topic(spark, engine, topic, group_id=group_id), True
