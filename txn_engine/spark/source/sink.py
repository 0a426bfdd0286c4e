"""The sink of `format("txn_engine")`: a DataFrame, or each micro-batch of a stream, as one transaction.

Spark makes a writer anew in each process that has to do with a write. The one that plans it claims the transactional
id, which fences whoever had it before; executors upload data files under that identity, which nobody sees; and the
process that is told of a job's end resumes the identity and commits. A later run of the query has claimed the id anew
by then, if there is one, and this commit is refused.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from txn_engine.engine import Engine
from txn_engine.errors import (
    IllegalStateError,
    InvalidRequestError,
    InvalidTxnStateError,
    ProducerFencedError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.ids import new_write_id
from txn_engine.producer import MAX_BLOCK_MS, Producer
from txn_engine.reasons import Reason
from txn_engine.spark.columns import check_columns
from txn_engine.spark.errors import reasons_in_text
from txn_engine.spark.opening import store_for_executors
from txn_engine.spark.source.checkpoint import offsets_of
from txn_engine.spark.source.columns import kafka_rows
from txn_engine.spark.source.opening import open_engine
from txn_engine.spark.source.options import ACTOR, SinkOptions
from txn_engine.spark.uploading import UploadedFile, Uploader
from txn_engine.types import ProducerIdAndEpoch

_QUERY_ID: Final = "sql.streaming.queryId"
_PREFIX: Final = "spark-"


@dataclass(frozen=True, slots=True)
class Claim:
    """What the planning process found out for a write: whose it is, and where it goes."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    incarnation: int
    uploader: Uploader


@dataclass
class Uploaded(WriterCommitMessage):
    """What one task put on the store, under which claim, and of which query."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    incarnation: int
    query_id: str | None
    files: tuple[UploadedFile, ...]


class _Writer:
    """What both kinds of write have in common. It pickles with its claim, which it makes when it is first pickled:
    that is in the planning process, and nowhere else.
    """

    def __init__(self, options: SinkOptions, schema: StructType, transactional_id: str) -> None:
        self._options = options
        self._schema = schema
        self._transactional_id = transactional_id
        self._claim: Claim | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._claim is None:
            try:
                with reasons_in_text():
                    self._claim = self._claimed()
            except TxnEngineError as error:
                raise _as_pickle_error(error) from None
        return self.__dict__

    def _claimed(self) -> Claim:
        options = self._options
        with open_engine(options.store) as engine:
            topic = engine.logs.topics.look_up(options.topic)
            rows_of = kafka_rows(self._schema, topic)
            if rows_of is None:
                check_columns(self._schema, topic.schema, topic=topic.name)
            with engine.producer(
                transactional_id=self._transactional_id, transaction_timeout_ms=options.transaction_timeout_ms
            ) as producer:
                producer.init_transactions()
                identity = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch)
            logs = [engine.logs.get(topic.name, topic.incarnation, n) for n in range(topic.partitions)]
            ends = tuple(state.log_end_offset for state in engine.logs.refresh_all(logs))
            uploader = Uploader(
                store_for_executors(engine.store),
                topic,
                *identity,
                ends,
                engine.clock(),
                tuple(self._schema.names if rows_of is None else topic.schema.names),
                rows_of,
            )
        return Claim(self._transactional_id, identity, topic.incarnation, uploader)

    def _upload(self, iterator: Iterator[pa.RecordBatch]) -> Uploaded:
        """A task's rows, as files."""
        claim = self._claim
        if claim is None:
            raise IllegalStateError("a writer that was not planned", actor=ACTOR)
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        files = [
            UploadedFile(**row) for batch in claim.uploader.upload(iterator) for row in batch.to_pylist()
        ]
        return Uploaded(claim.transactional_id, claim.identity, claim.incarnation, query_id, tuple(files))

    def _commit(
        self, engine: Engine, producer: Producer, uploaded: Sequence[Uploaded], run_id: str | None
    ) -> None:
        """One transaction over all that the tasks uploaded."""
        topic = engine.logs.topics.look_up(self._options.topic)
        if topic.incarnation != uploaded[0].incarnation:
            raise UnknownTopicOrPartitionError(
                f"topic {topic.name!r} was deleted and made again during the write",
                actor=ACTOR,
                place=engine.url,
                action="write again",
                reason=Reason.TOPIC_MADE_AGAIN,
            )
        files = [(file.partition, file.encoded()) for each in uploaded for file in each.files]
        producer.begin_transaction(run_id)
        producer.produce_files(topic, files).result()
        producer.commit_transaction(max_block_ms=MAX_BLOCK_MS)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: all rows are appended by one transaction, or none."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, options.transactional_id or f"{_PREFIX}{new_write_id()}")
        if options.run_id is not None and options.transactional_id is None:
            raise InvalidRequestError(
                "option 'runId' without 'transactionalId'",
                actor=ACTOR,
                expected="both: it is among the runs of an id that one is found again",
                reason=Reason.RUN_ID_ALONE,
            )

    @reasons_in_text()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Uploaded:  # type: ignore[override]
        """On an executor."""
        return self._upload(iterator)

    @reasons_in_text()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """When all tasks are done."""
        uploaded = _with_files(messages)
        if not uploaded:
            return
        claimed = uploaded[0]
        with (
            open_engine(self._options.store) as engine,
            engine.producer(
                transactional_id=claimed.transactional_id,
                transaction_timeout_ms=self._options.transaction_timeout_ms,
                resume=claimed.identity,
            ) as producer,
        ):
            producer.init_transactions()
            if self._options.run_id is not None and producer.has_committed(self._options.run_id):
                return
            self._commit(engine, producer, uploaded, self._options.run_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to undo: no transaction was begun, and files that none names are for the clean-up."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch is one transaction, committed once however often Spark tries it.

    Its run id is `<query id>/<batch id>/<records>/<digest of its offsets>`. The query id is the one that the checkpoint
    keeps, so a checkpoint that was made anew is another query, and begins anew.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, options.transactional_id or _id_of(options))

    @reasons_in_text()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Uploaded:  # type: ignore[override]
        """On an executor."""
        return self._upload(iterator)

    @reasons_in_text()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """When all tasks of a micro-batch are done."""
        uploaded = _with_files(messages)
        if not uploaded:
            return
        claimed = uploaded[0]
        with (
            open_engine(self._options.store) as engine,
            engine.producer(
                transactional_id=claimed.transactional_id,
                transaction_timeout_ms=self._options.transaction_timeout_ms,
                resume=claimed.identity,
            ) as producer,
        ):
            try:
                producer.init_transactions()
            except ProducerFencedError as error:
                raise _taken_over(error) from None
            records = sum(file.record_count for each in uploaded for file in each.files)
            options = self._options
            offsets = offsets_of(options.checkpoint, batchId, options.store)
            run = StreamRun(_query_of(claimed), batchId, records, offsets)
            if not self._options.take_over and not run.is_of(producer.committed_run_ids):
                _refuse_elsewhere(engine, run, claimed.transactional_id)
            if not run.is_done(producer.committed_run_ids, self._options):
                self._commit(engine, producer, uploaded, str(run))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: no transaction was begun, and files that none names are for the clean-up."""


@dataclass(frozen=True, slots=True)
class StreamRun:
    """A micro-batch of a query: what a transaction is remembered by. `offsets`: a digest of its offsets, "" where they
    are not known; then the number of records tells whether it is the same one.
    """

    query_id: str
    batch_id: int
    records: int
    offsets: str = ""

    def __str__(self) -> str:
        return f"{self.query_id}/{self.batch_id}/{self.records}" + (
            f"/{self.offsets}" if self.offsets else ""
        )

    @staticmethod
    def parse(run_id: str) -> StreamRun | None:
        """The run that was given this id; None for another kind of id."""
        query_id, *rest = run_id.split("/")
        numbers, offsets = rest[:2], rest[2:]
        if len(numbers) != 2 or len(offsets) > 1 or not all(number.isdecimal() for number in numbers):
            return None
        return StreamRun(query_id, int(numbers[0]), int(numbers[1]), *offsets)

    def _is_same(self, other: StreamRun) -> bool:
        if (self.query_id, self.batch_id) != (other.query_id, other.batch_id):
            return False
        if self.offsets and other.offsets:
            return self.offsets == other.offsets
        return self.records == other.records

    def is_of(self, committed: Sequence[str]) -> bool:
        """Whether a micro-batch of the query is among these."""
        return any(
            run is not None and run.query_id == self.query_id for run in map(StreamRun.parse, committed)
        )

    def is_done(self, committed: Sequence[str], options: SinkOptions) -> bool:
        """Whether the latest transaction of the id was this very micro-batch; False where it is the next thing to do.

        Raises `InvalidTxnStateError` where neither is so: the id's latest transaction was another query's, or a later
        batch of this one, or this one with other records. Then the checkpoint is not the one that wrote them.
        """
        last = StreamRun.parse(committed[-1]) if committed else None
        if last is None and not committed:
            return False
        if last is None or last.query_id != self.query_id:
            if options.take_over:
                return False
            raise InvalidTxnStateError(
                f"the latest transaction is {committed[-1]!r}, of another query",
                actor=f"{ACTOR}, query {self.query_id}, batch {self.batch_id}",
                expected="a transactional id of this query's own",
                action="go on with that query's checkpoint, or name another transactionalId; where this query follows "
                "that one with a checkpoint of its own, set takeOver to true",
                reason=Reason.ID_OF_ANOTHER_QUERY,
            )
        if self.batch_id > last.batch_id:
            return False
        if self._is_same(last):
            return True
        raise InvalidTxnStateError(
            f"batch {last.batch_id} of this query is committed, with {last.records} records; "
            f"this is batch {self.batch_id} with {self.records}, of other offsets",
            actor=f"{ACTOR}, query {self.query_id}",
            expected="the batch after the last one, or that very one again",
            action="an older state of the checkpoint was restored: go on with the latest, or begin with a new one",
            reason=Reason.OLDER_CHECKPOINT,
        )


def _refuse_elsewhere(engine: Engine, run: StreamRun, transactional_id: str) -> None:
    """Raise where the query has committed under another id: its checkpoint was moved, or is spelled another way, and
    what it committed there last is not known here. Asked once a query, for it looks at every id.
    """
    for stored in engine.coordinator.rows():
        row = stored.row
        if row.transactional_id != transactional_id and run.is_of(row.committed_run_ids):
            raise InvalidTxnStateError(
                f"this query has committed under {row.transactional_id!r}",
                actor=f"{ACTOR}, query {run.query_id}, batch {run.batch_id}",
                expected=f"its first micro-batch, or that id in place of {transactional_id!r}",
                action=f"the checkpoint was moved or is spelled another way: set transactionalId to "
                f"{row.transactional_id!r}; for an output that is to begin anew set takeOver to true",
                reason=Reason.QUERY_UNDER_ANOTHER_ID,
            )


def _as_pickle_error(error: TxnEngineError) -> pickle.PickleError:
    """The error under its own name, of the one kind that pyspark passes on as it is."""
    kind: type[pickle.PickleError] = type(
        type(error).__name__, (pickle.PickleError,), {"__module__": type(error).__module__}
    )
    return kind(str(error))


def _with_files(messages: Sequence[WriterCommitMessage | None]) -> list[Uploaded]:
    return [each for each in messages if isinstance(each, Uploaded) and each.files]


def _query_of(uploaded: Uploaded) -> str:
    if uploaded.query_id is None:
        raise IllegalStateError("a task did not learn its query's id from Spark", actor=ACTOR)
    return uploaded.query_id


def _id_of(options: SinkOptions) -> str:
    """An id that a query which is started again on its checkpoint gets again."""
    if options.checkpoint is None:
        raise InvalidRequestError(
            "neither 'transactionalId' nor 'checkpointLocation'",
            actor=ACTOR,
            expected="one of them as an option of the sink: by it a query that is started again is known",
            reason=Reason.NO_SINK_ID,
        )
    digest = hashlib.sha256(f"{options.checkpoint.rstrip('/')}\n{options.topic}".encode()).hexdigest()
    return f"{_PREFIX}{digest[:32]}"


def _taken_over(error: ProducerFencedError) -> ProducerFencedError:
    return ProducerFencedError(
        error.seen,
        actor=error.actor,
        place=error.place,
        expected=error.expected,
        action="a newer run of this query is at work, or another one with its transactional id: stop one of them",
        reason=Reason.QUERY_OVERTAKEN,
    )
