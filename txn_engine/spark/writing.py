"""`write_topic`: a DataFrame into a topic, with the offsets of what it was made from, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from immutables import Map
from pyspark.sql import DataFrame

from txn_engine.clock import pause_ms
from txn_engine.engine import Engine
from txn_engine.errors import (
    InvalidGroupIdError,
    OffsetsMovedError,
    OffsetsPendingError,
    OutcomeUnknownError,
    RequestTimedOutError,
    StoreUnavailableError,
    TxnEngineError,
)
from txn_engine.log.topics import Topic
from txn_engine.producer import Producer
from txn_engine.spark.columns import check_columns
from txn_engine.spark.errors import SPARK_FAILURES, SparkJobError, reason
from txn_engine.spark.opening import UrlOrEngine, opened, store_for_executors
from txn_engine.spark.reading import ReadOffsets
from txn_engine.spark.uploading import UPLOADED, UploadedFile, Uploader
from txn_engine.types import MarkerMode, RecordMetadata, TopicPartition

DEFAULT_TIMEOUT_MS = 60_000
_COMMIT_TRIES = 4
_COMMIT_PAUSE_MS = 500


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What one transaction wrote: `batches` are its files, in the order of the DataFrame, and where they went.

    `already_committed`: a transaction with this run id had been committed before, so nothing was written now.
    """

    topic: str
    records: int
    batches: tuple[RecordMetadata, ...]
    offsets: Mapping[TopicPartition, int] = field(default_factory=Map)
    already_committed: bool = False

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
    transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    markers: MarkerMode = "inline",
    **connect_kwargs: Any,
) -> WriteResult:
    """Append a DataFrame's rows to a topic, and commit `offsets` of the read that it came from, all or nothing.

    Executors write the data files, which nobody sees; then the driver opens one transaction that names them and
    commits. So the transaction lives for moments however long the job runs, and a task that failed, was repeated or
    speculated leaves no trace but files for the clean-up. A run that is run again under its transactional id fences
    what the first try left behind; with a `run_id`, one whose first try committed writes nothing, as long as it is
    among the last 100 runs of its transactional id (`offsets` refuse an older one as well). A run that has no rows is
    not remembered: run again, it writes what came late.

    Columns are matched by name and must have Spark's types for the topic's. Every record gets the time at which the
    write began. On a cluster this package has to be installed where the executors run.

    Raises:
        InvalidRecordError: columns do not fit; before anything is written. SparkJobError: the job failed.
        OffsetsMovedError: another run has committed this range; final. OffsetsPendingError: it is about to.
        ProducerFencedError: a newer run of this transactional id took over.
    """
    with opened(url_or_engine, **connect_kwargs) as engine:
        check_write(engine, df, topic, offsets)
        with engine.producer(
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            markers=markers,
        ) as producer:
            producer.init_transactions()
            return write_with(engine, producer, df, topic, offsets=offsets, run_id=run_id)


def check_write(engine: Engine, df: DataFrame, topic: str, offsets: ReadOffsets | None) -> None:
    """Refuse what can be refused before anything is written."""
    check_columns(df.schema, engine.logs.topics.look_up(topic).schema, topic=topic)
    if offsets is not None and offsets.group is None:
        raise InvalidGroupIdError(
            f"offsets of a read of {', '.join(offsets.topics)} without a group",
            actor=f"write_topic to {topic!r}",
            expected="those of read_topic(..., group_id=...)",
        )


def write_with(
    engine: Engine,
    producer: Producer,
    df: DataFrame,
    topic: str,
    *,
    offsets: ReadOffsets | None,
    run_id: str | None,
    before_commit: Callable[[], None] | None = None,
) -> WriteResult:
    """The write, by a producer that has been initialised."""
    if run_id is not None and producer.has_committed(run_id):
        return WriteResult(topic, 0, (), already_committed=True)
    info = engine.logs.topics.look_up(topic)
    uploaded = _upload(engine, producer, df, info)
    files = [(file.partition, file.encoded()) for file in uploaded]

    def send() -> list[RecordMetadata]:
        return producer.produce_files(info, files).result()

    if not files and offsets is None:
        return WriteResult(topic, 0, ())
    batches = _commit(producer, topic, send, offsets, run_id if files else None, before_commit)
    records = sum(file.record_count for file in uploaded)
    return WriteResult(topic, records, tuple(batches), Map() if offsets is None else offsets.end)


def commit_offsets(producer: Producer, offsets: ReadOffsets) -> None:
    """Move the group over a range without records, as if it had been written; by a producer that was initialised."""
    _commit(producer, ", ".join(offsets.topics), list, offsets, None, None)


def _upload(engine: Engine, producer: Producer, df: DataFrame, topic: Topic) -> list[UploadedFile]:
    """Run the job; the files of the task attempts that count."""
    logs = [engine.logs.get(topic.name, topic.incarnation, number) for number in range(topic.partitions)]
    log_ends = tuple(state.log_end_offset for state in engine.logs.refresh_all(logs))
    uploader = Uploader(
        store_for_executors(engine.store),
        topic,
        producer.producer_id,
        producer.producer_epoch,
        log_ends,
        engine.clock(),
        tuple(df.columns),
    )
    try:
        # mapInArrow looks columns up by name, and a topic's may hold backticks or dots, or differ by case alone.
        numbered = df.toDF(*(f"column{number}" for number in range(len(df.columns))))
        rows = numbered.mapInArrow(uploader.upload, UPLOADED).collect()
    except SPARK_FAILURES as error:
        raise SparkJobError(reason(error), actor=f"write_topic to {topic.name!r}") from error
    return [UploadedFile(*row) for row in rows]


def _commit(
    producer: Producer,
    topic: str,
    send: Callable[[], list[RecordMetadata]],
    offsets: ReadOffsets | None,
    run_id: str | None,
    before_commit: Callable[[], None] | None,
) -> list[RecordMetadata]:
    """One transaction. The offsets go first: a run that is refused for them leaves no entry in the topic."""
    producer.begin_transaction(run_id)
    try:
        if offsets is not None and offsets.group is not None:
            producer.send_offsets_to_transaction(offsets.end, offsets.group)
        batches = send()
        if before_commit is not None:
            before_commit()
        _decide(producer)
    except (OffsetsMovedError, OffsetsPendingError) as error:
        _abort(producer)
        raise _overlapping(error, topic) from error
    except BaseException:
        _abort(producer)
        raise
    return batches


def _decide(producer: Producer) -> None:
    """Commit; where the store did not answer, ask again: the answer is then the log's."""
    for left in reversed(range(_COMMIT_TRIES)):
        try:
            producer.commit_transaction()
        except (OutcomeUnknownError, StoreUnavailableError, RequestTimedOutError):
            if not left:
                raise
            pause_ms(_COMMIT_PAUSE_MS)
        else:
            return


def _abort(producer: Producer) -> None:
    """Abort if that can be; else the transaction's time-out does it, and the first error is the one to hear of."""
    try:
        producer.abort_transaction()
    except TxnEngineError:
        return


def _overlapping(error: OffsetsMovedError | OffsetsPendingError, topic: str) -> TxnEngineError:
    if isinstance(error, OffsetsMovedError):
        action = (
            "another run has processed this range and committed; nothing of this one is visible: read again"
        )
    else:
        action = "another run is about to commit this range; nothing of this one is visible: try again"
    return type(error)(
        error.seen,
        actor=f"write_topic to {topic!r}" + (f", {error.actor}" if error.actor else ""),
        place=error.place,
        expected=error.expected,
        action=action,
    )
