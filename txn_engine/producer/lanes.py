"""A producer's batches on their way into one partition: in order, uploads first, many to an entry."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import pyarrow as pa

from txn_engine.errors import IllegalStateError, UnknownTopicOrPartitionError
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.entry_log import EntryLog, LogTools, ViewToken
from txn_engine.log.uploads import upload_records
from txn_engine.producer.receipts import Receipt
from txn_engine.protocol.appends import FirstWriteCheck
from txn_engine.protocol.proposals import DataProposal, Refused
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.types import ProducerIdAndEpoch, RecordMetadata

MAX_BATCHES_PER_ENTRY = 64

_LOGGER = logging.getLogger(__name__)

_sending_in: ContextVar[tuple[int, object] | None] = ContextVar("sending_in", default=None)


def is_sending_in(pool: object) -> bool:
    """Whether this is a thread of the pool that sends, as it is in a callback: what waits for a batch there may wait
    for itself. A context may be carried to another thread, so that the thread counts too.
    """
    return _sending_in.get() == (threading.get_ident(), pool)


@dataclass(slots=True, eq=False)
class Batch:
    """Records for one partition, or a data file that holds them, with the sequence they were given, and whom
    to tell.

    `is_current`: whether the topic was still this incarnation, asked when the records were handed over. `size`: what it
    takes of the producer's buffer. `number`: its place in the receipt. `uploaded`: its file, once that is there.
    """

    records: pa.Table | EncodedFile
    identity: ProducerIdAndEpoch
    base_sequence: int
    is_transactional: bool
    timestamp_ms: int
    is_current: Future[bool]
    size: int
    receipt: Receipt
    number: int
    uploaded: EncodedFile | None = None
    is_settled: bool = False

    def has_settled(self) -> bool:
        """Whether it is in the log, or has failed."""
        return self.is_settled


class LaneOwner(Protocol):
    """Whose lane it is: says what may go out, and hears of a failure before anybody who waits for the batch."""

    def admits(self, partition: TransactionPartition) -> bool:
        """Whether the partition is part of the transaction, so that batches may be appended."""

    def refusal(self, partition: TransactionPartition) -> BaseException | None:
        """What a batch fails with that is not appended yet; None where it may go out."""

    def fail(self, error: BaseException) -> None:
        """Something was not written: nothing that is queued may be, in any lane."""

    def settled(self, batch: Batch) -> None:
        """A batch is in the log, or has failed."""


class Lane:
    """One partition's batches of one transaction, sent one entry after the other by whichever thread is free.

    No thread waits: a lane that may not append yet has uploaded what it holds, and goes on when it is started again.
    After a failure everything queued fails: nothing may overtake a batch that is missing.

    A batch is in the queue until it is settled, and the queue is all there is to know: an interrupt (Ctrl-C) in the
    caller finds it with the batch or without, and holds no lock. Whoever waits for the lane starts it again.
    """

    def __init__(
        self,
        partition: TransactionPartition,
        identity: ProducerIdAndEpoch,
        log: EntryLog,
        tools: LogTools,
        senders: Executor,
        first_write_check: Callable[[Lane], FirstWriteCheck],
        owner: LaneOwner,
    ) -> None:
        self.partition = partition
        self.identity = identity
        self.log = log
        self.view_token: ViewToken = log.token
        self.next_sequence = 0
        self._tools = tools
        self._senders = senders
        self._first_write_check = first_write_check
        self._owner = owner
        self._queue: deque[Batch] = deque()
        self._draining = threading.Lock()
        self._is_asked_for = (
            False  # a thread is on its way: spares a burst of batches a thread each, no more than that
        )

    def send(self, batch: Batch) -> None:
        """Queue a batch. Raises `IllegalStateError` where the engine is closed; the batch has failed then."""
        self._queue.append(batch)
        if not self._is_asked_for:
            self.start()

    def start(self) -> None:
        """See to it that somebody does what can be done now. Raises as `send`."""
        if not self._has_work() or self._draining.locked():
            return  # who sends looks for work again after it has let go
        self._is_asked_for = True
        try:
            self._senders.submit(self._drain)
        except IllegalStateError as closed:  # no thread will: what is queued fails here
            self._owner.fail(closed)
            self._drain()
            raise

    def newest(self) -> Batch | None:
        """The last batch that is not settled. Batches are settled in their order."""
        queued = tuple(self._queue)
        return queued[-1] if queued else None

    def _drain(self) -> None:
        self._is_asked_for = False
        before = _sending_in.set((threading.get_ident(), self._senders))
        try:
            while self._has_work() and self._draining.acquire(blocking=False):
                try:
                    self._work()
                finally:
                    self._draining.release()
        finally:
            _sending_in.reset(before)

    def _next(self) -> list[Batch]:
        return list(islice(self._queue, MAX_BATCHES_PER_ENTRY))

    def _may_append(self) -> bool:
        return self._owner.admits(self.partition) or self._owner.refusal(self.partition) is not None

    def _has_work(self) -> bool:
        if not self._queue:
            return False
        batches = [] if self._may_append() else self._next()
        return not batches or batches[-1].uploaded is None  # they are uploaded in their order

    def _work(self) -> None:
        batches = self._next()
        if not batches:
            return  # another thread has sent them meanwhile
        try:
            self._go_on(batches)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the waiting caller must hear of it
            self._owner.fail(error)
            for batch in batches:
                if not batch.is_settled:
                    self._settle(batch, error)

    def _settle(self, batch: Batch, place: RecordMetadata | BaseException) -> None:
        """Tell the caller first: who waits for the batch goes on when its callbacks have run (Kafka's `flush`). What
        one of them raises is its own.
        """
        try:
            batch.receipt.settle(batch.number, place)
        except BaseException:
            _LOGGER.exception("a callback of produce() failed")
        finally:
            self._queue.popleft()
            batch.is_settled = True
            self._owner.settled(batch)

    def _go_on(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._check_refusal()
            if batch.uploaded is None:
                batch.uploaded = self._upload(batch)
        self._check_refusal()
        if self._owner.admits(self.partition):
            self._append([(batch, batch.uploaded) for batch in batches if batch.uploaded is not None])

    def _check_refusal(self) -> None:
        refusal = self._owner.refusal(self.partition)
        if refusal is not None:
            raise refusal

    def _append(self, uploaded: list[tuple[Batch, EncodedFile]]) -> None:
        if not all(batch.is_current.result() for batch, _ in uploaded):
            raise UnknownTopicOrPartitionError(
                f"topic {self.partition.topic!r} was deleted since (its incarnation {self.partition.incarnation})",
                actor=f"producer {self.identity.producer_id} epoch {self.identity.producer_epoch}",
                action="run it again where the topic was made again; nothing of this is visible",
            )
        proposals = [_proposal(batch, encoded) for batch, encoded in uploaded]
        verdicts = self.log.append(proposals, self._first_write_check(self))
        refused = next((verdict.error for verdict in verdicts if isinstance(verdict, Refused)), None)
        if refused is not None:  # the producer hears of it before anybody who waits for one of these batches
            self._owner.fail(refused)
        for (batch, _), verdict in zip(uploaded, verdicts, strict=True):
            if isinstance(verdict, Refused):
                self._settle(batch, verdict.error)
                continue
            place = (self.partition.topic, self.partition.partition, verdict.base_offset, verdict.last_offset)
            self._settle(batch, RecordMetadata(*place, batch.timestamp_ms))

    def _upload(self, batch: Batch) -> EncodedFile:
        if isinstance(batch.records, EncodedFile):
            return batch.records
        return upload_records(
            self._tools.objects,
            self._tools.new_id,
            self.log.keys.prefix,
            batch.records,
            log_end=self.log.recent().log_end_offset,
            producer_id=batch.identity.producer_id,
            producer_epoch=batch.identity.producer_epoch,
            timestamp_ms=batch.timestamp_ms,
        )


def _proposal(batch: Batch, encoded: EncodedFile) -> DataProposal:
    return DataProposal(
        record_count=encoded.record_count,
        first_timestamp=encoded.first_timestamp,
        max_timestamp=encoded.max_timestamp,
        file=encoded.file,
        producer_id=batch.identity.producer_id,
        producer_epoch=batch.identity.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
    )
