"""The engine's producers and consumers, as one program uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import pyarrow as pa

from storage import MemoryStore
from tests.differential.clients import FENCED
from tests.differential.errors import CallError
from tests.differential.sides import Isolation, Place
from tests.differential.steps import SkippedError
from txn_engine import OffsetAndMetadata, TopicPartition
from txn_engine.engine import Engine
from txn_engine.errors import TransactionAbortableError, TxnEngineError
from txn_engine.log.topics import KAFKA_SCHEMA
from txn_engine.producer import Producer
from txn_engine.testing import ManualClock
from txn_engine.types import ConsumerGroupMetadata

P = ParamSpec("P")
T = TypeVar("T")

POLL_RECORDS = 1_000


def _named(call: Callable[P, T]) -> Callable[P, T]:
    """An error by what it means; where a transaction failed, by what it failed of."""

    @wraps(call)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except TxnEngineError as error:
            cause: BaseException = error
            while isinstance(cause, TransactionAbortableError) and cause.__cause__ is not None:
                cause = cause.__cause__
            code = cause.code if isinstance(cause, TxnEngineError) else type(cause).__name__
            meaning = "FENCED" if code in FENCED else "ABORTABLE" if code == "TRANSACTION_ABORTABLE" else code
            raise CallError(meaning, str(error)) from error

    return wrapped


class EngineClients:
    """A store in memory, and an engine for each client: as processes of their own would have."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._clock = ManualClock()
        self._store = MemoryStore(clock=self._clock)
        self._engines: list[Engine] = []
        self._producers: dict[str, Producer] = {}
        self._reader = self._engine()
        for topic in sorted({place.topic for place in places}):
            count = 1 + max(place.partition for place in places if place.topic == topic)
            self._reader.admin.create_topic(topic, partitions=count)

    def _engine(self) -> Engine:
        self._engines.append(Engine(self._store, clock=self._clock))
        return self._engines[-1]

    def close(self) -> None:
        """Let go of the engines; producers are left as they are."""
        for engine in self._engines:
            engine.close()

    def _producer(self, actor: str) -> Producer:
        if actor not in self._producers:
            raise SkippedError
        return self._producers[actor]

    # --- producers ------------------------------------------------------------------------------------------

    @_named
    def open_producer(self, actor: str, transactional_id: str | None) -> None:
        self._producers[actor] = self._engine().producer(transactional_id=transactional_id)

    @_named
    def init_transactions(self, actor: str) -> None:
        self._producer(actor).init_transactions()

    @_named
    def begin_transaction(self, actor: str) -> None:
        self._producer(actor).begin_transaction()

    @_named
    def commit_transaction(self, actor: str) -> None:
        self._producer(actor).commit_transaction()

    @_named
    def abort_transaction(self, actor: str) -> None:
        self._producer(actor).abort_transaction()

    @_named
    def send(self, actor: str, place: Place, values: Sequence[bytes]) -> list[int]:
        rows = [{"key": None, "value": value, "headers": None} for value in values]
        table = pa.Table.from_pylist(rows, schema=KAFKA_SCHEMA)
        (written,) = self._producer(actor).produce(place.topic, table, partition=place.partition).result()
        return list(range(written.base_offset, written.last_offset + 1))

    @_named
    def send_offset(self, actor: str, group: str, place: Place, offset: int) -> None:
        self._producer(actor).send_offsets_to_transaction(
            {TopicPartition(*place): OffsetAndMetadata(offset)}, ConsumerGroupMetadata(group, "")
        )

    # --- consumers ------------------------------------------------------------------------------------------

    @_named
    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        with self._reader.consumer(group_id=group) as consumer:
            consumer.commit({TopicPartition(*place): OffsetAndMetadata(offset)})

    @_named
    def committed(self, group: str, place: Place) -> int:
        with self._reader.consumer(group_id=group, isolation_level="read_uncommitted") as consumer:
            found = consumer.committed([TopicPartition(*place)])
        return found[TopicPartition(*place)].offset if found else -1

    @_named
    def consume(self, place: Place, isolation: Isolation) -> tuple[list[tuple[int, bytes]], int, int]:
        target = TopicPartition(*place)
        found: list[tuple[int, bytes]] = []
        with self._reader.consumer(isolation_level=isolation) as consumer:
            consumer.assign([target])
            consumer.seek(target, 0)
            end = consumer.end_offsets([target])[target]
            while (table := consumer.poll(POLL_RECORDS)) is not None:
                found += [(row["_offset"], row["value"]) for row in table.to_pylist()]
            return found, consumer.position(target), end
