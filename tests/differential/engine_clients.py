"""The engine's producers and consumers, as one program uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from storage import MemoryStore
from tests.differential.clients import FENCED, Ledger, Polled
from tests.differential.errors import KINDS_BY_STATE, CallError, Kind
from tests.differential.sides import Isolation, Place
from tests.differential.steps import SkippedError
from txn_engine import OffsetAndMetadata, TopicPartition
from txn_engine.consumer import Consumer
from txn_engine.engine import Engine
from txn_engine.errors import TransactionAbortableError, TxnEngineError, UnstableOffsetCommitError
from txn_engine.log.topics import KAFKA_SCHEMA
from txn_engine.producer import Producer
from txn_engine.testing import ManualClock
from txn_engine.types import ConsumerGroupMetadata

P = ParamSpec("P")
T = TypeVar("T")

POLL_RECORDS = 1_000


def _named(call: Callable[Concatenate[EngineClients, P], T]) -> Callable[Concatenate[EngineClients, P], T]:
    """Raise each error of the engine as a `CallError` named by its meaning. A failed transaction is named by
    its cause."""

    @wraps(call)
    def wrapped(self: EngineClients, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(self, *args, **kwargs)
        except TxnEngineError as error:
            raise CallError(
                _meaning(error), str(error), "retriable" if error.retriable else "refused"
            ) from error

    return wrapped


def _of_a_producer(
    call: Callable[Concatenate[EngineClients, str, P], T],
) -> Callable[Concatenate[EngineClients, str, P], T]:
    """Raise errors as `_named` does, with the state in which the error leaves the actor's producer."""

    @wraps(call)
    def wrapped(self: EngineClients, actor: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(self, actor, *args, **kwargs)
        except TxnEngineError as error:
            raise CallError(_meaning(error), str(error), self.kind(actor)) from error

    return wrapped


def _meaning(error: TxnEngineError) -> str:
    cause: BaseException = error
    while isinstance(cause, TransactionAbortableError) and cause.__cause__ is not None:
        cause = cause.__cause__
    code = cause.code if isinstance(cause, TxnEngineError) else type(cause).__name__
    return "FENCED" if code in FENCED else "ABORTABLE" if code == "TRANSACTION_ABORTABLE" else code


class EngineClients:
    """A store in memory and one engine for each client, as processes of their own would have."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._clock = ManualClock()
        self._store = MemoryStore(clock=self._clock)
        self._engines: list[Engine] = []
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}
        self._groups: dict[str, str] = {}
        self.ledger = Ledger()
        self._reader = self._engine()
        for topic in sorted({place.topic for place in places}):
            count = 1 + max(place.partition for place in places if place.topic == topic)
            self._reader.admin.create_topic(topic, partitions=count)

    def _engine(self) -> Engine:
        self._engines.append(Engine(self._store, clock=self._clock))
        return self._engines[-1]

    def close(self) -> None:
        """Close the engines. Producers are left as they are."""
        for engine in self._engines:
            engine.close()

    def _producer(self, actor: str) -> Producer:
        if actor not in self._producers:
            raise SkippedError
        return self._producers[actor]

    # --- producers ------------------------------------------------------------------------------------------

    @_of_a_producer
    def open_producer(self, actor: str, transactional_id: str | None) -> None:
        self._producers[actor] = self._engine().producer(transactional_id=transactional_id)

    def kind(self, actor: str) -> Kind:
        """The state that the error left, according to the producer itself."""
        return KINDS_BY_STATE.get(self._producers[actor].state.value, "refused")

    @_of_a_producer
    def init_transactions(self, actor: str) -> None:
        self._producer(actor).init_transactions()

    @_of_a_producer
    def begin_transaction(self, actor: str) -> None:
        self._producer(actor).begin_transaction()

    @_of_a_producer
    def commit_transaction(self, actor: str) -> None:
        self._producer(actor).commit_transaction()

    @_of_a_producer
    def abort_transaction(self, actor: str) -> None:
        self._producer(actor).abort_transaction()

    @_of_a_producer
    def send(self, actor: str, place: Place, values: Sequence[bytes], stamp: int | None = None) -> list[int]:
        rows = [{"key": None, "value": value, "headers": None} for value in values]
        table = pa.Table.from_pylist(rows, schema=KAFKA_SCHEMA)
        sent = self._producer(actor).produce(
            place.topic, table, partition=place.partition, timestamp_ms=stamp
        )
        (written,) = sent.result()
        return list(range(written.base_offset, written.last_offset + 1))

    @_of_a_producer
    def send_offset(self, actor: str, group: str, place: Place, offset: int) -> None:
        self._producer(actor).send_offsets_to_transaction(
            {TopicPartition(*place): OffsetAndMetadata(offset)}, ConsumerGroupMetadata(self._group(group), "")
        )

    # --- consumers ------------------------------------------------------------------------------------------

    def _group(self, own: str) -> str:
        return self._groups.get(own, own)

    def rename_group(self, group: str) -> None:
        self._groups[group] = f"{self._group(group)}-"

    @_named
    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        with self._reader.consumer(group_id=self._group(group)) as consumer:
            consumer.commit({TopicPartition(*place): OffsetAndMetadata(offset)})

    @_named
    def committed(self, group: str, place: Place) -> int:
        with self._reader.consumer(
            group_id=self._group(group), isolation_level="read_uncommitted"
        ) as consumer:
            found = consumer.committed([TopicPartition(*place)])
        return found[TopicPartition(*place)].offset if found else -1

    def is_unstable(self, group: str, place: Place) -> bool:
        try:
            with self._reader.consumer(group_id=self._group(group)) as consumer:
                consumer.committed([TopicPartition(*place)])
        except UnstableOffsetCommitError:
            return True
        return False

    @_named
    def consume(self, place: Place, isolation: Isolation) -> tuple[list[tuple[int, bytes, int]], int, int]:
        target = TopicPartition(*place)
        found: list[tuple[int, bytes, int]] = []
        with self._reader.consumer(isolation_level=isolation) as consumer:
            consumer.assign([target])
            consumer.seek(target, 0)
            end = consumer.end_offsets([target])[target]
            while (table := consumer.poll(POLL_RECORDS)) is not None:
                stamps = table.column("_timestamp").cast(pa.int64()).to_numpy()
                found += [
                    (row["_offset"], row["value"], int(stamp))
                    for row, stamp in zip(table.to_pylist(), stamps, strict=True)
                ]
            return found, consumer.position(target), end

    @_named
    def offset_for_time(self, place: Place, isolation: Isolation, stamp: int) -> int | None:
        with self._reader.consumer(isolation_level=isolation) as consumer:
            return consumer.offsets_for_times({TopicPartition(*place): stamp})[TopicPartition(*place)]

    # --- tasks ----------------------------------------------------------------------------------------------

    @_named
    def open_reader(self, actor: str, group: str, places: Sequence[Place], *, subscribes: bool) -> None:
        consumer = self._engine().consumer(group_id=self._group(group))
        self._consumers[actor] = consumer
        if subscribes:
            consumer.subscribe(sorted({place.topic for place in places}))
        else:
            consumer.assign([TopicPartition(*place) for place in places])

    @_named
    def poll(self, actor: str, limit: int | None) -> Polled:
        consumer = self._consumers[actor]
        (topic,) = {at.topic for at in consumer.assignment()}
        found: Polled = []
        while (table := consumer.poll(limit or POLL_RECORDS)) is not None:
            found += [
                (Place(topic, row["_partition"]), row["_offset"], row["value"]) for row in table.to_pylist()
            ]
            if limit is not None:
                break
        return found

    @_of_a_producer
    def send_positions(self, actor: str, positions: Mapping[Place, int]) -> None:
        self._producer(actor).send_offsets_to_transaction(
            {TopicPartition(*place): offset for place, offset in positions.items()},
            self._consumers[actor].group_metadata(),
        )

    @_named
    def seek_to_committed(self, actor: str) -> None:
        self._consumers[actor].seek_to_committed()
