"""`write_topic`, `write_topics`: DataFrames into topics, with the offsets of their input, in one transaction."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from immutables import Map
from pyspark.sql import DataFrame, Row

from txn_engine.engine import Engine
from txn_engine.errors import (
    InvalidGroupIdError,
    InvalidRecordError,
    InvalidRequestError,
    OffsetsMovedError,
    OffsetsPendingError,
    TxnEngineError,
)
from txn_engine.loading.dead_letters import told_reasons
from txn_engine.log.topics import Topic
from txn_engine.producer import MAX_BLOCK_MS, ForgottenRuns, Producer, check_run_is_there, run_into
from txn_engine.producer.runs import check_forgotten_runs, check_run_id
from txn_engine.quality.suite_run import SuitesRun
from txn_engine.reasons import Reason
from txn_engine.row_checks import RowCheck, checks_on
from txn_engine.spark.columns import check_columns
from txn_engine.spark.dead_letters import DeadLettersTo, LetterTarget, counted_reasons, dead_letters_to
from txn_engine.spark.errors import SPARK_FAILURES, SparkJobError, reason, reason_of
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
    the vote that was held on all outputs of the transaction, where checks were asked for. `dead_letters`: rows for this
    topic that went to the dead-letter topic; `reasons`: why, and how many, for a log: no value of a row is in it.
    """

    topic: str
    records: int
    batches: tuple[RecordMetadata, ...]
    offsets: Mapping[TopicPartition, int] = field(default_factory=Map)
    already_committed: bool = False
    checks: SuitesRun | None = None
    dead_letters: int = 0
    reasons: Mapping[str, int] = field(default_factory=Map)

    @property
    def told_reasons(self) -> str:
        """How many dead letters of each reason, for a log."""
        return told_reasons(self.reasons)

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
    dead_letter_topic: str | None = None,
    max_dead_letters: int | str | None = None,
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

    With a `dead_letter_topic` rows that do not fit (a null in a column that takes none, a value that the topic's type
    does not hold) go there, in the same transaction: records and dead letters are all rows of the DataFrame. Columns
    may then have wider types than the topic's, whose values may fit: integers, decimals, times of a finer unit. Where
    the DataFrame has columns `_topic`, `_partition`, `_offset` of a read, letters say by them where a row is from, and
    they are not written. Above `max_dead_letters` (a count, or a share as "1%" of all rows of the transaction) nothing
    is ever visible. An expectation of `checks` whose meta says `on_failure: dead_letter` is made row by row, before the
    vote: rows that fail it are dead letters. A vote sees the others.

    Raises:
        InvalidRecordError: columns do not fit; before anything is written. Or too many rows do not. SparkJobError: the
            job failed.
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
        dead_letter_topic=dead_letter_topic,
        max_dead_letters=max_dead_letters,
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
    dead_letter_topic: str | None = None,
    max_dead_letters: int | str | None = None,
    **connect_kwargs: Any,
) -> dict[str, WriteResult]:
    """As `write_topic`, of a DataFrame for each of several topics: all of them and the offsets are one transaction.

    Whatever is wrong with one output is found before anything of any is uploaded; a run that dies leaves all of them or
    none. They are computed one after the other: `cache()` what they share. With a `run_id`, the run is remembered when
    any of them had rows. `checks`: a suite for every output, or a mapping from topic to suite; one that is red stops
    all of them.
    """
    layout = FileLayout(sort_within_files, by_partition)
    if run_id is not None:
        check_run_id(run_id, actor=_actor(outputs))
    check_forgotten_runs(forgotten_runs)
    if offsets is not None and not isinstance(offsets, ReadOffsets):
        raise InvalidRequestError(
            f"offsets of type {type(offsets).__name__}",
            actor=_actor(outputs),
            expected="the offsets of what read_topic returned",
            reason=Reason.BAD_ARGUMENT,
        )
    with opened(url_or_engine, **connect_kwargs) as engine:
        letters = dead_letters_to(
            engine,
            dead_letter_topic,
            max_dead_letters,
            actor=_actor(outputs),
            source_topic=source_of(offsets),
            run_id=run_id,
        )
        vote = vote_of(
            checks,
            report_folder,
            engine=engine,
            outputs=outputs,
            actor=_actor(outputs),
            letters=letters,
        )
        check_write(engine, outputs, offsets, layout, letters=letters)
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
                letters=letters,
            )


def source_of(offsets: ReadOffsets | None) -> str | None:
    """The topic that rows come from; None where there are several, or none that is known."""
    return offsets.topics[0] if offsets is not None and len(offsets.topics) == 1 else None


def check_write(
    engine: Engine,
    outputs: Mapping[str, DataFrame],
    offsets: ReadOffsets | None,
    layout: FileLayout = _AS_IT_COMES,
    *,
    letters: DeadLettersTo | None = None,
) -> None:
    """Refuse what can be refused before anything is written; `letters`: where rows go that do not fit."""
    if not outputs:
        raise InvalidRequestError(
            "no outputs",
            actor="write_topics",
            expected="a DataFrame for one topic or more",
            reason=Reason.NO_OUTPUTS,
        )
    if letters is not None:
        letters.check_none_of(outputs)
    for topic, df in outputs.items():
        check_classic(df.sparkSession, _actor(outputs))
        info = engine.logs.topics.look_up(topic)
        check_columns(df.schema, info.schema, topic=topic, has_letters=letters is not None)
        layout.check(info)
    if offsets is not None and offsets.group is None:
        raise InvalidGroupIdError(
            f"offsets of a read of {', '.join(offsets.topics)} without a group",
            actor=_actor(outputs),
            expected="those of read_topic(..., group_id=...)",
            reason=Reason.NO_GROUP,
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
    letters: DeadLettersTo | None = None,
) -> dict[str, WriteResult]:
    """The write, by a producer that has been initialised. The vote is held before the transaction begins.

    forgotten_runs: "load" where offsets, or the caller, know what was written before.
    """
    topics = {topic: engine.logs.topics.look_up(topic) for topic in outputs}
    if run_id is not None and producer.committed_before(run_id, forgotten_runs=forgotten_runs):
        check_run_is_there(engine.logs, str(producer.transactional_id), run_id, *topics.values())
        return {topic: WriteResult(topic, 0, (), already_committed=True) for topic in outputs}
    row_checks = {topic: () if vote is None else vote.row_checks_of(topic) for topic in outputs}
    for topic, checks in row_checks.items():
        checks_on(checks, topics[topic].schema)
    uploaded = {
        topic: upload_rows(
            engine,
            producer,
            rows,
            topics[topic],
            layout,
            letters,
            row_checks[topic],
        )
        for topic, rows in outputs.items()
    }
    if letters is not None:
        letters.check_count(*_totals(uploaded.values()))
    files = {topics[topic]: each.files for topic, each in uploaded.items()}
    checked = _vote(engine, vote, outputs, files)
    if letters is not None:
        files[letters.topic] = [file for each in uploaded.values() for file in each.letters]
    has_files = any(files.values())
    if not has_files and any(isinstance(rows, FileRows) for rows in outputs.values()):
        raise InvalidRecordError(
            "no records in any file",
            actor=_actor(outputs),
            expected="at least one",
            reason=Reason.NO_RECORDS,
        )
    if not has_files and offsets is None:
        return {topic: WriteResult(topic, 0, (), checks=checked) for topic in outputs}

    def send() -> dict[str, tuple[RecordMetadata, ...]]:
        sent = {
            topic.name: producer.produce_files(topic, [(file.partition, file.encoded()) for file in named])
            for topic, named in files.items()
            if named
        }
        return {topic: tuple(future.result()) for topic, future in sent.items()}

    batches = _commit(producer, _actor(outputs), send, offsets, run_id if has_files else None, before_commit)
    end: Mapping[TopicPartition, int] = Map() if offsets is None else offsets.end
    return {
        topic: WriteResult(
            topic,
            each.records,
            batches.get(topic, ()),
            end,
            checks=checked,
            dead_letters=each.dead_letters,
            reasons=Map(each.reasons),
        )
        for topic, each in uploaded.items()
    }


@dataclass(frozen=True, slots=True)
class _Uploaded:
    """What an output's tasks put on the store: files for its topic, and for the dead-letter topic."""

    files: list[UploadedFile]
    letters: list[UploadedFile]

    @property
    def records(self) -> int:
        return sum(file.record_count for file in self.files)

    @property
    def dead_letters(self) -> int:
        return sum(file.record_count for file in self.letters)

    @property
    def reasons(self) -> dict[str, int]:
        return counted_reasons(file.reasons or "{}" for file in self.letters)


def _totals(uploaded: Iterable[_Uploaded]) -> tuple[int, int, dict[str, int]]:
    """Of all outputs: the dead letters, all rows, and the reasons."""
    dead = rows = 0
    reasons: Counter[str] = Counter()
    for each in uploaded:
        dead += each.dead_letters
        rows += each.records + each.dead_letters
        reasons.update(each.reasons)
    return dead, rows, reasons


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


def upload_rows(
    engine: Engine,
    producer: Producer,
    rows: DataFrame | FileRows,
    topic: Topic,
    layout: FileLayout,
    letters: DeadLettersTo | None,
    row_checks: Sequence[RowCheck],
) -> _Uploaded:
    """Run the job; the files of the task attempts that count."""
    columns, rows_of = (
        (topic.schema.names, rows.rows_of) if isinstance(rows, FileRows) else (rows.columns, None)
    )
    uploader = Uploader(
        store_for_executors(engine.store),
        topic,
        producer.producer_id,
        producer.producer_epoch,
        _log_ends(engine, topic),
        engine.clock(),
        tuple(columns),
        rows_of,
        None
        if letters is None
        else LetterTarget(letters, _log_ends(engine, letters.topic), tuple(row_checks)),
    )
    try:
        if isinstance(rows, FileRows):
            uploaded = rows.files.mapInArrow(uploader.upload, UPLOADED).collect()
        else:
            uploaded = _sent(rows, uploader, layout)
    except SPARK_FAILURES as error:
        raise SparkJobError(reason(error), actor=_actor([topic.name]), reason=reason_of(error)) from error
    files = [UploadedFile(*row) for row in uploaded]
    return _Uploaded(
        [file for file in files if file.reasons is None],
        [file for file in files if file.reasons is not None],
    )


def _log_ends(engine: Engine, topic: Topic) -> tuple[int, ...]:
    """Where the logs end: no upload has begun."""
    logs = [engine.logs.get(topic.name, topic.incarnation, number) for number in range(topic.partitions)]
    return tuple(state.log_end_offset for state in engine.logs.refresh_all(logs))


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
