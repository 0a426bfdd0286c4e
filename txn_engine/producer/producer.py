"""The producer that users hold: idempotent always, transactional with a transactional id (`KafkaProducer`)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn, Self, TypeVar

import pyarrow as pa

from txn_engine.clock import monotonic_ms, pause_ms
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.coordinator.groups import GroupCoordinator, check_group_id
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    IllegalStateError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    OutcomeUnknownError,
    ProducerFencedError,
    RequestTimedOutError,
    StoreAccessError,
    StoreUnavailableError,
    TransactionAbortableError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.data_files import EncodedFile, conform
from txn_engine.log.logs import Logs
from txn_engine.log.topics import Topic
from txn_engine.log.uploads import slices
from txn_engine.producer.group_memory import GroupMemory
from txn_engine.producer.lanes import Batch, Lane
from txn_engine.producer.partitioner import split_by_key
from txn_engine.producer.states import ProducerState
from txn_engine.protocol.partition import (
    FirstWriteCheck,
    OffsetCommitProposal,
    PartitionState,
    Proposal,
    Refused,
    allow_first_write,
)
from txn_engine.protocol.sequences import increment_sequence
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionRow
from txn_engine.protocol.transactions import with_run_id
from txn_engine.types import (
    ConsumerGroupMetadata,
    MarkerMode,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    RecordMetadata,
    TopicPartition,
)

T = TypeVar("T")
Records = pa.Table | pa.RecordBatch | pa.RecordBatchReader

BUFFER_BYTES = 256 * 1024 * 1024
READER_PART_BYTES = 32 * 1024 * 1024
CONCURRENT_RETRY_LIMIT_MS = 30_000
_RETRY_PAUSE_MS = 20
_STORE_ERRORS = (
    OutcomeUnknownError,
    StoreUnavailableError,
    StoreAccessError,
    CorruptObjectError,
    RequestTimedOutError,
)


@dataclass(frozen=True, slots=True)
class ProducerTools:
    """What a producer works with; one set an engine."""

    logs: Logs
    coordinator: Coordinator
    groups: GroupCoordinator
    senders: Executor


class Producer:
    """Writes batches that are never doubled and, with a transactional id, transactions that are never torn.

    Threads may share it as they may Kafka's: calls are taken one after the other. It belongs to the process
    that made it: it does not pickle and refuses to work in a forked child.
    """

    def __init__(
        self,
        tools: ProducerTools,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        markers: MarkerMode,
    ) -> None:
        if transactional_id == "":
            raise InvalidRequestError(
                "an empty transactional id", expected="a name, or None for an idempotent producer"
            )
        if markers not in ("inline", "deferred"):
            raise InvalidRequestError(f"markers={markers!r}", expected="'inline' or 'deferred'")
        self.transactional_id = transactional_id
        self._tools = tools
        self._logs = tools.logs
        self._timeout_ms = transaction_timeout_ms
        self._markers: MarkerMode = markers
        self._lock = threading.RLock()
        self._made_in = os.getpid()
        self._identity = ProducerIdAndEpoch(-1, -1)
        self._state = ProducerState.UNINITIALIZED if transactional_id is not None else ProducerState.READY
        self._error: BaseException | None = None
        self._failure: BaseException | None = None
        self._run_id: str | None = None
        self._history: TransactionRow | None = None
        self._lanes: dict[TransactionPartition, Lane] = {}
        self._in_transaction: set[TransactionPartition] = set()
        self._reached_coordinator = False
        self._is_ending = False
        self._checked_topics: dict[str, Future[bool]] = {}
        self._outstanding: set[Future[RecordMetadata]] = set()
        self._group_memory = GroupMemory()
        self._buffer = threading.Condition()
        self._buffered_bytes = 0
        self._turn = 0

    # --- who it is ------------------------------------------------------------------------------------------

    @property
    def producer_id(self) -> int:
        """The producer id in use; -1 before there is one."""
        return self._identity.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch in use; it grows with every transaction's end."""
        return self._identity.producer_epoch

    @property
    def state(self) -> ProducerState:
        """What the producer may do next."""
        return self._state

    @property
    def last_committed_run_id(self) -> str | None:
        """The run id of the last transaction under this id that was decided to commit and had one."""
        ids = self._known_history().committed_run_ids
        return ids[-1] if ids else None

    def has_committed(self, run_id: str) -> bool | None:
        """Whether that run's transaction was decided to commit; None where the log no longer knows (the last
        100 are kept).
        """
        return self._known_history().has_committed(run_id)

    def _known_history(self) -> TransactionRow:
        if self._history is None:
            raise IllegalStateError("no init_transactions() yet", actor=self._actor())
        return self._history

    def _actor(self) -> str:
        name = f"transactional id {self.transactional_id!r}, " if self.transactional_id else ""
        return f"{name}producer {self.producer_id} epoch {self.producer_epoch}"

    def __reduce__(self) -> NoReturn:
        raise IllegalStateError(
            "a producer was pickled", expected="each process makes its own", actor=self._actor()
        )

    # --- the frame of every call ----------------------------------------------------------------------------

    @contextmanager
    def _call(self, *allowed: ProducerState) -> Iterator[None]:
        """One call at a time, in this process, in a state that allows it."""
        self._check_process()
        with self._lock:
            self._absorb_failure()
            if self._is_ending:
                raise IllegalStateError("a call while the transaction is being ended", actor=self._actor())
            if self._state is ProducerState.FATAL_ERROR and self._error is not None:
                raise self._error
            if self._state is ProducerState.ABORTABLE_ERROR and self._state not in allowed:
                raise TransactionAbortableError(
                    f"the transaction failed: {self._failure}", actor=self._actor()
                ) from self._failure
            if self._state not in allowed:
                raise IllegalStateError(
                    f"a call in state {self._state}",
                    actor=self._actor(),
                    expected=" or ".join(sorted(allowed)),
                )
            yield

    def _check_process(self) -> None:
        """Refuse in a forked child, before a lock that somebody may have held at the fork."""
        if os.getpid() != self._made_in:
            raise IllegalStateError(
                "a producer was carried over a fork", expected="each process makes its own"
            )

    @contextmanager
    def _ending(self, *allowed: ProducerState) -> Iterator[None]:
        """The end of a transaction: no other call until it is over, and no lock held while it waits for writes."""
        with self._call(*allowed):
            self._is_ending = True
        try:
            yield
        finally:
            self._is_ending = False

    def _absorb_failure(self) -> None:
        """Move to the state that a failed write has led to."""
        failure = self._failure
        if failure is None or self._state is ProducerState.FATAL_ERROR:
            return
        if self.transactional_id is None or (isinstance(failure, TxnEngineError) and failure.fatal):
            self._fatal(failure)
        elif self._state is ProducerState.IN_TRANSACTION:
            self._state = ProducerState.ABORTABLE_ERROR

    def _note_failure(self, error: BaseException) -> None:
        self._failure = self._failure or error
        for lane in list(self._lanes.values()):
            lane.cancel(self._failure)

    def _fatal(self, error: BaseException) -> BaseException:
        self._state = ProducerState.FATAL_ERROR
        self._error = error
        return error

    def _transactional(self) -> str:
        if self.transactional_id is None:
            raise IllegalStateError(
                "a transactional call",
                actor="an idempotent producer",
                expected="a producer made with a transactional_id",
            )
        return self.transactional_id

    def _retry_concurrent(self, ask: Callable[[], T], what: str) -> T:
        """Ask until the answer is not CONCURRENT_TRANSACTIONS, finishing this id's own markers in between."""
        deadline = monotonic_ms() + CONCURRENT_RETRY_LIMIT_MS
        while True:
            try:
                return ask()
            except ConcurrentTransactionsError as error:
                report = self._tools.coordinator.finish(self._transactional())
                if monotonic_ms() > deadline:
                    raise RequestTimedOutError(
                        f"{what}: the previous transaction was still not complete after {CONCURRENT_RETRY_LIMIT_MS} ms"
                        + (f" ({report.failures[0]})" if report.failures else ""),
                        actor=self._actor(),
                    ) from error
                if report.failures:
                    pause_ms(_RETRY_PAUSE_MS)

    # --- a transaction's frame ------------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Fence the previous instance of this transactional id, end what it left open, and learn which runs
        it committed.
        """
        transactional_id = self._transactional()
        with self._call(ProducerState.UNINITIALIZED, ProducerState.READY):
            held = self._identity
            identity = self._retry_concurrent(
                lambda: self._tools.coordinator.init_producer_id(
                    transactional_id,
                    transaction_timeout_ms=self._timeout_ms,
                    producer_id=held.producer_id,
                    producer_epoch=held.producer_epoch,
                ),
                "init_transactions",
            )
            stored = self._tools.coordinator.current(transactional_id)
            if stored is None or (stored.row.producer_id, stored.row.producer_epoch) != identity:
                raise self._fatal(
                    ProducerFencedError("another producer initialised meanwhile", actor=self._actor())
                )
            self._history = stored.row
            self._start_epoch(identity)
            self._state = ProducerState.READY

    def _start_epoch(self, identity: ProducerIdAndEpoch) -> None:
        self._identity = identity
        self._lanes.clear()
        self._in_transaction.clear()
        self._checked_topics.clear()
        self._outstanding.clear()
        self._reached_coordinator = False
        self._failure = None
        self._run_id = None

    def begin_transaction(self, run_id: str | None = None) -> None:
        """Begin; nothing is written yet. `run_id` names this run of a load, for `has_committed` of a later one."""
        self._transactional()
        with self._call(ProducerState.READY):
            if run_id == "":
                raise InvalidRequestError("an empty run id", actor=self._actor(), expected="a name, or None")
            self._run_id = run_id
            self._state = ProducerState.IN_TRANSACTION

    @contextmanager
    def transaction(self, run_id: str | None = None) -> Iterator[Producer]:
        """Begin; commit when the block ends, abort when it raises."""
        self.begin_transaction(run_id)
        try:
            yield self
        except BaseException:
            if self._state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
                self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except TxnEngineError:
            self._absorb_failure()
            if self._state is ProducerState.ABORTABLE_ERROR:
                self.abort_transaction()
            raise

    def commit_transaction(self) -> None:
        """Wait for all writes, then decide to commit.

        With "inline" markers readers see it when this returns, unless the store failed between the decision
        and a marker: that is logged, and left to the marker sweep. `TransactionAbortableError`: a write failed,
        only `abort_transaction` is left. `OutcomeUnknownError` or `StoreUnavailableError`: call it again; the
        answer is then the log's. `ProducerFencedError`: it was not committed.
        """
        self._transactional()
        with self._ending(ProducerState.IN_TRANSACTION, ProducerState.COMMITTING):
            self._wait_for_outstanding()
            with self._lock:
                if self._state is ProducerState.IN_TRANSACTION:
                    self._check_writes()
                self._end(committed=True)

    def _check_writes(self) -> None:
        """Raise unless every write of the transaction is in the log, and in a topic that is still the same."""
        for name, is_current in self._checked_topics.items():
            if not is_current.result():
                self._note_failure(
                    UnknownTopicOrPartitionError(
                        f"topic {name!r} was deleted during the transaction", actor=self._actor()
                    )
                )
        self._absorb_failure()
        if self._error is not None:
            raise self._error
        if self._failure is not None:
            raise TransactionAbortableError(
                f"a write of the transaction failed: {self._failure}", actor=self._actor()
            ) from self._failure

    def abort_transaction(self) -> None:
        """Drop what is not sent, and decide to abort."""
        self._transactional()
        allowed = (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR, ProducerState.ABORTING)
        with self._ending(*allowed):
            aborting = TransactionAbortableError("the transaction is being aborted", actor=self._actor())
            for lane in self._lanes.values():
                lane.cancel(aborting)
                if not lane.added.done():
                    lane.added.set_exception(aborting)
            self._wait_for_outstanding()
            with self._lock:
                self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        if not self._reached_coordinator and not (committed and self._run_id is not None):
            self._start_epoch(self._identity)
            self._state = ProducerState.READY
            return
        if not self._reached_coordinator:
            self._join(
                []
            )  # a run that had nothing to write is a run all the same: its id needs a row to stand in
        self._state = ProducerState.COMMITTING if committed else ProducerState.ABORTING
        try:
            identity = self._retry_concurrent(lambda: self._ask_end(committed), "the transaction's end")
        except _STORE_ERRORS:
            raise  # the state stays: the same call again learns what happened
        except (ProducerFencedError, InvalidProducerIdMappingError) as error:
            # Asked before anything is final: where the log cannot be read now, the same call may be made again.
            answered = committed and self._tools.coordinator.was_committed(
                self._transactional(), *self._identity
            )
            self._fatal(error)
            if not answered:
                raise
            self._learn_end(committed)
            return
        except TxnEngineError as error:
            self._fatal(error)
            raise
        self._learn_end(committed)
        self._start_epoch(identity)
        self._state = ProducerState.READY

    def _learn_end(self, committed: bool) -> None:
        self._group_memory.end(committed=committed)
        if committed and self._run_id is not None and self._history is not None:
            self._history = with_run_id(self._history, self._run_id)

    def _ask_end(self, committed: bool) -> ProducerIdAndEpoch:
        return self._tools.coordinator.end_transaction(
            self._transactional(),
            *self._identity,
            committed=committed,
            markers=self._markers,
            run_id=self._run_id,
        )

    # --- records --------------------------------------------------------------------------------------------

    def produce(
        self, topic: str, table: Records, *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> Future[list[RecordMetadata]]:
        """Send records in the topic's schema, split by its key column unless a partition is named.

        Returns at once (or when the buffer of 256 MiB has room) with a future of where they went, one entry a
        batch. A table is checked whole before any of it is sent; a reader's batches one after the other.
        """
        state = ProducerState.READY if self.transactional_id is None else ProducerState.IN_TRANSACTION
        with self._call(state):
            info = self._logs.topics.get(topic)
            if partition is not None:
                info.check_partition(partition)
            if not isinstance(table, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
                raise InvalidRequestError(
                    f"records as {type(table).__name__}",
                    actor=self._actor(),
                    expected="a pyarrow Table, RecordBatch or reader",
                )
            stamp = self._logs.tools.clock() if timestamp_ms is None else timestamp_ms
            if stamp < 0:
                raise InvalidRequestError(
                    f"timestamp {stamp}", actor=self._actor(), expected="milliseconds since the epoch"
                )
            futures: list[Future[RecordMetadata]] = []
            try:
                for records in _tables(table):
                    conformed = conform(records, info.schema, topic=topic)
                    for part in slices(conformed):
                        futures += self._send(info, part, partition, stamp)
            except BaseException as error:
                if futures:  # a part of this call is on its way: the call can only be undone as a whole
                    self._note_failure(error)
                raise
            return _gathered(futures)

    def produce_files(
        self, topic: str, files: Sequence[tuple[int, EncodedFile]]
    ) -> Future[list[RecordMetadata]]:
        """Send data files that others have put on the store for this producer, at its present epoch:
        (partition, file) each.

        How Spark's executors write: they upload under this producer's id and epoch (`upload_records`), and
        the driver names what the winning tasks left. A file of another producer or epoch is refused.
        """
        with self._call(ProducerState.IN_TRANSACTION):
            info = self._logs.topics.get(topic)
            for partition, _ in files:
                info.check_partition(partition)
            parts = [
                (TransactionPartition(info.name, info.incarnation, number), encoded)
                for number, encoded in files
            ]
            return _gathered(self._send_parts(parts))

    def flush(self) -> None:
        """Wait until all that was sent is in the log or has failed.

        A transaction's failures are told by its futures and its commit. An idempotent producer's are raised here,
        and by every later call.
        """
        self._check_process()
        self._wait_for_outstanding()
        with self._lock:
            self._absorb_failure()
            if self._error is not None:
                raise self._error

    def _send(
        self, topic: Topic, records: pa.Table, partition: int | None, stamp: int
    ) -> list[Future[RecordMetadata]]:
        if not records.num_rows:
            return []
        if self._identity.producer_id < 0:
            self._identity = self._tools.coordinator.init_producer_id(None)
        if partition is None:
            self._turn += 1
            parts = list(split_by_key(records, topic.key, topic.partitions, self._turn % topic.partitions))
        else:
            parts = [(partition, records)]
        return self._send_parts(
            [(TransactionPartition(topic.name, topic.incarnation, number), part) for number, part in parts],
            stamp,
        )

    def _send_parts(
        self, parts: Sequence[tuple[TransactionPartition, pa.Table | EncodedFile]], stamp: int = -1
    ) -> list[Future[RecordMetadata]]:
        targets = list(dict.fromkeys(target for target, _ in parts))
        lanes = dict(zip(targets, self._lanes_for(targets), strict=True))
        self._check_topics(targets)
        futures: list[Future[RecordMetadata]] = []
        try:
            for target, part in parts:
                if not self._has_room(part):  # room comes from lanes that wait for these very partitions
                    self._join(targets)
                futures.append(self._queue(lanes[target], part, stamp))
            self._join(targets)
        except BaseException as error:
            self._note_failure(error)
            for lane in lanes.values():
                if not lane.added.done():
                    lane.added.set_exception(error)
            raise
        return futures

    def _check_topics(self, targets: Sequence[TransactionPartition]) -> None:
        """Ask, beside the uploads, whether the topics are still the ones known; the commit waits for the answer."""
        if self.transactional_id is None:
            return
        for target in targets:
            if target.topic not in self._checked_topics:
                known = self._logs.topics.get(target.topic)
                asked = self._logs.workers.submit(self._logs.topics.is_current, known)
                self._checked_topics[target.topic] = asked

    def _has_room(self, records: pa.Table | EncodedFile) -> bool:
        with self._buffer:
            return self._buffered_bytes + _buffer_size(records) <= BUFFER_BYTES

    def _lanes_for(self, targets: Sequence[TransactionPartition]) -> list[Lane]:
        """The lanes to these partitions; new ones load their views before the coordinator hears of the partition."""
        missing = [target for target in targets if target not in self._lanes]
        unloaded = [log for log in map(self._logs.of, missing) if not log.is_loaded]
        if len(unloaded) > 1:
            self._logs.refresh_all(unloaded)
        for target in missing:
            lane = self._lanes[target] = self._new_lane(target)
            if self.transactional_id is None:
                lane.added.set_result(None)
        return [self._lanes[target] for target in targets]

    def _new_lane(self, target: TransactionPartition) -> Lane:
        log = self._logs.of(target)
        return Lane(
            target, log, self._logs.tools, self._tools.senders, self._first_write_check, self._note_failure
        )

    def _queue(self, lane: Lane, records: pa.Table | EncodedFile, stamp: int) -> Future[RecordMetadata]:
        done: Future[RecordMetadata] = Future()
        size = _buffer_size(records)
        if isinstance(records, EncodedFile):
            count, stamp = records.record_count, records.max_timestamp
        else:
            count = records.num_rows
        with self._buffer:
            self._buffer.wait_for(lambda: self._buffered_bytes + size <= BUFFER_BYTES)
            self._buffered_bytes += size
        self._outstanding.add(done)
        done.add_done_callback(lambda _: self._settled(done, size))
        sequence = lane.next_sequence
        lane.next_sequence = increment_sequence(sequence, count)
        lane.send(Batch(records, self._identity, sequence, self.transactional_id is not None, stamp, done))
        return done

    def _settled(self, done: Future[RecordMetadata], size: int) -> None:
        self._outstanding.discard(done)
        with self._buffer:
            self._buffered_bytes -= size
            self._buffer.notify_all()

    def _join(self, targets: Sequence[TransactionPartition]) -> None:
        """Make new partitions part of the transaction; the data files are on their way meanwhile."""
        if self.transactional_id is None:
            return
        new = [target for target in targets if target not in self._in_transaction]
        if not new and self._reached_coordinator:
            return
        self._reached_coordinator = True
        try:
            self._retry_concurrent(
                lambda: self._tools.coordinator.add(self._transactional(), *self._identity, new),
                "AddPartitionsToTxn",
            )
        except BaseException as error:
            self._note_failure(error)
            for target in new:
                if target in self._lanes and not self._lanes[target].added.done():
                    self._lanes[target].added.set_exception(error)
            raise
        self._in_transaction.update(new)
        for target in new:
            if target in self._lanes:
                self._lanes[target].added.set_result(None)

    def _first_write_check(self, lane: Lane) -> FirstWriteCheck:
        """The stalled first write: on a view that is not the one from before AddPartitions, ask the
        coordinator again.
        """
        if self.transactional_id is None:
            return allow_first_write
        transactional_id, identity, token = self.transactional_id, self._identity, lane.view_token

        def check(_: PartitionState, __: Proposal) -> None:
            if lane.log.token is not token:
                self._tools.coordinator.verify(transactional_id, *identity, lane.partition)

        return check

    def _wait_for_outstanding(self) -> None:
        wait(set(self._outstanding))

    # --- offsets --------------------------------------------------------------------------------------------

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction, naming the rows that the reader had fetched.

        Raises `OffsetsMovedError` where somebody else has processed the range, and `OffsetsPendingError`
        where somebody is about to; either way the transaction can only abort.
        """
        self._transactional()
        with self._call(ProducerState.IN_TRANSACTION):
            check_group_id(group_metadata.group_id)
            if not offsets:
                return
            positions = {self._target(tp): _position(value) for tp, value in offsets.items()}
            group = self._group_memory.current(group_metadata)
            target = self._logs.group_partition(group.group_id)
            commits = [self._tools.groups.row(group, tp, position) for tp, position in positions.items()]
            lane = self._lanes_for([target])[0]
            self._join([target])
            try:
                proposals = [OffsetCommitProposal(commit, *self._identity) for commit in commits]
                verdicts = lane.log.append(proposals, self._first_write_check(lane))
                for commit, verdict in zip(commits, verdicts, strict=True):
                    if isinstance(verdict, Refused):
                        raise verdict.error
                    place = TopicPartition(commit.key.topic, commit.key.partition)
                    self._group_memory.wrote(group_metadata, place, verdict.base_offset)
            except BaseException as error:
                self._note_failure(error)
                raise

    def _target(self, partition: TopicPartition) -> TransactionPartition:
        topic = self._logs.topics.get(partition.topic)
        topic.check_partition(partition.partition)
        return TransactionPartition(topic.name, topic.incarnation, partition.partition)

    # --- the end --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for what was sent, abort an open transaction, and let go. A second call does nothing.

        Raises what an idempotent producer's batches failed with, where nobody has heard of it yet. In a forked child it
        only lets go.
        """
        if os.getpid() != self._made_in:
            self._state = ProducerState.CLOSED
            return
        if self._state is ProducerState.CLOSED:
            return
        self._absorb_failure()
        try:
            if self._state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
                self.abort_transaction()
            elif self.transactional_id is None and self._error is None:
                self.flush()
        finally:
            self._state = ProducerState.CLOSED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with suppress(TxnEngineError):  # the error that is under way says more than one of closing
            self.close()


def _buffer_size(records: pa.Table | EncodedFile) -> int:
    return 1 if isinstance(records, EncodedFile) else max(min(records.nbytes, BUFFER_BYTES), 1)


def _tables(table: Records) -> Iterator[pa.Table]:
    """The records in parts of a size that fits memory."""
    if isinstance(table, pa.Table):
        yield table
    elif isinstance(table, pa.RecordBatch):
        yield pa.Table.from_batches([table])
    else:
        pending: list[pa.RecordBatch] = []
        for batch in table:
            pending.append(batch)
            if sum(part.nbytes for part in pending) >= READER_PART_BYTES:
                yield pa.Table.from_batches(pending)
                pending = []
        if pending:
            yield pa.Table.from_batches(pending)


def _position(value: OffsetAndMetadata | int) -> OffsetAndMetadata:
    return OffsetAndMetadata(value) if isinstance(value, int) else value


def _gathered(futures: Sequence[Future[RecordMetadata]]) -> Future[list[RecordMetadata]]:
    """One future of all results; the first failure is its failure."""
    together: Future[list[RecordMetadata]] = Future()
    left = len(futures)
    lock = threading.Lock()

    def one_done(_: Future[RecordMetadata]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            failed = next((error for future in futures if (error := future.exception()) is not None), None)
            if failed is not None:
                together.set_exception(failed)
            else:
                together.set_result([future.result() for future in futures])

    if not futures:
        together.set_result([])
    for future in futures:
        future.add_done_callback(one_done)
    return together
