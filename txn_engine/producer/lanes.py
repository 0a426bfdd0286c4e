"""A producer's batches on their way into one partition: in order, uploads first, many to an entry."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import pyarrow as pa

from txn_engine.errors import (
    IllegalStateError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.entry_log import EntryLog, LogTools, ViewToken
from txn_engine.log.uploads import upload_records
from txn_engine.protocol.appends import FirstWriteCheck
from txn_engine.protocol.proposals import DataProposal, Refused
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.types import ProducerIdAndEpoch, RecordMetadata

MAX_BATCHES_PER_ENTRY = 64


@dataclass(slots=True)
class Batch:
    """Records for one partition, or a data file that holds them, with the sequence they were given, and whom
    to tell.

    `is_current`: whether the topic was still this incarnation, asked when the records were handed over.
    """

    records: pa.Table | EncodedFile
    identity: ProducerIdAndEpoch
    base_sequence: int
    is_transactional: bool
    timestamp_ms: int
    is_current: Future[bool]
    done: Future[RecordMetadata]


class Lane:
    """One partition's batches of one producer, sent one entry after the other by whichever thread is free.

    After a failure everything queued behind it fails too, until `reset`: nothing may overtake a batch that is missing.
    """

    def __init__(
        self,
        partition: TransactionPartition,
        identity: ProducerIdAndEpoch,
        log: EntryLog,
        tools: LogTools,
        senders: Executor,
        first_write_check: Callable[[Lane], FirstWriteCheck],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.partition = partition
        self.identity = identity
        self.log = log
        self.view_token: ViewToken = log.token
        self.added: Future[None] = Future()
        self.next_sequence = 0
        self._tools = tools
        self._senders = senders
        self._first_write_check = first_write_check
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._queue: deque[Batch] = deque()
        self._running = False
        self._failure: BaseException | None = None

    def send(self, batch: Batch) -> None:
        """Queue a batch."""
        with self._lock:
            self._queue.append(batch)
            if self._running:
                return
            self._running = True
        try:
            self._senders.submit(self._drain)
        except IllegalStateError as closed:  # nobody will drain this queue any more
            with self._lock:
                self._running = False
                stranded = list(self._queue)
                self._queue.clear()
            self._fail(stranded, closed)
            raise

    def cancel(self, reason: BaseException) -> None:
        """Fail what is queued and not yet on its way."""
        with self._lock:
            self._failure = self._failure or reason

    def _drain(self) -> None:
        while True:
            with self._lock:
                batches = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCHES_PER_ENTRY))]
                if not batches:
                    self._running = False
                    return
            try:
                self._send(batches)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the waiting caller must hear of it
                self._fail(batches, error)

    def _fail(self, batches: list[Batch], error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
        self._on_failure(error)
        for batch in batches:
            if not batch.done.done():
                batch.done.set_exception(error)

    def _send(self, batches: list[Batch]) -> None:
        if self._failure is not None:
            raise TransactionAbortableError(f"an earlier batch for this partition failed: {self._failure}")
        uploaded = [(batch, self._upload(batch)) for batch in batches]
        self.added.result()
        if self._failure is not None:
            raise TransactionAbortableError(f"the transaction failed elsewhere: {self._failure}")
        if not all(batch.is_current.result() for batch in batches):
            raise UnknownTopicOrPartitionError(
                f"topic {self.partition.topic!r} was deleted since (its incarnation {self.partition.incarnation})",
                actor=f"producer {self.identity.producer_id} epoch {self.identity.producer_epoch}",
                action="run it again where the topic was made again; nothing of this is visible",
            )
        proposals = [_proposal(batch, encoded) for batch, encoded in uploaded]
        verdicts = self.log.append(proposals, self._first_write_check(self))
        refused = next((verdict.error for verdict in verdicts if isinstance(verdict, Refused)), None)
        if refused is not None:  # the producer hears of it before anybody who waits for one of these batches
            self._fail([], refused)
        for (batch, _), verdict in zip(uploaded, verdicts, strict=True):
            if isinstance(verdict, Refused):
                batch.done.set_exception(verdict.error)
                continue
            place = (self.partition.topic, self.partition.partition, verdict.base_offset, verdict.last_offset)
            batch.done.set_result(RecordMetadata(*place, batch.timestamp_ms))

    def _upload(self, batch: Batch) -> EncodedFile:
        if isinstance(batch.records, EncodedFile):
            return batch.records
        return upload_records(
            self._tools.objects,
            self._tools.new_id,
            self.log.keys.prefix,
            batch.records,
            log_end=self.log.view().log_end_offset,
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
