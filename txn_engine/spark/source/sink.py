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
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

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
from txn_engine.spark.source.checkpoint import Checkpoint, Plan
from txn_engine.spark.source.columns import kafka_rows
from txn_engine.spark.source.locations import resolved
from txn_engine.spark.source.opening import open_engine
from txn_engine.spark.source.options import ACTOR, SinkOptions
from txn_engine.spark.uploading import UploadedFile, Uploader
from txn_engine.types import ProducerIdAndEpoch

if TYPE_CHECKING:
    from txn_engine.quality.digest import Digest

_QUERY_ID: Final = "sql.streaming.queryId"
_PREFIX: Final = "spark-"


@dataclass(frozen=True, slots=True)
class Claim:
    """What the planning process found out for a write: whose it is, and where it goes."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    incarnation: int
    uploader: Uploader
    digests_rows: bool


@dataclass
class Uploaded(WriterCommitMessage):
    """What one task put on the store, under which claim, and of which query. digest: of its rows, if the claim asks for
    it.
    """

    transactional_id: str
    identity: ProducerIdAndEpoch
    incarnation: int
    query_id: str | None
    files: tuple[UploadedFile, ...]
    digest: Digest | None


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
        return Claim(self._transactional_id, identity, topic.incarnation, uploader, self._digests_rows())

    def _digests_rows(self) -> bool:
        """Whether tasks have to digest their rows."""
        return False

    def _upload(self, iterator: Iterator[pa.RecordBatch]) -> Uploaded:
        """A task's rows, as files."""
        claim = self._claim
        if claim is None:
            raise IllegalStateError("a writer that was not planned", actor=ACTOR)
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        rows = _DigestedRows(iterator) if claim.digests_rows else iterator
        files = [UploadedFile(**row) for batch in claim.uploader.upload(rows) for row in batch.to_pylist()]
        digest = rows.digest if isinstance(rows, _DigestedRows) else None
        return Uploaded(
            claim.transactional_id, claim.identity, claim.incarnation, query_id, tuple(files), digest
        )

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

    The transactional id is made of the checkpoint's folder and the topic. working_directory: as `resolved` takes it.
    """

    def __init__(
        self, options: SinkOptions, schema: StructType, working_directory: str | None = None
    ) -> None:
        url = _checkpoint_url(options, working_directory)
        super().__init__(options, schema, options.transactional_id or _id_of(options, url))
        self._checkpoint = None if url is None else Checkpoint(url, options.store)

    def _digests_rows(self) -> bool:
        return self._checkpoint is None or not self._checkpoint.names_rows()

    @reasons_in_text()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Uploaded:  # type: ignore[override]
        """On an executor."""
        return self._upload(iterator)

    @reasons_in_text()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """When all tasks of a micro-batch are done. One without rows writes nothing, and is held against what the query
        has committed as well: planned again with other rows, it could have none.
        """
        uploaded = [each for each in messages if isinstance(each, Uploaded)]
        if not uploaded:
            return
        claimed, options = uploaded[0], self._options
        with (
            open_engine(options.store) as engine,
            engine.producer(
                transactional_id=claimed.transactional_id,
                transaction_timeout_ms=options.transaction_timeout_ms,
                resume=claimed.identity,
            ) as producer,
        ):
            try:
                producer.init_transactions()
            except ProducerFencedError as error:
                raise _taken_over(error) from None
            run, names_rows = self._run(uploaded, batchId)
            committed = producer.committed_run_ids
            if run.records and not options.take_over and not run.is_of(committed):
                _refuse_elsewhere(engine, run, claimed.transactional_id)
            if not run.is_done(committed, options, names_rows=names_rows) and run.records:
                self._commit(engine, producer, _with_files(uploaded), str(run))

    def _run(self, uploaded: Sequence[Uploaded], batch_id: int) -> tuple[StreamRun, bool]:
        """The micro-batch, and whether its plan names its rows."""
        query_id = _query_of(uploaded[0])
        plan = Plan()
        if self._checkpoint is not None:
            _check_query(self._checkpoint, query_id)
            plan = self._checkpoint.plan(batch_id)
        records = sum(file.record_count for each in uploaded for file in each.files)
        return StreamRun(query_id, batch_id, records, plan.digest, _rows_of(uploaded)), plan.names_rows

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: no transaction was begun, and files that none names are for the clean-up."""


@dataclass(frozen=True, slots=True)
class StreamRun:
    """A micro-batch of a query: what a transaction is remembered by.

    As a run id it is `<query id>/<batch id>/<records>/<plan>/<rows>`. The query id is the one that the checkpoint
    keeps, so a checkpoint that was made anew is another query, and begins anew. plan: a digest of what Spark has
    journalled for the batch; rows: a digest of its rows, whatever their order. Each is "" where it is not known
    (docs/decisions/0030-a-micro-batch-is-known-by-its-plan.md).
    """

    query_id: str
    batch_id: int
    records: int
    plan: str = ""
    rows: str = ""

    def __str__(self) -> str:
        return f"{self.query_id}/{self.batch_id}/{self.records}/{self.plan}/{self.rows}"

    @staticmethod
    def parse(run_id: str) -> StreamRun | None:
        """The run that was given this id; None for another kind of id."""
        query_id, *rest = run_id.split("/")
        if len(rest) != 4 or not (rest[0].isdecimal() and rest[1].isdecimal()):
            return None
        return StreamRun(query_id, int(rest[0]), int(rest[1]), *rest[2:])

    def is_of(self, committed: Sequence[str]) -> bool:
        """Whether a micro-batch of the query is among these."""
        return any(
            run is not None and run.query_id == self.query_id for run in map(StreamRun.parse, committed)
        )

    def is_done(self, committed: Sequence[str], options: SinkOptions, *, names_rows: bool) -> bool:
        """Whether the latest transaction of the id was this very micro-batch; False where it is the next thing to do.

        names_rows: whether batches with this one's plan are about the same rows.

        Raises `InvalidTxnStateError` where neither is so: the id's latest transaction was another query's, or a later
        batch of this one, or this one planned otherwise. Then the checkpoint is not the one that wrote them. It is also
        raised where nothing says whether this batch has the rows that are committed.
        """
        last = StreamRun.parse(committed[-1]) if committed else None
        if last is None and not committed:
            return False
        if last is None or last.query_id != self.query_id:
            if options.take_over:
                return False
            raise _of_another_query(self, committed[-1])
        if self.batch_id > last.batch_id:
            return False
        is_planned_otherwise = bool(self.plan and last.plan) and self.plan != last.plan
        if self.batch_id < last.batch_id or is_planned_otherwise:
            raise _older_checkpoint(self, last)
        is_planned_the_same = bool(self.plan) and self.plan == last.plan
        if is_planned_the_same and names_rows:
            return True
        if self.rows and (self.records, self.rows) == (last.records, last.rows):
            return True
        raise _other_rows(self, last, is_planned_the_same=is_planned_the_same)


class _DigestedRows:
    """A task's rows on their way, and their digest once they are through."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        from txn_engine.quality.digest import Digest, digest_of

        self._batches = batches
        self._digest_of = digest_of
        self.digest = Digest()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.digest = self.digest.plus(self._digest_of(batch))
        return batch


def _rows_of(uploaded: Sequence[Uploaded]) -> str:
    """The digest of a micro-batch's rows; "" where its tasks were not asked for one."""
    digests = [each.digest for each in uploaded if each.digest is not None]
    if len(digests) < len(uploaded):
        return ""
    return reduce(lambda total, digest: total.plus(digest), digests).hex


def _of_another_query(run: StreamRun, committed: str) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"the latest transaction is {committed!r}, of another query",
        actor=f"{ACTOR}, query {run.query_id}, batch {run.batch_id}",
        expected="a transactional id of this query's own",
        action="go on with that query's checkpoint, or name another transactionalId. If its checkpoint was deleted and "
        "this query is to follow it, set takeOver to true: this query reads from startingOffsets, and writes the "
        "records from there on again that the other query has written, so set startingOffsets to where that one ended",
        reason=Reason.ID_OF_ANOTHER_QUERY,
    )


def _older_checkpoint(run: StreamRun, last: StreamRun) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"batch {last.batch_id} of this query is committed, with {last.records} records; this is batch {run.batch_id} "
        f"with {run.records}, and its sources have other offsets or files",
        actor=f"{ACTOR}, query {run.query_id}",
        expected="the batch after the last one, or that very one again",
        action="an older state of the checkpoint was restored: go on with the latest, or begin with a new one",
        reason=Reason.OLDER_CHECKPOINT,
    )


def _other_rows(run: StreamRun, last: StreamRun, *, is_planned_the_same: bool) -> InvalidTxnStateError:
    why = (
        "the offsets of a source of this query do not name its rows"
        if is_planned_the_same
        else "the sink cannot read the query's checkpoint"
    )
    return InvalidTxnStateError(
        f"batch {last.batch_id} of this query is committed, with {last.records} records; this is the same batch with "
        f"other rows, {run.records} of them, and {why}, so nobody knows whether they are new",
        actor=f"{ACTOR}, query {run.query_id}",
        expected="the rows that are committed, whatever their order",
        action="nothing was written; begin with a new checkpoint and takeOver, at the place in the source where the "
        "committed rows end",
        reason=Reason.UNKNOWN_ROWS,
    )


def _check_query(checkpoint: Checkpoint, query_id: str) -> None:
    """Raise where the folder that was taken for the query's checkpoint is another query's."""
    found = checkpoint.query_id()
    if found is None or found == query_id:
        return
    raise InvalidRequestError(
        f"the folder has the checkpoint of query {found}",
        actor=f"{ACTOR}, query {query_id}",
        place=checkpoint.url,
        expected="this query's checkpoint: another file system is Spark's default than was assumed",
        action="write the whole URL as checkpointLocation, with its scheme",
        reason=Reason.UNRESOLVED_CHECKPOINT,
    )


def _refuse_elsewhere(engine: Engine, run: StreamRun, transactional_id: str) -> None:
    """Raise where the query has committed under another id: its checkpoint was moved, and what it committed there last
    is not known here. Asked once a query, for it looks at every id.
    """
    for stored in engine.coordinator.rows():
        row = stored.row
        if row.transactional_id != transactional_id and run.is_of(row.committed_run_ids):
            raise InvalidTxnStateError(
                f"this query has committed under {row.transactional_id!r}",
                actor=f"{ACTOR}, query {run.query_id}, batch {run.batch_id}",
                expected=f"its first micro-batch, or that id in place of {transactional_id!r}",
                action=f"the checkpoint was moved: set transactionalId to {row.transactional_id!r}; for an output that "
                "is to begin anew set takeOver to true",
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


def _checkpoint_url(options: SinkOptions, working_directory: str | None) -> str | None:
    """Where the query's checkpoint is. Raises where that is not known, unless the query has an id without it."""
    if not options.checkpoint:
        return None
    try:
        return resolved(options.checkpoint, working_directory)
    except InvalidRequestError:
        if options.transactional_id is None:
            raise
        return None


def _id_of(options: SinkOptions, checkpoint: str | None) -> str:
    """An id that a query which is started again on its checkpoint gets again."""
    if checkpoint is None:
        raise InvalidRequestError(
            "neither 'transactionalId' nor 'checkpointLocation'",
            actor=ACTOR,
            expected="one of them as an option of the sink: by it a query that is started again is known",
            reason=Reason.NO_SINK_ID,
        )
    digest = hashlib.sha256(f"{checkpoint}\n{options.topic}".encode()).hexdigest()
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
