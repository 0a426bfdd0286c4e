"""The producer that users hold: idempotent always, transactional with a transactional id (`KafkaProducer`).

What it may do, and what follows, is the machine's to say (`machine.py`). This is the shell around it: it gives the
machine its events and has the effects carried out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final, NoReturn, Self, TypeVar

from txn_engine.arguments import check_whole_numbers, checks_arguments
from txn_engine.configs.client import ProducerSettings
from txn_engine.errors import (
    IllegalStateError,
    InvalidRequestError,
    TxnEngineError,
)
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.topics import Topic
from txn_engine.producer import machine as events
from txn_engine.producer.calls import Calls
from txn_engine.producer.cell import Cell
from txn_engine.producer.effects import Effects, ProducerTools
from txn_engine.producer.first_write import first_write_check
from txn_engine.producer.frames import RecordsLike
from txn_engine.producer.group_offsets import GroupOffsets
from txn_engine.producer.intake import Intake, Times
from txn_engine.producer.receipts import Receipt
from txn_engine.producer.runs import ForgottenRuns, check_run_id, committed_before
from txn_engine.producer.sender import Sender
from txn_engine.producer.states import NO_ANSWER, UNDECIDED, Call, ProducerState
from txn_engine.producer.time_out import TimeOut
from txn_engine.producer.uploads import Uploads
from txn_engine.protocol.transaction_rows import TransactionRow
from txn_engine.reasons import Reason
from txn_engine.types import (
    ConsumerGroupMetadata,
    MarkerMode,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    RecordMetadata,
    TopicPartition,
)

T = TypeVar("T")

MAX_BLOCK_MS: Final = 60_000
"""For how long jobs ask for a commit again: Kafka's default of `max.block.ms`."""
_ASK_AGAIN_PAUSE_MS: Final = 500
_LOGGER = logging.getLogger(__name__)


@checks_arguments
class Producer:
    """Writes batches that are never doubled and, with a transactional id, transactions that are never torn.

    `Engine.producer()` gives an idempotent one, `Engine.producer(transactional_id=...)` a transactional one.

    Threads may share it as they may Kafka's: calls are taken one after the other. A future's callback runs in the
    thread that sends: it may `produce`; calls that wait are refused there, for they would wait for themselves. It
    belongs to the process that made it: it does not pickle and refuses to work in a forked child.

    Ctrl-C may land anywhere in a call: a `produce` that it breaks off fails its transaction (an idempotent producer is
    finished, as by any lost batch), and all other calls may be made again.
    """

    def __init__(
        self,
        tools: ProducerTools,
        settings: ProducerSettings,
        *,
        markers: MarkerMode,
        resume: ProducerIdAndEpoch | None = None,
    ) -> None:
        transactional_id = settings.transactional_id
        if resume is not None and transactional_id is None:
            raise InvalidRequestError(
                "resume= without a transactional id", expected="the id that was initialised"
            )
        if transactional_id == "":
            raise InvalidRequestError(
                "an empty transactional id", expected="a name, or None for an idempotent producer"
            )
        check_whole_numbers("producer", transaction_timeout_ms=settings.transaction_timeout_ms)
        if resume is not None and not isinstance(resume, ProducerIdAndEpoch):
            raise InvalidRequestError(
                f"resume={resume!r:.80}",
                expected="the ProducerIdAndEpoch that was initialised",
                reason=Reason.BAD_ARGUMENT,
            )
        if markers not in ("inline", "deferred"):
            raise InvalidRequestError(f"markers={markers!r}", expected="'inline' or 'deferred'")
        self.transactional_id = transactional_id
        self._tools = tools
        self._cell = cell = Cell(events.new_machine(transactional_id))
        check = first_write_check(tools.coordinator, transactional_id)
        self._settings = settings
        time_out = TimeOut(tools.logs, settings)
        self._sender = Sender(tools.logs, tools.senders, cell, check, tools.waiting, settings, time_out)
        self._effects = Effects(tools, cell, self._sender, settings, time_out, markers=markers, resume=resume)
        self._calls = Calls(tools.coordinator, cell, self._sender)
        self._intake = Intake(tools, cell, self._sender, self._effects, self._calls)
        self._group_offsets = GroupOffsets(
            tools.logs, tools.groups, cell, self._sender, self._effects, self._calls, check
        )

    # --- who it is ------------------------------------------------------------------------------------------

    @property
    def producer_id(self) -> int:
        """The producer id in use; -1 before there is one."""
        return self._cell.now.identity.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch in use; it grows with every transaction's end."""
        return self._cell.now.identity.producer_epoch

    @property
    def state(self) -> ProducerState:
        """What the producer may do next; after a failed write it says so at once, not with the next call."""
        return self._cell.now.state

    @property
    def last_committed_run_id(self) -> str | None:
        """The run id of the last transaction under this id that was decided to commit and had one.

        Raises: `IllegalStateError` before `init_transactions()`.
        """
        ids = self.committed_run_ids
        return ids[-1] if ids else None

    @property
    def committed_run_ids(self) -> tuple[str, ...]:
        """The last 100 run ids under this id whose transactions were decided to commit, oldest first.

        Raises: `IllegalStateError` before `init_transactions()`.
        """
        return self._known_history().committed_run_ids

    def has_committed(self, run_id: str) -> bool | None:
        """Whether that run's transaction was decided to commit; None where the log no longer knows (the last
        100 are kept).

        Raises: `IllegalStateError` before `init_transactions()`.
        """
        history = self._known_history()
        self._tools.logs.tools.objects.check_identity_now()
        return history.has_committed(run_id)

    def committed_before(self, run_id: str, *, forgotten_runs: ForgottenRuns = "refuse") -> bool:
        """Whether that run was committed, for a load that is to be done once: where the log no longer knows, it is
        refused, or with "load" taken for new. A load into one topic calls its run as `run_into` says.

        Raises: `InvalidRequestError`: nobody can tell. `IllegalStateError` before `init_transactions()`.
        """
        history = self._known_history()
        self._tools.logs.tools.objects.check_identity_now()
        return committed_before(history, run_id, forgotten_runs)

    def _known_history(self) -> TransactionRow:
        history = self._cell.now.history
        if history is None:
            raise IllegalStateError("no init_transactions() yet", actor=self._actor())
        return history

    def _actor(self) -> str:
        return self._cell.now.actor

    def __repr__(self) -> str:
        kind = (
            "idempotent"
            if self.transactional_id is None
            else f"of transactional id {self.transactional_id!r}"
        )
        identity = f"producer id {self.producer_id} epoch {self.producer_epoch}"
        known = identity if self.producer_id >= 0 else "no producer id yet"
        return f"<Producer {kind}, {known}, {self.state}>"

    def __reduce__(self) -> NoReturn:
        raise IllegalStateError(
            "a producer was pickled", expected="each process makes its own", actor=self._actor()
        )

    # --- a transaction's frame ------------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Fence the previous instance of this transactional id, end what it left open, and learn which runs
        it committed.

        With `resume` nothing is written: the identity is taken over as it is, once. Where nobody answers, the same call
        may be made again.

        Raises: `ProducerFencedError`: another instance came meanwhile, or the identity is no longer the id's.
        `InvalidTxnStateError`: something was added under the resumed identity already.
        `InvalidTransactionTimeoutError`: above the store's limit. `RequestTimedOutError`: what was left open could not
        be ended for 30 s. `OutcomeUnknownError`, `StoreUnavailableError`: the store did not answer.
        """

        def initialise() -> None:
            self._effects.carry_out(self._cell.move(events.init_called))

        self._ask_again(
            lambda: self._calls.in_turn(Call.INIT_TRANSACTIONS, initialise, goes_on=False),
            ProducerState.INITIALIZING,
            None,
        )

    def begin_transaction(self, run_id: str | None = None) -> None:
        """Begin; nothing is written yet. `run_id` names this run of a load, for `has_committed` of a later one.

        Raises: `InvalidRequestError`: a run id that is empty or no name. `IllegalStateError`: not initialised, or in a
        transaction. `ProducerFencedError`, `InvalidProducerIdMappingError`: the id is another's, or has expired.
        """

        def begin() -> None:
            if run_id is not None:
                check_run_id(run_id, actor=self._actor())
            self._cell.move(events.begun, run_id)

        self._calls.in_turn(Call.BEGIN_TRANSACTION, begin)

    @contextmanager
    def transaction(self, run_id: str | None = None) -> Iterator[Producer]:
        """Begin; commit when the block ends, abort when it raises. Raises as the calls do."""
        self.begin_transaction(run_id)
        try:
            yield self
        except BaseException:
            if self.state in UNDECIDED:
                self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except TxnEngineError:
            if self.state is ProducerState.ABORTABLE_ERROR:
                self.abort_transaction()
            raise

    def commit_transaction(self, *, max_block_ms: int | None = None) -> None:
        """Wait for all writes, decide to commit, and let readers see it.

        With "inline" markers readers see it when this returns, unless the store failed between the decision and a
        marker: that is logged, and left to the marker sweep. The coordinator's Complete row is written behind the
        caller's back: the next transaction, `close` and the engine's close wait for it, and what becomes of it changes
        nothing for this one. With "deferred" markers it returns at the decision.

        max_block_ms: for so long it is asked for again where the store does not answer; None: as long as the producer's
            `max.block.ms` says, which is not at all where it is not set.

        Raises: `TransactionAbortableError`: a write failed, only `abort_transaction` is left. `OutcomeUnknownError`,
        `StoreUnavailableError`, `RequestTimedOutError`: the state is COMMITTING_TRANSACTION; the same call again has
        its answer from the log. `ProducerFencedError`: it was not committed. `IllegalStateError`: no transaction.
        """
        self._ask_again(
            lambda: self._calls.ending(Call.COMMIT_TRANSACTION, self._commit),
            ProducerState.COMMITTING_TRANSACTION,
            max_block_ms,
        )

    def _ask_again(self, ask: Callable[[], None], while_in: ProducerState, max_block_ms: int | None) -> None:
        """Ask, and again where nobody answers and the state says that the call was made, for as long as may be."""
        waiting = self._tools.waiting
        most_ms = self._settings.max_block_ms if max_block_ms is None else max_block_ms
        deadline = waiting.monotonic_ms() + max(most_ms, 0)
        while True:
            try:
                return ask()
            except NO_ANSWER as error:
                if self.state is not while_in or waiting.monotonic_ms() >= deadline:
                    raise
                _LOGGER.warning("%s: no answer yet, it is asked for again: %s", while_in.name, error)
                waiting.pause_ms(_ASK_AGAIN_PAUSE_MS)

    def _commit(self) -> None:
        """A topic that was deleted before the decision took records with it: half a transaction is never committed.

        So it is asked for once no call can add records, and before the decision; a commit that is asked for again has
        asked before.
        """
        self._cell.wait_for(lambda now: now.sending == 0)
        is_first = self.state is ProducerState.IN_TRANSACTION
        current = self._sender.ask_whether_topics_are_current() if is_first else {}
        self._wait_for_writes()
        if self._cell.now.run_id is not None and self.state is ProducerState.IN_TRANSACTION:
            self._effects.carry_out(self._cell.move(events.row_wanted))
        self._effects.wait_for_rows()
        self._sender.fail_where_deleted(current)
        self._effects.carry_out(self._cell.move(events.committing))

    def abort_transaction(self) -> None:
        """Drop what is not sent, and decide to abort.

        Raises: `OutcomeUnknownError`, `StoreUnavailableError`, `RequestTimedOutError`: the state is
        ABORTING_TRANSACTION; the same call again learns what happened. `ProducerFencedError`,
        `InvalidProducerIdMappingError`: nothing is left to abort, and the producer is finished. `IllegalStateError`: no
        transaction.
        """
        self._ask_again(
            lambda: self._calls.ending(Call.ABORT_TRANSACTION, self._abort),
            ProducerState.ABORTING_TRANSACTION,
            None,
        )

    def _abort(self) -> None:
        self._effects.carry_out(self._cell.move(events.aborting))
        self._wait_for_writes()
        self._effects.wait_for_rows()
        self._effects.carry_out(self._cell.move(events.aborted))

    def _wait_for_writes(self) -> None:
        """Of callbacks too, of which none begins while a transaction is being ended."""
        self._cell.wait_for(lambda now: now.sending == 0)
        self._effects.join_what_waits()
        self._sender.wait()

    # --- records --------------------------------------------------------------------------------------------

    def produce(
        self, topic: str, table: RecordsLike, *, partition: int | None = None, timestamp_ms: Times = None
    ) -> Future[list[RecordMetadata]]:
        """Send records in the topic's schema, split by its key column unless a partition is named. `timestamp_ms`: of
        all of them, or of a table's each (an int64 column), 0 to the end of the year 9999; without it they have the
        time of now.

        `table` is a pyarrow Table, RecordBatch or reader of the topic's types; or a pandas or Polars frame, a dict of
        columns or a list of dicts, of which each value is converted to the topic's type where nothing is lost. In
        pandas' columns NaN, NaT and None are nulls, and an index is a column if it has a name.

        Returns at once (or when the buffer has room, for at most `max.block.ms` where that is set; in a callback it
        does not wait) with a future of where they went, one entry a batch. A batch whose file would be larger than the
        topic's `max.message.bytes` or the producer's `max.request.size` is split. A table is checked whole before any
        of it is sent; a reader's batches one after the other, and a reader may not end the transaction. Nothing is
        copied: the records' buffers (a numpy array's, too) are the producer's until the future is done. What was handed
        over goes out: the future's `cancel()` is False. The coordinator hears of new partitions while their data files
        are on their way, and of those that calls name within a millisecond or two in one row: the future tells what it
        answered.

        Raises: `UnknownTopicOrPartitionError`, `InvalidRecordError`, `InvalidRequestError`: nothing of the call was
        sent. `RequestTimedOutError`: there was no room. `TransactionAbortableError`: an earlier write failed.
        `ProducerFencedError` and what else finished the producer: again with each call. `IllegalStateError`: no
        transaction.
        """
        receipt = Receipt()
        self._calls.handing_over(
            receipt, lambda: self._intake.records(topic, table, partition, timestamp_ms, receipt)
        )
        return receipt.future

    def produce_files(
        self, topic: Topic, files: Sequence[tuple[int, EncodedFile]]
    ) -> Future[list[RecordMetadata]]:
        """Send data files that others have put on the store for this producer, at its present epoch:
        (partition, file) each.

        How Spark's executors write: they upload under this producer's id and epoch (`upload_records`), and
        the driver names what the winning tasks left. A file of another producer or epoch is refused, and so are all
        where `topic`, that of the upload, was deleted meanwhile: another of its name has other folders.

        Raises: as `produce`.
        """
        receipt = Receipt()
        self._calls.handing_over(receipt, lambda: self._intake.files(topic, files, receipt))
        return receipt.future

    def upload(self) -> Uploads:
        """Records for the next transaction, uploaded before it begins, for a load that takes long: `Uploads` says how.

        Raises: `IllegalStateError`: not initialised, or closed. What finished the producer.
        """
        self._calls.process.check()
        self._intake.identify()
        events.allow(self._cell.now, Call.UPLOAD)
        return Uploads(self._tools, self._settings, self._cell, self.produce_files)

    def flush(self) -> None:
        """Wait until all that was sent is in the log or has failed.

        A transaction's failures are told by its futures and its commit. An idempotent producer's are raised here,
        and by every later call.

        Raises: what finished the producer. `IllegalStateError`: in a callback.
        """
        self._calls.refuse_in_a_callback()
        self._calls.hear_of_what_was_broken_off()
        self._effects.join_what_waits()
        self._sender.wait()
        now = self._cell.now
        if now.state is ProducerState.FATAL_ERROR and now.error is not None:
            self._calls.has_told = True
            raise now.error.with_traceback(None)  # as `allow`

    # --- offsets --------------------------------------------------------------------------------------------

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction, naming the rows that the reader had fetched.

        Raises: `OffsetsMovedError`: somebody else has processed the range. `OffsetsPendingError`: somebody is about to.
        `UnknownTopicOrPartitionError`: the topic that was read is gone. In each case, and where the store fails, the
        transaction can only abort. `ProducerFencedError`: another instance has the id. `IllegalStateError`: no
        transaction.
        """
        self._calls.in_turn(Call.SEND_OFFSETS, lambda: self._group_offsets.send(offsets, group_metadata))

    # --- the end --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for what was sent, abort an open transaction, wait for the last one's Complete row, and let go. A second
        call only tells what the first one had no time to tell; one while another thread ends the transaction is
        refused. In a forked child it only lets go.

        Raises: what an idempotent producer's batches failed with, where nobody has heard of it yet.
        `IllegalStateError`: in a callback, or while the transaction is being ended.
        """
        if not self._calls.process.is_here:  # a thread of the parent may hold any lock
            self._cell.now = replace(self._cell.now, state=ProducerState.CLOSED)
        elif self.state is ProducerState.CLOSED:
            self._sender.start()  # where the first call was broken off
        else:
            self._calls.closing(self._close)

    def _close(self) -> None:
        try:
            if self.state in UNDECIDED:
                self._abort()
            elif self.transactional_id is None and not self._calls.has_told:
                self.flush()
            self._effects.wait_for_completion()
        finally:
            self._effects.carry_out(self._cell.move(events.closed))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with suppress(TxnEngineError):  # the error that is under way says more than one of closing
            self.close()
