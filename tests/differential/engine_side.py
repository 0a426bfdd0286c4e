"""The engine behind the adapter for one program, with a store in memory, a manual clock and two engines that
take turns.

The two engines are like two processes: one learns from the store what the other has written. The program
calls what a user calls: producers, consumers, the coordinator, the admin tool and maintenance. A program's
producer may have any identity and sequence, so `_Writer` gives them to the engine's producer, which then
writes by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import ParamSpec, Self, TypeVar

import pyarrow as pa

from storage import MemoryStore
from tests.differential.errors import KINDS_BY_STATE, CallError, Kind
from tests.differential.records import RecordBatch
from tests.differential.sides import (
    Batch,
    Ends,
    Hanging,
    Identity,
    Isolation,
    KnownProducer,
    KnownTransaction,
    Place,
)
from txn_engine import OffsetAndMetadata, TopicPartition
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError, UnknownTopicOrPartitionError
from txn_engine.log.topics import KAFKA_SCHEMA
from txn_engine.producer import Producer
from txn_engine.producer.states import ProducerState, is_fatal_to_a_write
from txn_engine.protocol.batches import Control
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.testing import ManualClock, write_transaction_state
from txn_engine.types import ConsumerGroupMetadata, ProducerIdAndEpoch

P = ParamSpec("P")
T = TypeVar("T")

RETENTION_MS = 1_000
_POLL_RECORDS = 1_000


def kind_of(error: TxnEngineError) -> Kind:
    """The kind of an error according to its own flags."""
    if error.fatal:
        return "fatal"
    if error.abortable:
        return "abortable"
    return "retriable" if error.retriable else "refused"


def _kind_of_a_read(error: TxnEngineError) -> Kind:
    return "retriable" if error.retriable else "refused"


def _kind_of_a_write(error: TxnEngineError) -> Kind:
    """The kind that the shipping producer gives to an error of a write."""
    return "fatal" if is_fatal_to_a_write(error) else "abortable"


def _kind_of_a_marker(_: TxnEngineError) -> Kind:
    return "refused"


def _by_code(kind: Callable[[TxnEngineError], Kind]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Raise the engine's errors as the adapter's, with their code and the state in which they leave the
    caller."""

    def decorate(call: Callable[P, T]) -> Callable[P, T]:
        @wraps(call)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return call(*args, **kwargs)
            except TxnEngineError as error:
                raise CallError(error.code, str(error), kind(error)) from error

        return wrapped

    return decorate


class _Writer:
    """The shipping producer, put under an identity as if it had got this far.

    It keeps what it knows of its own transaction. After an error another writer takes its place, as after a
    crash.
    """

    def __init__(self, engine: Engine, transactional_id: str | None, who: Identity) -> None:
        self._producer: Producer = engine.producer(transactional_id=transactional_id)
        self._engine = engine
        state = ProducerState.READY if transactional_id is None else ProducerState.IN_TRANSACTION
        cell = self._producer._cell
        cell.now = replace(cell.now, state=state, identity=ProducerIdAndEpoch(*who))

    def produce(self, at: TopicPartition, batch: Batch) -> int:
        """Write the batch with this sequence and return its base offset."""
        with suppress(UnknownTopicOrPartitionError):  # the producer says so itself
            topic = self._engine.admin.describe_topic(at.topic)
            target = TransactionPartition(at.topic, topic.incarnation, at.partition)
            (lane,) = self._producer._sender.lanes_for([target])
            lane.next_sequence = batch.base_sequence
            lane._of_a_first_try = lambda verdict: (
                verdict
            )  # a client of Kafka sends a batch again; ours never does
        future = self._producer.produce(at.topic, _records(batch.values), partition=at.partition)
        (written,) = future.result()
        return written.base_offset

    def send_offset(self, group: str, at: TopicPartition, offset: int) -> None:
        self._producer.send_offsets_to_transaction(
            {at: OffsetAndMetadata(offset)}, ConsumerGroupMetadata(group, "")
        )

    def kind(self, error: TxnEngineError) -> Kind:
        """The kind of the error according to the producer's own state.

        An idempotent producer's kind follows from the code, because any lost batch finishes ours, and Kafka's
        begins a new epoch.
        """
        if self._producer.transactional_id is None:
            return _kind_of_a_write(error)
        return KINDS_BY_STATE.get(self._producer.state.value, "refused")


class EngineSide:
    """The engine as one program sees it."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.clock = ManualClock()
        store = MemoryStore(clock=self.clock)
        self._engines = [Engine(store, clock=self.clock), Engine(store, clock=self.clock)]
        self._turn = 0
        self._writers: dict[tuple[str | None, Identity], _Writer] = {}
        self._at: dict[Place, TopicPartition] = {place: TopicPartition(*place) for place in places}
        self._place_of = {at: place for place, at in self._at.items()}
        self._names: dict[str, str] = {}
        self._left: set[str] = set()
        self._moves = 0
        partitions: dict[str, int] = {}
        for place in self._at:
            partitions[place.topic] = max(partitions.get(place.topic, 0), place.partition + 1)
        for topic, count in partitions.items():
            self.engine.admin.create_topic(topic, partitions=count, retention_ms=RETENTION_MS)

    @property
    def engine(self) -> Engine:
        """The engine whose turn it is."""
        self._turn += 1
        return self._engines[self._turn % len(self._engines)]

    def close(self) -> None:
        """Close the engines, which ends their threads."""
        for engine in self._engines:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write_transaction_state(
        self, transactional_id: str, state: str, identity: Identity, place: Place
    ) -> None:
        """Write a row into the coordinator's log directly. An Ongoing row holds `place`."""
        write_transaction_state(
            self.engine,
            transactional_id,
            state=state,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            transaction_timeout_ms=900_000,
            partitions=[TopicPartition(*place)] if state == "Ongoing" else [],
        )

    # --- beginning anew -------------------------------------------------------------------------------------

    def move(self, place: Place) -> None:
        self._moves += 1
        topic = f"moved-{self._moves}"
        self.engine.admin.create_topic(topic, partitions=1, retention_ms=RETENTION_MS)
        self._at[place] = TopicPartition(topic, 0)
        self._place_of[self._at[place]] = place
        self._writers.clear()

    def rename(self, name: str) -> None:
        self._left.add(self._name(name))
        self._names[name] = f"{name}-{len(self._left)}"

    def _name(self, own: str) -> str:
        return self._names.get(own, own)

    # --- a producer and its coordinator ---------------------------------------------------------------------

    @_by_code(kind_of)
    def init_producer_id(self, transactional_id: str | None, timeout_ms: int, expected: Identity) -> Identity:
        given = self.engine.coordinator.init_producer_id(
            self._name(transactional_id) if transactional_id else transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
        )
        return Identity(*given)

    @_by_code(kind_of)
    def add_partitions(self, transactional_id: str, who: Identity, places: Sequence[Place]) -> None:
        self.engine.coordinator.add_partitions(
            self._name(transactional_id),
            *who,
            [self._at.get(place, TopicPartition(*place)) for place in places],
        )

    @_by_code(kind_of)
    def end_transaction(
        self, transactional_id: str, who: Identity, *, committed: bool, settle: bool
    ) -> Identity:
        ended = self.engine.coordinator.end_transaction(
            self._name(transactional_id),
            *who,
            committed=committed,
            markers="inline" if settle else "deferred",
        )
        return Identity(*ended)

    def produce(self, transactional_id: str | None, who: Identity, place: Place, batch: Batch) -> int:
        return self._write(transactional_id, who, lambda writer: writer.produce(self._at[place], batch))

    def send_offset(
        self, transactional_id: str, who: Identity, group: str, place: Place, offset: int
    ) -> None:
        group_id = self._name(group)
        self._write(
            transactional_id, who, lambda writer: writer.send_offset(group_id, self._at[place], offset)
        )

    def _write(self, transactional_id: str | None, who: Identity, ask: Callable[[_Writer], T]) -> T:
        """Write with the producer that has this identity. The producer stays in use as long as nothing
        fails."""
        key = None if transactional_id is None else self._name(transactional_id), who
        writer = self._writers.get(key) or _Writer(self.engine, *key)
        self._writers[key] = writer
        try:
            return ask(writer)
        except TxnEngineError as error:
            del self._writers[key]
            raise CallError(error.code, str(error), writer.kind(error)) from error

    @_by_code(kind_of)
    def settle(self, transactional_id: str) -> None:
        self.engine.coordinator.write_pending_markers()

    @_by_code(kind_of)
    def wait_for_time_outs(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        self.clock.advance(timeout_ms + 1)
        self.engine.coordinator.abort_timed_out_transactions()

    @_by_code(kind_of)
    def expire_ids(self, transactional_ids: Sequence[str]) -> None:
        engine = self.engine
        self.clock.advance(engine.limits.transactional_id_expiration_ms)
        engine.coordinator.expire_transactional_ids()

    # --- topics ---------------------------------------------------------------------------------------------

    @_by_code(_kind_of_a_read)
    def delete_topic(self, topic: str) -> None:
        self.engine.admin.delete_topic(topic)

    @_by_code(_kind_of_a_read)
    def make_topic(self, topic: str, partitions: int) -> None:
        self.engine.admin.create_topic(topic, partitions=partitions, retention_ms=RETENTION_MS)

    def has(self, place: Place) -> bool:
        topic, partition = self._at.get(place, place)
        try:
            return partition < self.engine.admin.describe_topic(topic).partitions
        except UnknownTopicOrPartitionError:
            return False

    # --- a partition alone ----------------------------------------------------------------------------------

    @_by_code(_kind_of_a_write)
    def append(self, who: Identity, place: Place, batch: Batch, *, is_transactional: bool) -> int:
        written = self.engine.partition(*self._at[place]).append(
            _records(batch.values),
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=batch.base_sequence,
            is_transactional=is_transactional,
        )
        return written.base_offset

    @_by_code(_kind_of_a_marker)
    def append_marker(self, who: Identity, place: Place, *, committed: bool, coordinator_epoch: int) -> bool:
        written = self.engine.partition(*self._at[place]).append_marker(
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
        )
        return not written.is_duplicate

    # --- groups ---------------------------------------------------------------------------------------------

    @_by_code(_kind_of_a_read)
    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        with self.engine.consumer(group_id=self._name(group)) as consumer:
            consumer.commit({self._at[place]: OffsetAndMetadata(offset)})

    @_by_code(_kind_of_a_read)
    def fetch_offset(self, group: str, place: Place, *, require_stable: bool) -> int:
        isolation: Isolation = "read_committed" if require_stable else "read_uncommitted"
        at = self._at[place]
        with self.engine.consumer(group_id=self._name(group), isolation_level=isolation) as consumer:
            found = consumer.committed([at])
        return found[at].offset if found else -1

    # --- the operator ---------------------------------------------------------------------------------------

    @_by_code(_kind_of_a_read)
    def remove_records(self, place: Place) -> int:
        engine, at = self.engine, self._at[place]
        self.clock.advance(RETENTION_MS + 1)
        engine.maintenance.retain(*at)
        return engine.partition(*at).log_start_offset

    @_by_code(_kind_of_a_read)
    def find_hanging(self, place: Place) -> list[Hanging]:
        self.clock.advance(1)
        found = self.engine.admin.find_hanging_transactions(*self._at[place], max_transaction_timeout_ms=0)
        return [
            Hanging(each.producer_id, each.producer_epoch, each.coordinator_epoch, each.start_offset)
            for each in found
        ]

    @_by_code(_kind_of_a_marker)
    def abort_hanging(self, place: Place, hanging: Hanging) -> None:
        self.engine.admin.abort_transaction(*self._at[place], hanging.start_offset)

    @_by_code(kind_of)
    def fence(self, transactional_ids: Sequence[str]) -> Mapping[str, Identity]:
        own_of = {self._name(own): own for own in transactional_ids}
        fenced = self.engine.admin.fence_producers(list(own_of))
        return {own_of[name]: Identity(*given) for name, given in fenced.items()}

    # --- looking --------------------------------------------------------------------------------------------

    @_by_code(_kind_of_a_read)
    def read(self, place: Place, isolation: Isolation) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        with self.engine.consumer(isolation_level=isolation) as consumer:
            consumer.assign([self._at[place]])
            while (table := consumer.poll(_POLL_RECORDS)) is not None:
                found += [(row["_offset"], row["value"]) for row in table.to_pylist()]
        return found

    @_by_code(_kind_of_a_read)
    def log(self, place: Place) -> list[RecordBatch]:
        engine, at = self.engine, self._at[place]
        values = dict(self.read(place, "read_uncommitted"))
        incarnation = engine.admin.describe_topic(at.topic).incarnation
        log = engine.logs.get(at.topic, incarnation, at.partition)
        start = log.refresh().log_start_offset
        found = []
        for batch in log.batches():
            if batch.last_offset < start or batch.control not in (
                Control.NONE,
                Control.COMMIT,
                Control.ABORT,
            ):
                continue
            offsets = range(batch.base_offset, batch.last_offset + 1)
            control = batch.control is not Control.NONE
            found.append(
                RecordBatch(
                    batch.base_offset,
                    batch.last_offset,
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    batch.is_transactional,
                    batch.control.value,
                    () if control else tuple(values[offset] for offset in offsets),
                )
            )
        return found

    @_by_code(_kind_of_a_read)
    def ends(self, place: Place) -> Ends:
        at = self._at[place]
        found = self.engine.admin.list_offsets(at.topic, [at.partition])[at]
        return Ends(found.log_start_offset, found.last_stable_offset, found.high_watermark)

    @_by_code(_kind_of_a_read)
    def aborted(self, place: Place, start: int) -> list[tuple[int, int]]:
        partition = self.engine.partition(*self._at[place])
        if start >= partition.last_stable_offset:  # a fetch gets nothing there, and so nothing to tell apart
            return []
        found = partition.aborted_transactions(start, partition.high_watermark)
        return sorted((each.producer_id, each.first_offset) for each in found)

    @_by_code(_kind_of_a_read)
    def producers(self, place: Place) -> list[KnownProducer]:
        return [
            KnownProducer(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.coordinator_epoch,
                each.current_transaction_start_offset,
            )
            for each in self.engine.admin.describe_producers(*self._at[place])
        ]

    @_by_code(_kind_of_a_read)
    def describe(self, transactional_id: str) -> KnownTransaction:
        found = self.engine.admin.describe_transaction(self._name(transactional_id))
        places = {self._place_of.get(part, Place("offsets", 0)) for part in found.partitions}
        return KnownTransaction(
            found.state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            tuple(sorted(places)),
        )

    @_by_code(_kind_of_a_read)
    def list_transactions(
        self, states: Sequence[str], producer_ids: Sequence[int], duration_ms: int, pattern: str
    ) -> list[tuple[str, int, str]]:
        found = self.engine.admin.list_transactions(
            states or None, producer_ids or None, None if duration_ms < 0 else duration_ms, pattern or None
        )
        own_of = {name: own for own, name in self._names.items()}
        return [
            (own_of.get(each.transactional_id, each.transactional_id), each.producer_id, each.state)
            for each in found
            if each.transactional_id not in self._left
        ]


def _records(values: Sequence[bytes]) -> pa.Table:
    rows = [{"key": None, "value": value, "headers": None} for value in values]
    return pa.Table.from_pylist(rows, schema=KAFKA_SCHEMA)
