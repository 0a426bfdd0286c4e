"""The producer that users hold: idempotent always, transactional with a transactional id (`KafkaProducer`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, NoReturn, ParamSpec, Self, TypeVar

import pyarrow as pa

from txn_engine.clock import Waiting
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.coordinator.groups import GroupCoordinator, check_group_id
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTxnStateError,
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
from txn_engine.log.own_process import OwnProcess
from txn_engine.log.topics import Topic
from txn_engine.log.uploads import slices
from txn_engine.names import NEW_NAME, is_new_name
from txn_engine.producer.group_memory import GroupMemory
from txn_engine.producer.lanes import Lane
from txn_engine.producer.receipts import Receipt
from txn_engine.producer.sender import Records, Sender, tables_of
from txn_engine.producer.states import ProducerState, describe_error, is_fatal_to_a_write
from txn_engine.protocol.appends import FirstWriteCheck, allow_first_write
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import OffsetCommitProposal, Proposal, Refused
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionRow
from txn_engine.protocol.transactions import resume_identity, with_run_id
from txn_engine.types import (
    ConsumerGroupMetadata,
    MarkerMode,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    RecordMetadata,
    TopicPartition,
)

T = TypeVar("T")
P = ParamSpec("P")

CONCURRENT_RETRY_LIMIT_MS = 30_000
_RETRY_PAUSE_MS = 20
_LOGGER = logging.getLogger(__name__)
_STORE_ERRORS = (
    OutcomeUnknownError,
    StoreUnavailableError,
    StoreAccessError,
    CorruptObjectError,
    RequestTimedOutError,
)


def _in_turn(
    *allowed: ProducerState, goes_on: bool = True
) -> Callable[[Callable[Concatenate[Producer, P], T]], Callable[Concatenate[Producer, P], T]]:
    """A transactional call, one at a time, in a state that allows it; under an id that is kept from expiring, unless
    the call gives up what there was.

    A wrapper, not a context manager: an interrupt between a generator's `with` and ours would keep the locks.
    """

    def decorate(body: Callable[Concatenate[Producer, P], T]) -> Callable[Concatenate[Producer, P], T]:
        @wraps(body)
        def call(self: Producer, /, *args: P.args, **kwargs: P.kwargs) -> T:
            self._transactional()
            self._refuse_in_a_callback()
            with self._turn, self._lock:
                self._enter(*allowed, goes_on=goes_on)
                try:
                    return body(self, *args, **kwargs)
                except TxnEngineError as error:
                    self._learn_from(error)
                    raise

        return call

    return decorate


@dataclass(frozen=True, slots=True)
class ProducerTools:
    """What a producer works with; one set an engine."""

    logs: Logs
    coordinator: Coordinator
    groups: GroupCoordinator
    senders: Executor
    waiting: Waiting


class Producer:
    """Writes batches that are never doubled and, with a transactional id, transactions that are never torn.

    Threads may share it as they may Kafka's: calls are taken one after the other. A future's callback runs in the
    thread that sends: it may `produce`; calls that wait are refused there, for they would wait for themselves. It
    belongs to the process that made it: it does not pickle and refuses to work in a forked child.

    Ctrl-C may land anywhere in a call: a `produce` that it breaks off fails its transaction (an idempotent producer is
    finished, as by any lost batch), and all other calls may be made again.
    """

    def __init__(
        self,
        tools: ProducerTools,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        markers: MarkerMode,
        resume: ProducerIdAndEpoch | None = None,
    ) -> None:
        if resume is not None and transactional_id is None:
            raise InvalidRequestError(
                "resume= without a transactional id", expected="the id that was initialised"
            )
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
        # Taken before `_lock`, by all but callbacks: who has it may wait for them.
        self._turn = threading.RLock()
        self._lock = threading.RLock()
        self._process = OwnProcess("a producer", "make one in the child, of its own engine")
        self._state = ProducerState.UNINITIALIZED if transactional_id is not None else ProducerState.READY
        self._error: BaseException | None = None
        self._run_id: str | None = None
        self._history: TransactionRow | None = None
        self._in_transaction: set[TransactionPartition] = set()
        self._reached_coordinator = False
        self._resume = resume
        self._is_handing_over = False
        self._ender: object | None = None
        self._answered: tuple[ProducerIdAndEpoch, BaseException | None] | None = None
        self._group_memory = GroupMemory()
        join = self._join if transactional_id is not None else None
        self._sender = Sender(tools.logs, tools.senders, join, self._first_write_check)

    # --- who it is ------------------------------------------------------------------------------------------

    @property
    def _identity(self) -> ProducerIdAndEpoch:
        return self._sender.identity

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
        """What the producer may do next; after a failed write it says so at once, not with the next call."""
        failure = self._sender.failure
        return self._state if failure is None else self._state_after(failure)

    @property
    def last_committed_run_id(self) -> str | None:
        """The run id of the last transaction under this id that was decided to commit and had one."""
        ids = self.committed_run_ids
        return ids[-1] if ids else None

    @property
    def committed_run_ids(self) -> tuple[str, ...]:
        """The last 100 run ids under this id whose transactions were decided to commit, oldest first."""
        return self._known_history().committed_run_ids

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

    def _enter(self, *allowed: ProducerState, goes_on: bool = True) -> None:
        """A call begins. Raises unless the producer's state allows it."""
        self._refuse_while_ending()
        self._absorb_failure()
        if self._state is ProducerState.FATAL_ERROR and self._error is not None:
            raise self._error
        if self._state is ProducerState.ABORTABLE_ERROR and self._state not in allowed:
            failure = self._sender.failure
            raise TransactionAbortableError(
                f"the transaction failed: {describe_error(failure)}", actor=self._actor()
            ) from failure
        if self._state not in allowed:
            raise IllegalStateError(
                f"a call in state {self._state}",
                actor=self._actor(),
                expected=" or ".join(sorted(allowed)),
            )
        if goes_on:
            self._renew()

    def _refuse_in_a_callback(self) -> None:
        """In this process; and not in a callback, whose thread has the next batches to send (KIP-1118)."""
        self._process.check()
        if self._sender.is_calling_back():
            raise IllegalStateError(
                "a call that waits for writes, in a callback of one of them",
                actor=self._actor(),
                expected="in a callback only produce()",
                action="call it in another thread",
            )

    def _refuse_while_ending(self) -> None:
        """Another thread's call that ends the transaction goes by what it began in: nobody moves that meanwhile."""
        if self._ender is not None:
            raise IllegalStateError("a call while the transaction is being ended", actor=self._actor())

    def _refuse_in_a_reader(self) -> None:
        """The records that `produce` reads belong to the transaction that it began in: they may not end it."""
        if self._is_handing_over:
            raise IllegalStateError(
                "the transaction's end inside the reader that produce() reads",
                actor=self._actor(),
                expected="after produce() has returned",
            )

    def _learn_from(self, error: TxnEngineError) -> None:
        """What a call's own error makes of the producer. What the store did not take may be missing from the
        transaction, even where the caller goes on: it can only abort.
        """
        if is_fatal_to_a_write(error):
            self._fatal(error)
        elif self._state is ProducerState.IN_TRANSACTION and isinstance(error, _STORE_ERRORS):
            self._sender.fail(error)

    def _renew(self) -> None:
        """Let the id of a job that runs for days not expire: its row is written again once it is a day old.

        Raises, and is finished, where the id is not this producer's any more. A store that does not answer now is
        asked again by the next call: there are days left.
        """
        if self.transactional_id is None or self._identity.producer_id < 0 or self._reached_coordinator:
            return
        try:
            self._tools.coordinator.renew(self.transactional_id, *self._identity)
        except (ProducerFencedError, InvalidProducerIdMappingError) as error:
            self._fatal(error)
            raise
        except _STORE_ERRORS as error:
            _LOGGER.warning("%s: the transactional id was not renewed: %s", self._actor(), error)

    def _ending(self, end: Callable[[ProducerState], None], *allowed: ProducerState) -> None:
        """The end of a transaction: no other call until it is over, and no lock held while it waits for writes. `end`
        is given the state that it began in.
        """
        self._transactional()
        self._refuse_in_a_callback()
        this_call = object()
        try:
            with self._turn, self._lock:
                self._refuse_in_a_reader()
                self._enter(*allowed, goes_on=False)
                began_in = self._state
                self._ender = this_call
            end(began_in)
        finally:
            if self._ender is this_call:
                self._ender = None

    def _absorb_failure(self) -> None:
        """Move to the state that a failed write has led to (`TransactionManager.maybeTransitionToErrorState`)."""
        failure = self._sender.failure
        if failure is None or self._state is ProducerState.FATAL_ERROR:
            return
        if not isinstance(failure, Exception):
            failure = OutcomeUnknownError(
                f"produce() was broken off ({describe_error(failure)}): some of its records may be there",
                actor=self._actor(),
            )
        if self._state_after(failure) is ProducerState.FATAL_ERROR:
            self._fatal(failure)
        else:
            self._state = self._state_after(failure)

    def _state_after(self, failure: BaseException) -> ProducerState:
        if self._state is ProducerState.CLOSED:
            return self._state
        if self.transactional_id is None or is_fatal_to_a_write(failure):
            return ProducerState.FATAL_ERROR
        is_open = self._state is ProducerState.IN_TRANSACTION
        return ProducerState.ABORTABLE_ERROR if is_open else self._state

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
        waiting = self._tools.waiting
        deadline = waiting.monotonic_ms() + CONCURRENT_RETRY_LIMIT_MS
        while True:
            try:
                return ask()
            except ConcurrentTransactionsError as error:
                is_late = waiting.monotonic_ms() > deadline  # what is finished in time is asked for once more
                report = self._tools.coordinator.finish(self._transactional())
                if is_late:
                    raise RequestTimedOutError(
                        f"{what}: the previous transaction was still not complete after {CONCURRENT_RETRY_LIMIT_MS} ms"
                        + (f" ({report.failures[0]})" if report.failures else ""),
                        actor=self._actor(),
                    ) from error
                if report.failures:
                    waiting.pause_ms(_RETRY_PAUSE_MS)

    # --- a transaction's frame ------------------------------------------------------------------------------

    @_in_turn(ProducerState.UNINITIALIZED, ProducerState.READY, goes_on=False)
    def init_transactions(self) -> None:
        """Fence the previous instance of this transactional id, end what it left open, and learn which runs
        it committed.

        With `resume` nothing is written: the identity is taken over as it is, once. `ProducerFencedError`: it is no
        longer the id's. `InvalidTxnStateError`: something was added under it already.
        """
        transactional_id = self._transactional()
        if self._resume is not None and self.producer_id < 0:
            self._take_over(transactional_id, self._resume)
            return
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

    def _take_over(self, transactional_id: str, identity: ProducerIdAndEpoch) -> None:
        def look() -> TransactionRow:
            stored = self._tools.coordinator.current(transactional_id)
            return resume_identity(
                stored, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
            )

        try:
            self._history = self._retry_concurrent(look, "init_transactions")
        except (ProducerFencedError, InvalidTxnStateError, InvalidProducerIdMappingError) as error:
            raise self._fatal(error) from None
        self._start_epoch(identity)
        self._state = ProducerState.READY

    def _start_epoch(self, identity: ProducerIdAndEpoch) -> None:
        self._sender.start_epoch(identity)
        self._in_transaction.clear()
        self._reached_coordinator = False
        self._run_id = None

    @_in_turn(ProducerState.READY)
    def begin_transaction(self, run_id: str | None = None) -> None:
        """Begin; nothing is written yet. `run_id` names this run of a load, for `has_committed` of a later one."""
        if run_id == "":
            raise InvalidRequestError("an empty run id", actor=self._actor(), expected="a name, or None")
        if run_id is not None and not is_new_name(run_id):
            raise InvalidRequestError(
                f"run id {run_id!r}", actor=self._actor(), expected=f"UTF-8, {NEW_NAME}"
            )
        self._run_id = run_id
        self._answered = None  # of the last transaction, where Ctrl-C kept it
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
        self._ending(self._commit, ProducerState.IN_TRANSACTION, ProducerState.COMMITTING)

    def _commit(self, began_in: ProducerState) -> None:
        self._sender.wait()
        with self._lock:
            if began_in is ProducerState.IN_TRANSACTION:
                self._check_writes()
            self._end(committed=True)

    def _check_writes(self) -> None:
        """Raise unless every write of the transaction is in the log."""
        self._absorb_failure()
        if self._error is not None:
            raise self._error
        if self._sender.failure is not None:
            raise TransactionAbortableError(
                f"a write of the transaction failed: {describe_error(self._sender.failure)}",
                actor=self._actor(),
            ) from self._sender.failure

    def abort_transaction(self) -> None:
        """Drop what is not sent, and decide to abort."""
        allowed = (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR, ProducerState.ABORTING)
        self._ending(self._abort, *allowed)

    def _abort(self, _: ProducerState) -> None:
        aborting = TransactionAbortableError("the transaction is being aborted", actor=self._actor())
        self._sender.abandon(aborting)
        self._sender.wait()
        with self._lock:
            self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        """Decide, and go on from there. The answer is kept until all is done: a call that is interrupted behind it and
        made again only finishes here, for the coordinator knows the next epoch already.
        """
        if self._answered is None:
            self._answered = self._decide(committed=committed)
        identity, error = self._answered
        self._learn_end(committed)
        if error is not None:
            self._fatal(error)
            return
        self._start_epoch(identity)
        self._state = ProducerState.READY
        self._answered = None

    def _decide(self, *, committed: bool) -> tuple[ProducerIdAndEpoch, BaseException | None]:
        """What to go on as; and with which error, where the decision is made but a successor has taken over."""
        if not self._reached_coordinator and committed and self._run_id is not None:
            self._join([])  # a run that had nothing to write is a run all the same: its id needs a row
        self._state = ProducerState.COMMITTING if committed else ProducerState.ABORTING
        if not self._reached_coordinator:
            return self._identity, None
        try:
            return self._retry_concurrent(lambda: self._ask_end(committed), "the transaction's end"), None
        except _STORE_ERRORS:
            raise  # the state stays: the same call again learns what happened
        except (ProducerFencedError, InvalidProducerIdMappingError) as error:
            # Asked before anything is final: where the log cannot be read now, the same call may be made again.
            answered = committed and self._was_committed()
            if answered is None:
                raise self._fatal(self._forgotten_decision()) from error
            if not answered:
                self._fatal(error)
                raise
            return self._identity, error
        except TxnEngineError as error:
            self._fatal(error)
            raise

    def _was_committed(self) -> bool | None:
        return self._tools.coordinator.was_committed(self._transactional(), *self._identity, self._run_id)

    def _forgotten_decision(self) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            "a successor has taken over, and the part of the coordinator's log is sealed that would tell"
            " whether this transaction was committed before",
            actor=self._actor(),
            action="look at the data, or give transactions a run_id and ask has_committed()",
        )

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

        Returns at once (or when the buffer of 256 MiB has room; in a callback it does not wait for that) with a future
        of where they went, one entry a batch. A table is checked whole before any of it is sent; a reader's batches one
        after the other, and a reader may not end the transaction. Nothing is copied: the records' buffers (a numpy
        array's, too) are the producer's until the future is done. What was handed over goes out: the future's
        `cancel()` is False.
        """
        receipt = Receipt()
        self._hand_over(receipt, lambda: self._send(topic, table, partition, timestamp_ms, receipt))
        return receipt.future

    def _hand_over(self, receipt: Receipt, send: Callable[[], None]) -> None:
        """Batches as one call's: all of them go out, or the transaction fails.

        While it waits for room others may send from callbacks. A callback itself waits for nobody but the lock, which
        it keeps: nothing ends the transaction before all of its call is in it.
        """
        self._process.check()
        try:
            if self._sender.is_calling_back():
                with self._lock:
                    send()
                    receipt.close()
            else:
                with self._turn:
                    outer, self._is_handing_over = self._is_handing_over, True
                    try:
                        send()
                        receipt.close()
                    finally:
                        self._is_handing_over = outer
        except BaseException as error:
            if receipt.has_batches:  # the call can only be undone as a whole
                # At once: a second Ctrl-C may end what follows.
                self._sender.failure = self._sender.failure or error
                self._sender.fail(error)
            if isinstance(error, TxnEngineError):
                with self._lock:
                    self._learn_from(error)
            raise

    def _send(
        self, topic: str, table: Records, partition: int | None, timestamp_ms: int | None, receipt: Receipt
    ) -> None:
        state = ProducerState.READY if self.transactional_id is None else ProducerState.IN_TRANSACTION
        with self._lock:
            self._enter(state)
            info = self._logs.topics.having(topic, 0 if partition is None else partition)
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
            if self._identity.producer_id < 0:
                self._sender.start_epoch(self._tools.coordinator.init_producer_id(None))
        for records in tables_of(table):
            conformed = conform(records, info.schema, topic=topic)
            for part in slices(conformed):
                if part.num_rows:
                    if not self._sender.is_calling_back():
                        self._sender.wait_for_room(part)
                    with self._lock:
                        self._enter(state, goes_on=False)
                        self._sender.send(info, part, partition, stamp, receipt)

    def produce_files(
        self, topic: Topic, files: Sequence[tuple[int, EncodedFile]]
    ) -> Future[list[RecordMetadata]]:
        """Send data files that others have put on the store for this producer, at its present epoch:
        (partition, file) each.

        How Spark's executors write: they upload under this producer's id and epoch (`upload_records`), and
        the driver names what the winning tasks left. A file of another producer or epoch is refused, and so are all
        where `topic`, that of the upload, was deleted meanwhile: another of its name has other folders.
        """
        receipt = Receipt()
        self._hand_over(receipt, lambda: self._send_files(topic, files, receipt))
        return receipt.future

    def _send_files(self, topic: Topic, files: Sequence[tuple[int, EncodedFile]], receipt: Receipt) -> None:
        with self._lock:
            self._enter(ProducerState.IN_TRANSACTION)
            for partition, _ in files:
                topic.check_partition(partition)
            parts = [
                (TransactionPartition(topic.name, topic.incarnation, number), encoded)
                for number, encoded in files
            ]
            self._sender.send_parts(parts, receipt)

    def flush(self) -> None:
        """Wait until all that was sent is in the log or has failed.

        A transaction's failures are told by its futures and its commit. An idempotent producer's are raised here,
        and by every later call.
        """
        self._refuse_in_a_callback()
        self._sender.wait()
        with self._lock:
            self._absorb_failure()
            if self._error is not None:
                raise self._error

    def _join(self, targets: Sequence[TransactionPartition]) -> None:
        """Make new partitions part of the transaction; the data files are on their way meanwhile."""
        new = [target for target in targets if target not in self._in_transaction]
        if not new and self._reached_coordinator:
            return
        is_first = not self._reached_coordinator and self._identity == self._resume
        self._reached_coordinator = True
        try:
            self._retry_concurrent(
                lambda: self._tools.coordinator.add(
                    self._transactional(), *self._identity, new, begins=is_first
                ),
                "AddPartitionsToTxn",
            )
        except BaseException as error:
            self._sender.fail(error)
            raise
        self._in_transaction.update(new)
        self._sender.admit(new)

    def _first_write_check(self, lane: Lane) -> FirstWriteCheck:
        """The stalled first write (PROTOCOL.md, section 4): on a view that is not the one from before AddPartitions,
        ask the coordinator again, for each slot anew, and for the very producer and epoch that the batch is of.
        """
        if self.transactional_id is None:
            return allow_first_write
        transactional_id = self.transactional_id

        def check(_: PartitionState, __: Proposal) -> None:
            if lane.log.token is not lane.view_token:
                self._tools.coordinator.verify(transactional_id, *lane.identity, lane.partition)

        return check

    # --- offsets --------------------------------------------------------------------------------------------

    @_in_turn(ProducerState.IN_TRANSACTION)
    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction, naming the rows that the reader had fetched.

        Raises `OffsetsMovedError` where somebody else has processed the range, and `OffsetsPendingError`
        where somebody is about to, `UnknownTopicOrPartitionError` where the topic that was read is gone; in each case
        the transaction can only abort.
        """
        check_group_id(group_metadata.group_id)
        if not offsets:
            return
        groups = self._tools.groups
        try:
            positions = {groups.target(group_metadata, tp): _position(at) for tp, at in offsets.items()}
        except UnknownTopicOrPartitionError as error:  # the output may not go without its input's offsets
            self._sender.fail(error)
            raise
        group = self._group_memory.current(group_metadata)
        target = self._logs.group_partition(group.group_id)
        commits = [groups.row(group, tp, position) for tp, position in positions.items()]
        (lane,) = self._sender.lanes_for([target])
        self._join([target])
        try:
            proposals = [OffsetCommitProposal(commit, *self._identity) for commit in commits]
            verdicts = lane.log.append(proposals, self._first_write_check(lane))
            for commit, verdict in zip(commits, verdicts, strict=True):
                if isinstance(verdict, Refused):
                    raise verdict.error
                place = TopicPartition(commit.key.topic, commit.key.partition)
                self._group_memory.wrote(group_metadata, place, verdict.base_offset)
        except InvalidProducerEpochError as error:
            # The group coordinator's answer to a fenced producer, which Kafka's client takes as just that.
            fenced = ProducerFencedError(error.seen, actor=error.actor, expected=error.expected)
            self._sender.fail(fenced)
            raise fenced from error
        except BaseException as error:
            self._sender.fail(error)
            raise

    # --- the end --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for what was sent, abort an open transaction, and let go. A second call does nothing; one while another
        thread ends the transaction is refused.

        Raises what an idempotent producer's batches failed with, where nobody has heard of it yet. In a forked child it
        only lets go.
        """
        if not self._process.is_here:
            self._state = ProducerState.CLOSED
            return
        if self._state is ProducerState.CLOSED:
            return
        self._refuse_in_a_callback()
        with self._turn, self._lock:
            self._refuse_in_a_reader()
            self._refuse_while_ending()
            is_known = self._error is not None
            self._absorb_failure()
        try:
            if self._state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
                self.abort_transaction()
            elif self.transactional_id is None and not is_known:
                self.flush()
        finally:
            with self._lock:
                self._state = ProducerState.CLOSED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with suppress(TxnEngineError):  # the error that is under way says more than one of closing
            self.close()


def _position(value: OffsetAndMetadata | int) -> OffsetAndMetadata:
    return OffsetAndMetadata(value) if isinstance(value, int) else value
