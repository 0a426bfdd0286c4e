"""A producer's records on their way: split by key, buffered, uploaded and appended, partition by partition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait

import pyarrow as pa

from txn_engine.log.data_files import EncodedFile
from txn_engine.log.logs import Logs
from txn_engine.log.topics import Topic
from txn_engine.producer.lanes import Batch, Lane
from txn_engine.producer.partitioner import split_by_key
from txn_engine.protocol.appends import FirstWriteCheck
from txn_engine.protocol.sequences import increment_sequence
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.types import ProducerIdAndEpoch, RecordMetadata

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
        self._outstanding: set[Future[RecordMetadata]] = set()
        self._buffer = threading.Condition()
        self._buffered_bytes = 0
        self._turn = 0

    def start_epoch(self, identity: ProducerIdAndEpoch) -> None:
        """Forget all lanes: every epoch has its own views of the logs, and sequences from 0 on."""
        self.identity = identity
        self.failure = None
        self._lanes.clear()
        self._outstanding.clear()

    # --- records in -----------------------------------------------------------------------------------------

    def send(
        self, topic: Topic, records: pa.Table, partition: int | None, stamp: int
    ) -> list[Future[RecordMetadata]]:
        """Send records that fit the topic, to the partition named or by their key."""
        if partition is None:
            self._turn += 1
            parts = list(split_by_key(records, topic.key, topic.partitions, self._turn % topic.partitions))
        else:
            parts = [(partition, records)]
        return self.send_parts(
            [(TransactionPartition(topic.name, topic.incarnation, number), part) for number, part in parts],
            stamp,
        )

    def send_parts(
        self, parts: Sequence[tuple[TransactionPartition, pa.Table | EncodedFile]], stamp: int = -1
    ) -> list[Future[RecordMetadata]]:
        """Send to each partition what is for it: records, or a data file that stands on the store already."""
        targets = list(dict.fromkeys(target for target, _ in parts))
        lanes = dict(zip(targets, self.lanes_for(targets), strict=True))
        topics = {(target.topic, target.incarnation) for target in targets}
        current = {topic: self._logs.ask_whether_current(*topic) for topic in sorted(topics)}
        futures: list[Future[RecordMetadata]] = []
        try:
            for target, part in parts:
                if not self._has_room(part):  # room comes from lanes that wait for these very partitions
                    self._join_all(targets)
                is_current = current[target.topic, target.incarnation]
                futures.append(self._queue(lanes[target], part, stamp, is_current))
            self._join_all(targets)
        except BaseException as error:
            self.fail(error)
            self.refuse(targets, error)
            raise
        return futures

    def _join_all(self, targets: Sequence[TransactionPartition]) -> None:
        if self._join is not None:
            self._join(targets)

    def _has_room(self, records: pa.Table | EncodedFile) -> bool:
        with self._buffer:
            return self._buffered_bytes + _buffer_size(records) <= BUFFER_BYTES

    def _queue(
        self, lane: Lane, records: pa.Table | EncodedFile, stamp: int, is_current: Future[bool]
    ) -> Future[RecordMetadata]:
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
        transactional = self._join is not None
        lane.send(Batch(records, self.identity, sequence, transactional, stamp, is_current, done))
        return done

    def _settled(self, done: Future[RecordMetadata], size: int) -> None:
        self._outstanding.discard(done)
        with self._buffer:
            self._buffered_bytes -= size
            self._buffer.notify_all()

    # --- lanes ----------------------------------------------------------------------------------------------

    def lanes_for(self, targets: Sequence[TransactionPartition]) -> list[Lane]:
        """The lanes to these partitions; new ones load their views before the coordinator hears of the partition."""
        missing = [target for target in targets if target not in self._lanes]
        unloaded = [log for log in map(self._logs.of, missing) if not log.is_loaded]
        if len(unloaded) > 1:
            self._logs.refresh_all(unloaded)
        for target in missing:
            lane = self._lanes[target] = self._new_lane(target)
            if self._join is None:
                lane.added.set_result(None)
        return [self._lanes[target] for target in targets]

    def _new_lane(self, target: TransactionPartition) -> Lane:
        return Lane(
            target,
            self.identity,
            self._logs.of(target),
            self._logs.tools,
            self._pool,
            self._first_write_check,
            self.fail,
        )

    def admit(self, targets: Sequence[TransactionPartition]) -> None:
        """These partitions are part of the transaction now: their lanes may append."""
        for target in targets:
            if target in self._lanes:
                self._lanes[target].added.set_result(None)

    def refuse(self, targets: Sequence[TransactionPartition], error: BaseException) -> None:
        """These partitions are not, and will not be: what waits for it fails."""
        for target in targets:
            if target in self._lanes and not self._lanes[target].added.done():
                self._lanes[target].added.set_exception(error)

    # --- the end --------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Something was not written: nothing that is queued behind it may be, in any lane."""
        self.failure = self.failure or error
        for lane in list(self._lanes.values()):
            lane.cancel(self.failure)

    def abandon(self, reason: BaseException) -> None:
        """Drop what is not on its way yet."""
        for lane in self._lanes.values():
            lane.cancel(reason)
        self.refuse(list(self._lanes), reason)

    def wait(self) -> None:
        """Until all that was sent is in the log or has failed."""
        wait(set(self._outstanding))


def _buffer_size(records: pa.Table | EncodedFile) -> int:
    return 1 if isinstance(records, EncodedFile) else max(min(records.nbytes, BUFFER_BYTES), 1)


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


def gathered(futures: Sequence[Future[RecordMetadata]]) -> Future[list[RecordMetadata]]:
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
