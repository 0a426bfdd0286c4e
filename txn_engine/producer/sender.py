"""A producer's records on their way: split by key, buffered, uploaded and appended, partition by partition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future

import pyarrow as pa

from txn_engine.log.data_files import EncodedFile
from txn_engine.log.logs import Logs
from txn_engine.log.topics import Topic
from txn_engine.producer.lanes import Batch, Lane, is_sending_in
from txn_engine.producer.partitioner import split_by_key
from txn_engine.producer.receipts import Receipt
from txn_engine.producer.waiters import Waiters
from txn_engine.protocol.appends import FirstWriteCheck
from txn_engine.protocol.sequences import increment_sequence
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.types import ProducerIdAndEpoch

BUFFER_BYTES = 256 * 1024 * 1024
READER_PART_BYTES = 32 * 1024 * 1024

Records = pa.Table | pa.RecordBatch | pa.RecordBatchReader
Join = Callable[[Sequence[TransactionPartition]], None]


class Sender:
    """All lanes of one producer, of one epoch at a time, and what has failed of them.

    `join` makes partitions part of the transaction, while their data files are on their way; None for an idempotent
    producer, whose batches wait for nothing. `identity` is what batches go out under; `failure` the first that failed.
    """

    def __init__(
        self,
        logs: Logs,
        pool: Executor,
        join: Join | None,
        first_write_check: Callable[[Lane], FirstWriteCheck],
    ) -> None:
        self.identity = ProducerIdAndEpoch(-1, -1)
        self.failure: BaseException | None = None
        self._logs = logs
        self._pool = pool
        self._join = join
        self._first_write_check = first_write_check
        self._lanes: dict[TransactionPartition, Lane] = {}
        self._waiters = Waiters()
        self._buffer = threading.Lock()
        self._buffered_bytes = 0
        self._turn = 0

    def start_epoch(self, identity: ProducerIdAndEpoch) -> None:
        """Forget all lanes: every epoch has its own views of the logs, and sequences from 0 on."""
        self.identity = identity
        self._lanes.clear()
        self._buffered_bytes = 0
        self.failure = None

    def is_calling_back(self) -> bool:
        """Whether the caller is a callback of a batch, of this producer or of another one of the engine: in a thread
        that sends.
        """
        return is_sending_in(self._pool)

    # --- records in -----------------------------------------------------------------------------------------

    def wait_for_room(self, records: pa.Table) -> None:
        """Until the buffer can take these records, or is empty; all that is in it can go out by itself."""
        size = _buffer_size(records)
        self._waiters.wait_for(lambda: self._buffered_bytes + size <= BUFFER_BYTES)

    def send(
        self, topic: Topic, records: pa.Table, partition: int | None, stamp: int, receipt: Receipt
    ) -> None:
        """Send records that fit the topic, to the partition named or by their key."""
        if partition is None:
            self._turn += 1
            parts = list(split_by_key(records, topic.key, topic.partitions, self._turn % topic.partitions))
        else:
            parts = [(partition, records)]
        self.send_parts(
            [(TransactionPartition(topic.name, topic.incarnation, number), part) for number, part in parts],
            receipt,
            stamp,
        )

    def send_parts(
        self,
        parts: Sequence[tuple[TransactionPartition, pa.Table | EncodedFile]],
        receipt: Receipt,
        stamp: int = -1,
    ) -> None:
        """Send to each partition what is for it: records, or a data file that stands on the store already."""
        targets = list(dict.fromkeys(target for target, _ in parts))
        lanes = dict(zip(targets, self.lanes_for(targets), strict=True))
        topics = {(target.topic, target.incarnation) for target in targets}
        current = {topic: self._logs.ask_whether_current(*topic) for topic in sorted(topics)}
        for target, part in parts:
            self._queue(lanes[target], part, stamp, current[target.topic, target.incarnation], receipt)
        if self._join is not None:
            self._join(targets)

    def _queue(
        self,
        lane: Lane,
        records: pa.Table | EncodedFile,
        stamp: int,
        is_current: Future[bool],
        receipt: Receipt,
    ) -> None:
        if isinstance(records, EncodedFile):
            count, stamp, size = records.record_count, records.max_timestamp, 0
        else:
            count, size = records.num_rows, _buffer_size(records)
        sequence = lane.next_sequence
        transactional = self._join is not None
        number = receipt.expect()
        batch = Batch(
            records, self.identity, sequence, transactional, stamp, is_current, size, receipt, number
        )
        with self._buffer:
            self._buffered_bytes += size
        lane.next_sequence = increment_sequence(sequence, count)
        lane.send(batch)

    def settled(self, batch: Batch) -> None:
        """A batch is in the log, or has failed: its room is free."""
        with self._buffer:
            self._buffered_bytes -= batch.size
        self._waiters.wake()

    # --- lanes ----------------------------------------------------------------------------------------------

    def lanes_for(self, targets: Sequence[TransactionPartition]) -> list[Lane]:
        """The lanes to these partitions; new ones load their views before the coordinator hears of the partition."""
        missing = [target for target in targets if target not in self._lanes]
        unloaded = [log for log in map(self._logs.of, missing) if not log.is_loaded]
        if len(unloaded) > 1:
            self._logs.refresh_all(unloaded)
        for target in missing:
            self._lanes[target] = self._new_lane(target)
        return [self._lanes[target] for target in targets]

    def _new_lane(self, target: TransactionPartition) -> Lane:
        return Lane(
            target,
            self.identity,
            self._logs.of(target),
            self._logs.tools,
            self._pool,
            self._first_write_check,
            self,
            is_admitted=self._join is None,
        )

    def admit(self, targets: Sequence[TransactionPartition]) -> None:
        """These partitions are part of the transaction now: their lanes may append."""
        for target in targets:
            if target in self._lanes:
                self._lanes[target].admit()

    # --- the end --------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Something was not written: nothing that is queued behind it may be, in any lane."""
        self.failure = self.failure or error
        self.abandon(self.failure)

    def abandon(self, reason: BaseException) -> None:
        """Drop what is not on its way yet."""
        for lane in list(self._lanes.values()):
            lane.cancel(reason)

    def wait(self) -> None:
        """Until all that was sent is in the log or has failed.

        Whatever a caller was interrupted at, this ends: it does what is left of a failure, and starts every lane anew.
        """
        if self.failure is not None:
            self.abandon(self.failure)
        lanes = list(self._lanes.values())
        newest = [lane.newest() for lane in lanes]
        for lane in lanes:
            lane.start()
        for batch in newest:
            if batch is not None:
                self._waiters.wait_for(batch.has_settled)


def _buffer_size(records: pa.Table) -> int:
    return max(min(records.nbytes, BUFFER_BYTES), 1)


def tables_of(records: Records) -> Iterator[pa.Table]:
    """The records in parts of a size that fits memory."""
    if isinstance(records, pa.Table):
        yield records
    elif isinstance(records, pa.RecordBatch):
        yield pa.Table.from_batches([records])
    else:
        pending: list[pa.RecordBatch] = []
        for batch in records:
            pending.append(batch)
            if sum(part.nbytes for part in pending) >= READER_PART_BYTES:
                yield pa.Table.from_batches(pending)
                pending = []
        if pending:
            yield pa.Table.from_batches(pending)
