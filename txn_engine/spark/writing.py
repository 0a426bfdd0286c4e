"""`write_topic`, `write_topics`: DataFrames into topics, with the offsets of their input, in one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from immutables import Map
from pyspark.sql import DataFrame, Row

from txn_engine.engine import Engine
from txn_engine.errors import (
    InvalidGroupIdError,
    InvalidRequestError,
    OffsetsMovedError,
    OffsetsPendingError,
    TxnEngineError,
)
from txn_engine.log.topics import Topic
from txn_engine.producer import MAX_BLOCK_MS, ForgottenRuns, Producer, run_into
from txn_engine.quality.suite_run import SuitesRun
from txn_engine.spark.columns import check_columns
from txn_engine.spark.errors import SPARK_FAILURES, SparkJobError, reason
from txn_engine.spark.layout import FileLayout
from txn_engine.spark.opening import UrlOrEngine, check_classic, opened, store_for_executors
from txn_engine.spark.reading import ReadOffsets
from txn_engine.spark.transfer import quick_transfer
from txn_engine.spark.uploading import UPLOADED, RowsOf, UploadedFile, Uploader
from txn_engine.spark.voting import Checks, Vote, vote_of
from txn_engine.types import MarkerMode, RecordMetadata, TopicPartition

DEFAULT_TIMEOUT_MS = 60_000
_AS_IT_COMES = FileLayout()


@dataclass(frozen=True, slots=True)
class FileRows:
    """Files that tasks make rows of themselves; `rows_of` pickles, and gives batches in the topic's schema."""

    files: DataFrame
    rows_of: RowsOf


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What one transaction wrote: `batches` are its files, in the order of the DataFrame, and where they went.

    `already_committed`: a transaction with this run id had been committed before, so nothing was written now. `checks`:
    the vote that was held on all outputs of the transaction, where checks were asked for.
    """

    topic: str
    records: int
    batches: tuple[RecordMetadata, ...]
    offsets: Mapping[TopicPartition, int] = field(default_factory=Map)
    already_committed: bool = False
    checks: SuitesRun | None = None

    @property
    def files(self) -> int:
        """How many data files were written."""
        return len(self.batches)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions of the topic that got records."""
        return tuple(sorted({batch.partition for batch in self.batches}))


def write_topic(
    df: DataFrame,
    url_or_engine: UrlOrEngine,
    topic: str,
    *,
    transactional_id: str,
    offsets: ReadOffsets | None = None,
    run_id: str | None = None,
    forgotten_runs: ForgottenRuns = "refuse",
    transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    markers: MarkerMode = "inline",
    sort_within_files: bool | Sequence[str] = False,
    by_partition: bool | None = None,
    checks: Checks | None = None,
    report_folder: str | os.PathLike[str] | None = None,
    **connect_kwargs: Any,
) -> WriteResult:
    """Append a DataFrame's rows to a topic, and commit `offsets` of the read that it came from, all or nothing.

    Executors write the data files, which nobody sees; then the driver opens one transaction that names them and
    commits. So the transaction lives for moments however long the job runs, and a task that failed, was repeated or
    speculated leaves no trace but files for the clean-up. A run that is run again under its transactional id fences
    what the first try left behind; with a `run_id`, one whose first try committed writes nothing. The log knows the
    last 100 runs of a transactional id: from then on a run that is none of them is refused, unless `forgotten_runs` is
    "load", or there are `offsets`, which refuse an older one as well. A run that has no rows is not remembered: run
    again, it writes what came late.

    Columns are matched by name and must have Spark's types for the topic's. Every record gets the time at which the
    write began. Each task writes files of up to 128 MiB, one at a time for each partition that it has rows for; records
    of one key keep the DataFrame's order. `sort_within_files` sorts those of a task by the topic's key (True), or by
    the columns named, so that files tell apart what they hold. `by_partition`: whether a shuffle first brings the rows
    of a partition together; `FileLayout` says when it does unless told. On a cluster this package has to be installed
    where the executors run.

    `checks` vote: a suite (`txn_engine.quality.load_suite` says in which forms) that runs on the files once they are
    uploaded, and before the transaction begins. They see the topic's columns, `_partition` and `_timestamp`. Where a
    critical check fails or cannot be made nothing is ever visible; a warning is logged. A run that was committed before
    is not checked again. With `report_folder` a page, `validation.json` and Data Docs are left there; they quote rows.

    Raises:
        InvalidRecordError: columns do not fit; before anything is written. SparkJobError: the job failed.
        ChecksFailedError: a check was red; it names checks and counts. ChecksErroredError: none could be made.
        OffsetsMovedError: another run has committed this range; final. OffsetsPendingError: it is about to.
        ProducerFencedError: a newer run of this transactional id took over.
    """
    written = write_topics(
        {topic: df},
        url_or_engine,
        transactional_id=transactional_id,
        offsets=offsets,
        run_id=run_id,
        forgotten_runs=forgotten_runs,
        transaction_timeout_ms=transaction_timeout_ms,
        markers=markers,
        sort_within_files=sort_within_files,
        by_partition=by_partition,
        checks=checks,
        report_folder=report_folder,
        **connect_kwargs,
    )
    return written[topic]


def write_topics(
    outputs: Mapping[str, DataFrame],
    url_or_engine: UrlOrEngine,
    *,
    transactional_id: str,
    offsets: ReadOffsets | None = None,
    run_id: str | None = None,
    forgotten_runs: ForgottenRuns = "refuse",
    transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    markers: MarkerMode = "inline",
    sort_within_files: bool | Sequence[str] = False,
    by_partition: bool | None = None,
    checks: Checks | None = None,
    report_folder: str | os.PathLike[str] | None = None,
    **connect_kwargs: Any,
) -> dict[str, WriteResult]:
    """As `write_topic`, of a DataFrame for each of several topics: all of them and the offsets are one transaction.

    Whatever is wrong with one output is found before anything of any is uploaded; a run that dies leaves all of them or
    none. They are computed one after the other: `cache()` what they share. With a `run_id`, the run is remembered when
    any of them had rows. `checks`: a suite for every output, or a mapping from topic to suite; one that is red stops
    all of them.
    """
    layout = FileLayout(sort_within_files, by_partition)
    with opened(url_or_engine, **connect_kwargs) as engine:
        check_write(engine, outputs, offsets, layout)
        vote = vote_of(checks, report_folder, engine=engine, outputs=outputs, actor=_actor(outputs))
        with engine.producer(
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            markers=markers,
        ) as producer:
            producer.init_transactions()
            if run_id is not None and offsets is None:
                run_id = run_into(run_id, *map(engine.logs.topics.look_up, outputs))
            return write_with(
                engine,
                producer,
                outputs,
                offsets=offsets,
                run_id=run_id,
                forgotten_runs="load" if offsets is not None else forgotten_runs,
                layout=layout,
                vote=vote,
            )


def check_write(
    engine: Engine,
    outputs: Mapping[str, DataFrame],
    offsets: ReadOffsets | None,
    layout: FileLayout = _AS_IT_COMES,
) -> None:
    """Refuse what can be refused before anything is written."""
    if not outputs:
        raise InvalidRequestError(
            "no outputs", actor="write_topics", expected="a DataFrame for one topic or more"
        )
    for topic, df in outputs.items():
        check_classic(df.sparkSession, _actor(outputs))
        info = engine.logs.topics.look_up(topic)
        check_columns(df.schema, info.schema, topic=topic)
        layout.check(info)
    if offsets is not None and offsets.group is None:
        raise InvalidGroupIdError(
            f"offsets of a read of {', '.join(offsets.topics)} without a group",
            actor=_actor(outputs),
            expected="those of read_topic(..., group_id=...)",
        )


def write_with(
    engine: Engine,
    producer: Producer,
    outputs: Mapping[str, DataFrame] | Mapping[str, FileRows],
    *,
    offsets: ReadOffsets | None,
    run_id: str | None,
    forgotten_runs: ForgottenRuns = "load",
    layout: FileLayout = _AS_IT_COMES,
    before_commit: Callable[[], None] | None = None,
    vote: Vote | None = None,
) -> dict[str, WriteResult]:
    """The write, by a producer that has been initialised. The vote is held before the transaction begins.

    forgotten_runs: "load" where offsets, or the caller, know what was written before.
    """
    if run_id is not None and producer.committed_before(run_id, forgotten_runs=forgotten_runs):
        return {topic: WriteResult(topic, 0, (), already_committed=True) for topic in outputs}
    topics = {topic: engine.logs.topics.look_up(topic) for topic in outputs}
    uploaded = {
        topic: _upload(engine, producer, rows, topics[topic], layout) for topic, rows in outputs.items()
    }
    checked = _vote(engine, vote, outputs, {topics[topic]: files for topic, files in uploaded.items()})
    has_files = any(uploaded.values())
    if not has_files and offsets is None:
        return {topic: WriteResult(topic, 0, (), checks=checked) for topic in outputs}

    def send() -> dict[str, tuple[RecordMetadata, ...]]:
        sent = {
            topic: producer.produce_files(topics[topic], [(file.partition, file.encoded()) for file in files])
            for topic, files in uploaded.items()
            if files
        }
        return {topic: tuple(future.result()) for topic, future in sent.items()}

    batches = _commit(producer, _actor(outputs), send, offsets, run_id if has_files else None, before_commit)
    end: Mapping[TopicPartition, int] = Map() if offsets is None else offsets.end
    return {
        topic: WriteResult(
            topic, sum(file.record_count for file in files), batches.get(topic, ()), end, checks=checked
        )
        for topic, files in uploaded.items()
    }


def _vote(
    engine: Engine,
    vote: Vote | None,
    outputs: Mapping[str, DataFrame] | Mapping[str, FileRows],
    uploaded: Mapping[Topic, Sequence[UploadedFile]],
) -> SuitesRun | None:
    if vote is None:
        return None
    frames = [rows.files if isinstance(rows, FileRows) else rows for rows in outputs.values()]
    return vote.hold(engine, frames[0].sparkSession, uploaded, actor=_actor(outputs))


def commit_offsets(producer: Producer, offsets: ReadOffsets) -> None:
    """Move the group over a range without records, as if it had been written; by a producer that was initialised."""
    _commit(producer, _actor(offsets.topics), dict, offsets, None, None)


def _actor(topics: Iterable[str]) -> str:
    """Who writes, in an error."""
    return f"write_topic to {', '.join(map(repr, topics))}"


def _upload(
    engine: Engine, producer: Producer, rows: DataFrame | FileRows, topic: Topic, layout: FileLayout
) -> list[UploadedFile]:
    """Run the job; the files of the task attempts that count."""
    logs = [engine.logs.get(topic.name, topic.incarnation, number) for number in range(topic.partitions)]
    log_ends = tuple(state.log_end_offset for state in engine.logs.refresh_all(logs))
    columns, rows_of = (
        (topic.schema.names, rows.rows_of) if isinstance(rows, FileRows) else (rows.columns, None)
    )
    uploader = Uploader(
        store_for_executors(engine.store),
        topic,
        producer.producer_id,
        producer.producer_epoch,
        log_ends,
        engine.clock(),
        tuple(columns),
        rows_of,
    )
    try:
        if isinstance(rows, FileRows):
            uploaded = rows.files.mapInArrow(uploader.upload, UPLOADED).collect()
        else:
            uploaded = _sent(rows, uploader, layout)
    except SPARK_FAILURES as error:
        raise SparkJobError(reason(error), actor=_actor([topic.name])) from error
    return [UploadedFile(*row) for row in uploaded]


def _sent(df: DataFrame, uploader: Uploader, layout: FileLayout) -> list[Row]:
    # mapInArrow looks columns up by name, and a topic's may hold backticks or dots, or differ by case alone.
    numbered = df.toDF(*(f"column{number}" for number in range(len(df.columns))))
    with quick_transfer(df.sparkSession):
        arranged = layout.arrange(numbered, df.columns, uploader.topic)
        return arranged.mapInArrow(uploader.upload, UPLOADED).collect()


def _commit(
    producer: Producer,
    actor: str,
    send: Callable[[], dict[str, tuple[RecordMetadata, ...]]],
    offsets: ReadOffsets | None,
    run_id: str | None,
    before_commit: Callable[[], None] | None,
) -> dict[str, tuple[RecordMetadata, ...]]:
    """One transaction. The offsets go first: a run that is refused for them leaves no entry in a topic."""
    producer.begin_transaction(run_id)
    try:
        if offsets is not None and offsets.group is not None:
            producer.send_offsets_to_transaction(offsets.end, offsets.group)
        batches = send()
        if before_commit is not None:
            before_commit()
        producer.commit_transaction(max_block_ms=MAX_BLOCK_MS)
    except (OffsetsMovedError, OffsetsPendingError) as error:
        _abort(producer)
        raise _overlapping(error, actor) from error
    except BaseException:
        _abort(producer)
        raise
    return batches


def _abort(producer: Producer) -> None:
    """Abort if that can be; else the transaction's time-out does it, and the first error is the one to hear of."""
    try:
        producer.abort_transaction()
    except TxnEngineError:
        return


def _overlapping(error: OffsetsMovedError | OffsetsPendingError, actor: str) -> TxnEngineError:
    if isinstance(error, OffsetsMovedError):
        action = (
            "another run has processed this range and committed; nothing of this one is visible: read again"
        )
    else:
        action = "another run is about to commit this range; nothing of this one is visible: try again"
    return type(error)(
        error.seen,
        actor=actor + (f", {error.actor}" if error.actor else ""),
        place=error.place,
        expected=error.expected,
        action=action,
    )
