"""A producer's batches on their way into one partition: in order, uploads first, many to an entry."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from txn_engine.clock import Waiting
from txn_engine.configs.client import ProducerSettings
from txn_engine.errors import (
    IllegalStateError,
    RequestTimedOutError,
)
from txn_engine.log.data_files import EncodedFile, newest_of
from txn_engine.log.entry_log import EntryLog, LogTools, ViewToken
from txn_engine.log.uploads import encode_parts, put_data_file, too_large
from txn_engine.producer.receipts import Receipt
from txn_engine.producer.refused_batches import producer_id_in_use, topic_deleted
from txn_engine.protocol.appends import FirstWriteCheck
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.proposals import DataProposal, Duplicate, Refused, Verdict
from txn_engine.protocol.sequences import increment_sequence
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import Layout
from txn_engine.types import ProducerIdAndEpoch, RecordMetadata

_LINGERING_MAX = 4_096
"""Batches that are looked at together where they may go into one file."""
_LOOK_AGAIN_MS = 5

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

    `is_current`: whether the topic was still this incarnation, asked when the records were handed over. `layout`: to
    which the records conform; the file says so, and stays right whatever becomes of the topic. `size`: what it takes
    of the producer's buffer. `number`: its place in the receipt. `most_bytes`: of its file. `queued_ms`: when it
    was handed over, by the monotonic clock. `uploaded`: its file, once that is there; several that follow one another
    may have the same, unless one `is_alone`.
    """

    records: pa.Table | EncodedFile
    identity: ProducerIdAndEpoch
    base_sequence: int
    is_transactional: bool
    timestamp_ms: int
    is_current: Future[bool]
    layout: Layout | None
    size: int
    receipt: Receipt
    number: int
    most_bytes: int
    queued_ms: int
    uploaded: EncodedFile | None = None
    is_alone: bool = False
    is_settled: bool = False

    @property
    def count(self) -> int:
        """Its records."""
        return self.records.num_rows if isinstance(self.records, pa.Table) else self.records.record_count

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
        waiting: Waiting,
        settings: ProducerSettings,
    ) -> None:
        self._waiting = waiting
        self._settings = settings
        self._is_hurried = False
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

    def hurry(self) -> None:
        """Somebody waits for what is queued: it does not linger any more."""
        self._is_hurried = bool(self._queue)

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
                    self._work(is_due=self._linger())
                finally:
                    self._draining.release()
        finally:
            _sending_in.reset(before)

    def _next(self) -> list[list[Batch]]:
        """What the next entry names, by the files that it goes into, or is in."""
        most = self._settings.max_in_flight_requests_per_connection
        if not self._settings.linger_ms:
            return [[batch] for batch in self._first(most)]
        return self._together()[:most]

    def _first(self, most: int) -> tuple[Batch, ...]:
        """The first batches of the queue. It is copied in one step: the caller adds to it meanwhile, and a loop over a
        deque that grows raises RuntimeError.
        """
        return tuple(self._queue)[:most]

    def _together(self) -> list[list[Batch]]:
        """Batches that go into one file, one after the other."""
        groups: list[list[Batch]] = []
        size = 0
        for batch in self._first(_LINGERING_MAX):
            last = groups[-1][-1] if groups else None
            is_same = last is not None and last.uploaded is batch.uploaded is not None
            may_join = last is not None and last.uploaded is batch.uploaded is None and _may_join(last, batch)
            if is_same or (may_join and size + batch.size <= self._settings.batch_size):
                groups[-1].append(batch)
                size += batch.size
            else:
                groups.append([batch])
                size = batch.size
        return groups

    def _linger(self) -> bool:
        """Until the records that are not uploaded have waited for long enough, or are enough for a file; False where
        they have not, but files that are uploaded can be appended meanwhile.
        """
        while self._settings.linger_ms and not self._is_hurried:
            queued = tuple(self._queue)
            waiting = [batch for batch in queued if batch.uploaded is None]
            if not waiting or sum(batch.size for batch in waiting) >= self._settings.batch_size:
                return True
            left = waiting[0].queued_ms + self._settings.linger_ms - self._waiting.monotonic_ms()
            if left <= 0 or self._owner.refusal(self.partition) is not None:
                return True
            if len(waiting) < len(queued) and self._owner.admits(self.partition):
                return False
            self._waiting.pause_ms(min(left, _LOOK_AGAIN_MS))
        return True

    def _may_append(self) -> bool:
        return self._owner.admits(self.partition) or self._owner.refusal(self.partition) is not None

    def _has_work(self) -> bool:
        if not self._queue:
            return False
        groups = [] if self._may_append() else self._next()
        return not groups or groups[-1][0].uploaded is None  # they are uploaded in their order

    def _work(self, *, is_due: bool) -> None:
        groups = [group for group in self._next() if is_due or group[0].uploaded is not None]
        if not groups:
            return  # another thread has sent them meanwhile
        try:
            self._go_on(groups)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the waiting caller must hear of it
            self._owner.fail(error)
            for batch in (batch for group in groups for batch in group):
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
            self._is_hurried = self._is_hurried and bool(self._queue)
            batch.is_settled = True
            self._owner.settled(batch)

    def _go_on(self, groups: list[list[Batch]]) -> None:
        oldest = groups[0][0]
        for group in groups:
            self._check_refusal(oldest)
            if group[0].uploaded is None and not self._upload(group):
                return  # they were taken apart: what is queued is another now
        self._check_refusal(oldest)
        if self._owner.admits(self.partition):
            self._append([(group, group[0].uploaded) for group in groups if group[0].uploaded is not None])

    def _check_refusal(self, oldest: Batch) -> None:
        refusal = self._owner.refusal(self.partition)
        if refusal is not None:
            raise refusal
        waited_ms = self._waiting.monotonic_ms() - oldest.queued_ms
        if waited_ms > self._settings.delivery_timeout_ms:
            raise RequestTimedOutError(
                f"records for {self.partition.topic}-{self.partition.partition} waited for {waited_ms} ms",
                actor=f"producer {self.identity.producer_id} epoch {self.identity.producer_epoch}",
                expected=f"at most delivery.timeout.ms, {self._settings.delivery_timeout_ms}",
                action="none of them was appended; run it again when the store is quicker, or give it more time",
                reason=Reason.DELIVERY_TIMEOUT,
            )

    def _append(self, uploaded: list[tuple[list[Batch], EncodedFile]]) -> None:
        if not all(batch.is_current.result() for group, _ in uploaded for batch in group):
            raise topic_deleted(self.partition.topic, self.partition.incarnation, self.identity)
        proposals = [_proposal(group[0], encoded) for group, encoded in uploaded]
        is_plain = not uploaded[0][0][
            0
        ].is_transactional  # a transaction's commit says that it was this store
        verdicts = self.log.append(proposals, self._first_write_check(self), confirm=is_plain)
        verdicts = tuple(map(self._of_a_first_try, verdicts))
        refused = next((verdict.error for verdict in verdicts if isinstance(verdict, Refused)), None)
        if refused is not None:  # the producer hears of it before anybody who waits for one of these batches
            self._owner.fail(refused)
        for (group, _), verdict in zip(uploaded, verdicts, strict=True):
            self._settle_all(group, verdict)

    def _of_a_first_try(self, verdict: Verdict) -> Verdict:
        """A batch is handed to the log once, and what became of that put is settled there. So one that the log has
        already is not this batch.
        """
        if not isinstance(verdict, Duplicate):
            return verdict
        return Refused(producer_id_in_use(self.partition, verdict, self.identity))

    def _settle_all(self, batches: list[Batch], verdict: Verdict) -> None:
        """Those of one file, in its order."""
        if isinstance(verdict, Refused):
            for batch in batches:
                self._settle(batch, verdict.error)
            return
        behind = verdict.base_offset
        for batch in batches:
            count = verdict.last_offset - behind + 1 if batch is batches[-1] else batch.count
            place = (self.partition.topic, self.partition.partition, behind, behind + count - 1)
            self._settle(batch, RecordMetadata(*place, batch.timestamp_ms))
            behind += count

    def _upload(self, group: list[Batch]) -> bool:
        """Put the file of batches that go into one; False where it would be too large, and they were taken apart."""
        first = group[0]
        if isinstance(first.records, EncodedFile):
            first.uploaded = first.records
            return True
        log_end = self.log.recent().log_end_offset
        name = DataFileName(log_end, *first.identity, self._tools.new_id())
        if first.layout is None:
            raise ValueError("records without the layout that they conform to")
        tables = [
            (batch.records, batch.timestamp_ms) for batch in group if isinstance(batch.records, pa.Table)
        ]
        data, encoded = encode_parts(tables, first.layout, name)
        if len(data) > first.most_bytes and (len(group) > 1 or encoded.record_count > 1):
            self._take_apart(group)
            return False
        if len(data) > first.most_bytes:
            raise too_large(str(self.log.keys.prefix), 1, len(data), first.most_bytes)
        put_data_file(self._tools.objects, self.log.keys.prefix, data, encoded)
        for batch in group:
            batch.uploaded = encoded
        return True

    def _take_apart(self, group: list[Batch]) -> None:
        """Each of several batches gets a file of its own; one is split into halves, as Kafka's accumulator does. The
        sequences of what is behind them stay: a sequence is a record's.
        """
        for batch in group:
            batch.is_alone = True
        if len(group) > 1:
            return
        (second,) = group
        if not isinstance(second.records, pa.Table):
            return
        half = second.records.num_rows // 2
        before = second.records.slice(0, half)
        first = replace(
            second,
            records=before,
            timestamp_ms=newest_of(before, second.timestamp_ms),
            size=second.size // 2,
            number=second.receipt.expect_before(second.number),
        )
        self._queue.insert(self._queue.index(second), first)
        second.records = second.records.slice(half)
        second.timestamp_ms = newest_of(second.records, second.timestamp_ms)
        second.base_sequence = increment_sequence(second.base_sequence, half)
        second.size -= first.size


def _may_join(last: Batch, batch: Batch) -> bool:
    """Whether records that follow others may go into the same file."""
    both = (last, batch)
    is_records = all(isinstance(each.records, pa.Table) and not each.is_alone for each in both)
    return is_records and last.most_bytes == batch.most_bytes and last.layout == batch.layout


def _proposal(batch: Batch, encoded: EncodedFile) -> DataProposal:
    """Of the batches of one file the first."""
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
