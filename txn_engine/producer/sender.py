"""A producer's records on their way: split by key, buffered, uploaded and appended, partition by partition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress

import pyarrow as pa

from txn_engine.clock import Waiting
from txn_engine.configs.client import ProducerSettings
from txn_engine.errors import IllegalStateError, RequestTimedOutError, TxnEngineError
from txn_engine.log.data_files import EncodedFile, newest_of
from txn_engine.log.logs import Logs
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC
from txn_engine.log.topics import Topic
from txn_engine.producer.cell import Cell
from txn_engine.producer.lanes import Batch, Lane, is_sending_in
from txn_engine.producer.machine import failed, identified
from txn_engine.producer.partitioner import split_by_key
from txn_engine.producer.receipts import Receipt
from txn_engine.producer.refused_batches import topic_deleted
from txn_engine.producer.states import NO_ANSWER
from txn_engine.producer.time_out import TimeOut
from txn_engine.producer.waiters import Waiters
from txn_engine.protocol.appends import FirstWriteCheck
from txn_engine.protocol.sequences import increment_sequence
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import Layout
from txn_engine.types import ProducerIdAndEpoch

_LOOK_AGAIN_MS = 5
READER_PART_BYTES = 32 * 1024 * 1024

Records = pa.Table | pa.RecordBatch | pa.RecordBatchReader


class Sender:
    """The lanes of one producer, of one transaction at a time; what may go out is the machine's to say."""

    def __init__(
        self,
        logs: Logs,
        pool: Executor,
        cell: Cell,
        first_write_check: Callable[[Lane], FirstWriteCheck],
        waiting: Waiting,
        settings: ProducerSettings,
        time_out: TimeOut,
    ) -> None:
        self._waiting = waiting
        self._time_out = time_out
        self._settings = settings
        self._logs = logs
        self._pool = pool
        self._cell = cell
        self._first_write_check = first_write_check
        self._lanes: dict[TransactionPartition, Lane] = {}
        self._transaction = 0
        self._waiters = Waiters()
        self._queueing = threading.RLock()  # a part's sequences and places in the queues, against callbacks
        self._buffer = threading.Lock()
        self._buffered_bytes = 0
        self._turn = 0

    def is_calling_back(self) -> bool:
        """Whether the caller is a callback of a batch, of this producer or of another one of the engine: in a thread
        that sends.
        """
        return is_sending_in(self._pool)

    def identify(self, ask: Callable[[], ProducerIdAndEpoch]) -> None:
        """Have an idempotent producer's id, once."""
        with self._queueing:
            if self._cell.now.identity.producer_id < 0:
                self._cell.move(identified, ask())

    # --- records in -----------------------------------------------------------------------------------------

    def wait_for_room(self, records: pa.Table) -> None:
        """Until the buffer can take these records, or is empty; all that is in it can go out by itself, and does not
        linger. Raises `RequestTimedOutError` where `max.block.ms` is set and over.
        """
        size = self._buffer_size(records)

        def has_room() -> bool:
            return self._buffered_bytes + size <= self._settings.buffer_memory

        if has_room():
            return
        self._hurry()
        if self._settings.max_block_ms < 0:
            self._waiters.wait_for(has_room)
            return
        deadline = self._waiting.monotonic_ms() + self._settings.max_block_ms
        while not has_room():
            left = deadline - self._waiting.monotonic_ms()
            if left <= 0:
                raise RequestTimedOutError(
                    f"no room for {size} bytes in the buffer of {self._settings.buffer_memory} after"
                    f" {self._settings.max_block_ms} ms",
                    actor=self._cell.now.actor,
                    action="the records of this call were not sent; a larger buffer.memory or max.block.ms gives them"
                    " more time",
                    reason=Reason.BUFFER_FULL,
                )
            self._waiting.pause_ms(min(left, _LOOK_AGAIN_MS))

    def most_bytes(self, topic: Topic) -> int:
        """Of a data file for the topic."""
        return most_bytes(topic, self._settings)

    def _buffer_size(self, records: pa.Table) -> int:
        return max(min(records.nbytes, self._settings.buffer_memory), 1)

    def _hurry(self) -> None:
        """Nothing lingers any more of what is queued."""
        for lane in list(self._lanes.values()):
            lane.hurry()

    def send(
        self, topic: Topic, records: pa.Table, partition: int | None, stamp: int, receipt: Receipt
    ) -> list[TransactionPartition]:
        """Send records that fit the topic, to the partition named or by their key; to which partitions."""
        if partition is None:
            self._turn += 1
            parts = list(split_by_key(records, topic.key, topic.partitions, self._turn % topic.partitions))
        else:
            parts = [(partition, records)]
        return self.send_parts(
            [(TransactionPartition(topic.name, topic.incarnation, number), part) for number, part in parts],
            receipt,
            stamp,
            self.most_bytes(topic),
            topic.schemas.layout,
        )

    def send_parts(
        self,
        parts: Sequence[tuple[TransactionPartition, pa.Table | EncodedFile]],
        receipt: Receipt,
        stamp: int = -1,
        most_bytes: int = 0,
        layout: Layout | None = None,
    ) -> list[TransactionPartition]:
        """Send to each partition what is for it: records of this layout, or a data file that stands on the store
        already.
        """
        targets = list(dict.fromkeys(target for target, _ in parts))
        with self._queueing:
            lanes = dict(zip(targets, self.lanes_for(targets), strict=True))
            topics = {(target.topic, target.incarnation) for target in targets}
            current = {topic: self._logs.ask_whether_current(*topic) for topic in sorted(topics)}
            for target, part in parts:
                is_current = current[target.topic, target.incarnation]
                self._queue(lanes[target], part, layout, stamp, is_current, receipt, most_bytes)
        return targets

    def _queue(
        self,
        lane: Lane,
        records: pa.Table | EncodedFile,
        layout: Layout | None,
        stamp: int,
        is_current: Future[bool],
        receipt: Receipt,
        most_bytes: int,
    ) -> None:
        if isinstance(records, EncodedFile):
            count, stamp, size = records.record_count, records.max_timestamp, 0
        else:
            count, stamp, size = records.num_rows, newest_of(records, stamp), self._buffer_size(records)
        sequence = lane.next_sequence
        transactional = self._cell.now.transactional_id is not None
        number = receipt.expect()
        now_ms = self._waiting.monotonic_ms()
        batch = Batch(
            records,
            lane.identity,
            sequence,
            transactional,
            stamp,
            is_current,
            layout,
            size,
            receipt,
            number,
            most_bytes,
            now_ms,
        )
        with self._buffer:
            self._buffered_bytes += size
        lane.next_sequence = increment_sequence(sequence, count)
        lane.send(batch)

    # --- what lanes ask and tell ----------------------------------------------------------------------------

    def admits(self, partition: TransactionPartition) -> bool:
        """Whether batches may be appended there."""
        return self._cell.now.admits(partition)

    def refusal(self, partition: TransactionPartition) -> BaseException | None:
        """What batches that are not appended yet fail with."""
        return self._cell.now.refusal(partition)

    def fail(self, error: BaseException) -> None:
        """Something was not written: nothing that is queued behind it may be, in any lane."""
        self._time_out.explain(error, self._cell.now.transaction)
        if self._cell.move(failed, error):
            self.start()

    def settled(self, batch: Batch) -> None:
        """A batch is in the log, or has failed: its room is free."""
        with self._buffer:
            self._buffered_bytes -= batch.size
        self._waiters.wake()

    # --- lanes ----------------------------------------------------------------------------------------------

    def lanes_for(self, targets: Sequence[TransactionPartition]) -> list[Lane]:
        """The lanes to these partitions; new ones load their views before the coordinator hears of the partition.

        Every transaction has its own views of the logs, and sequences from 0 on.
        """
        with self._queueing:
            machine = self._cell.now
            if self._transaction != machine.transaction:
                self._lanes, self._buffered_bytes = {}, 0
                self._transaction = machine.transaction
            missing = [target for target in targets if target not in self._lanes]
            unloaded = [log for log in map(self._logs.of, missing) if not log.is_loaded]
            if len(unloaded) > 1:
                self._logs.refresh_all(unloaded)
            for target in missing:
                self._lanes[target] = Lane(
                    target,
                    machine.identity,
                    self._logs.of(target),
                    self._logs.tools,
                    self._pool,
                    self._first_write_check,
                    self,
                    self._waiting,
                    self._settings,
                )
            return [self._lanes[target] for target in targets]

    def ask_whether_topics_are_current(self) -> dict[tuple[str, int], Future[bool]]:
        """Ask for each topic that the transaction has records for, by name and incarnation, while writes go on.

        Empty where the store does not answer: then it does not answer the decision either, and the commit says so.
        """
        lanes = list(self._lanes.values()) if self._transaction == self._cell.now.transaction else []
        topics = {(lane.partition.topic, lane.partition.incarnation) for lane in lanes}
        try:
            return {
                topic: self._logs.ask_whether_current(*topic)
                for topic in sorted(topics)
                if topic[0] != CONSUMER_OFFSETS_TOPIC
            }
        except NO_ANSWER:
            return {}
        except TxnEngineError as error:
            self.fail(error)
            return {}

    def fail_where_deleted(self, current: Mapping[tuple[str, int], Future[bool]]) -> None:
        """Fail the transaction where one of these topics was deleted, or cannot be read."""
        for topic, is_current in current.items():
            try:
                if not is_current.result():
                    self.fail(topic_deleted(*topic, self._cell.now.identity))
            except NO_ANSWER:
                continue
            except TxnEngineError as error:
                self.fail(error)

    def start(self, partitions: Sequence[TransactionPartition] | None = None) -> None:
        """Start the lanes to these partitions, or every lane: some may go on, or have to fail what they hold."""
        if partitions is None:
            lanes = list(self._lanes.values())
        else:
            lanes = [lane for partition in partitions if (lane := self._lanes.get(partition)) is not None]
        for lane in lanes:
            with suppress(IllegalStateError):  # the engine is closed: the lane has failed what it held
                lane.start()

    def wait(self) -> None:
        """Until all that was sent is in the log or has failed.

        Whatever a caller was interrupted at, this ends: it starts every lane anew.
        """
        newest = [lane.newest() for lane in list(self._lanes.values())]
        self._hurry()
        self.start()
        for batch in newest:
            if batch is not None:
                self._waiters.wait_for(batch.has_settled)


def most_bytes(topic: Topic, settings: ProducerSettings) -> int:
    """The most bytes of a data file that a producer with these settings writes for the topic."""
    return min(topic.max_message_bytes, settings.max_request_size)


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
