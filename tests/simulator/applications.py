"""Careful applications: what a user's program does with the engine, following the errors' own advice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import MINUTE, MS, SECOND, sleep
from tests.simulator.process import Process
from txn_engine import Engine
from txn_engine.errors import OutcomeUnknownError, TxnEngineError
from txn_engine.producer import Producer
from txn_engine.producer.states import ProducerState
from txn_engine.types import MarkerMode, RecordMetadata, TopicPartition

SCHEMA = pa.schema([("account", pa.int64()), ("amount", pa.int64()), ("txn", pa.string()), ("n", pa.int64())])
_TRIES = 8
_UNDECIDED = (ProducerState.IN_TRANSACTION, ProducerState.COMMITTING_TRANSACTION)


def records(
    ids: list[RecordId], accounts: list[int] | None = None, amounts: list[int] | None = None
) -> pa.Table:
    """A table of records with these names."""
    count = len(ids)
    return pa.table(
        {
            "account": pa.array(accounts or [0] * count, pa.int64()),
            "amount": pa.array(amounts or [0] * count, pa.int64()),
            "txn": pa.array([name for name, _ in ids], pa.string()),
            "n": pa.array([n for _, n in ids], pa.int64()),
        },
        schema=SCHEMA,
    )


class Application:
    """One process's program around a transactional producer.

    It tries again if the error says so, aborts if it may, makes a new producer if the old one is finished,
    and notes what it knows of each transaction: committed, surely not, or unknown. `deaf_for` is the longest
    time that it waits for a reply that never comes before it asks for the commit again.
    """

    def __init__(
        self,
        process: Process,
        engine: Engine,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        markers: MarkerMode = "inline",
        deaf_for: int = MINUTE,
    ) -> None:
        self.process = process
        self.engine = engine
        self.world = process.world
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._markers: MarkerMode = markers
        self._deaf_for = deaf_for
        self.producer: Producer | None = None
        self.last_error: TxnEngineError | None = None
        self._rests = 0

    def rest(self, low: int = 10 * MS, high: int = 2 * SECOND) -> None:
        """Wait a little, as programs do before they try again."""
        self._rests += 1
        sleep(self.world.chance.spread(low, high, "rest", self.process.name, self._id, self._rests))

    def ready(self) -> Producer | None:
        """A producer that may begin. It is made and initialised if necessary. None if that does not work
        now."""
        if self.producer is not None and self.producer.state is ProducerState.READY:
            return self.producer
        producer = self.engine.producer(
            transactional_id=self._id, transaction_timeout_ms=self._timeout_ms, markers=self._markers
        )
        for _ in range(_TRIES):
            try:
                producer.init_transactions()
            except TxnEngineError as error:
                self.last_error = error
                if error.fatal:
                    return None
                self.rest()
            else:
                self.producer = producer
                return producer
        return None

    def transact(
        self, name: str, body: Callable[[Producer, Writing], None], *, run_id: str | None = None
    ) -> Writing | None:
        """Run `body` in one transaction. None if no producer could be made."""
        producer = self.ready()
        if producer is None:
            return None
        writing = self.world.history.begin(name, self.process.name)
        try:
            producer.begin_transaction(run_id)
            body(producer, writing)
        except TxnEngineError as error:
            self.give_up(producer, writing, error)
            return writing
        self.commit(producer, writing)
        return writing

    def commit(self, producer: Producer, writing: Writing) -> None:
        """Ask for the commit until there is an answer, or for a limited number of times."""
        history = self.world.history
        history.ask(writing)
        is_deaf = self.world.chance.at("deaf", writing.name) < 0.1
        unanswered = is_deaf and self._commit_without_hearing(producer)
        error: TxnEngineError | None = None
        for _ in range(_TRIES):
            try:
                producer.commit_transaction()
            except TxnEngineError as problem:
                error = self.last_error = problem
                if producer.state not in _UNDECIDED:
                    break
                unanswered = producer.state is ProducerState.COMMITTING_TRANSACTION
                patient = self.world.chance.at("patient", writing.name) < 0.3
                self.rest(high=MINUTE if patient else 2 * SECOND)
            else:
                history.end(writing, "ok")
                return
        forgotten = producer.state is ProducerState.FATAL_ERROR and isinstance(error, OutcomeUnknownError)
        closed = producer.state is ProducerState.CLOSED  # by another thread, which says nothing of the commit
        if producer.state is ProducerState.COMMITTING_TRANSACTION or forgotten or (closed and unanswered):
            history.end(writing, "committing", error)
            self.producer = None
        else:
            self.give_up(producer, writing, error)

    def _commit_without_hearing(self, producer: Producer) -> bool:
        """Make a first try whose reply is lost, and leave others time to take over before the second. Whether the
        producer waits for the reply."""
        coordinator, decide_end = self.engine.coordinator, self.engine.coordinator.decide_end

        def decide_unheard(transactional_id: str, *asked: Any, **named: Any) -> Any:
            answer = decide_end(transactional_id, *asked, **named)
            if transactional_id != self._id:  # another thread's producer
                return answer
            raise OutcomeUnknownError("the reply was lost")

        coordinator.decide_end = decide_unheard  # type: ignore[method-assign]
        try:
            with suppress(TxnEngineError):  # the commit itself will tell
                producer.commit_transaction()
        finally:
            del coordinator.decide_end
        is_waiting = producer.state is ProducerState.COMMITTING_TRANSACTION
        self.rest(high=self._deaf_for)
        return is_waiting

    def give_up(self, producer: Producer, writing: Writing, error: TxnEngineError | None) -> None:
        """Abort a transaction that can no longer be committed, as far as that works."""
        self.last_error = error
        self.world.history.end(writing, "failed", error)
        for _ in range(_TRIES):
            if producer.state not in (
                ProducerState.IN_TRANSACTION,
                ProducerState.ABORTABLE_ERROR,
                ProducerState.ABORTING_TRANSACTION,
            ):
                break
            try:
                producer.abort_transaction()
            except TxnEngineError as problem:
                self.last_error = problem
                self.rest()
        if producer.state is not ProducerState.READY:
            self.producer = None

    def write(
        self,
        producer: Producer,
        writing: Writing,
        topic: str,
        partition: int,
        count: int,
        *,
        accounts: list[int] | None = None,
        amounts: list[int] | None = None,
    ) -> Future[list[RecordMetadata]]:
        """Send this many records to a partition, and note them."""
        mine = writing.records.setdefault((topic, partition), [])
        number = sum(len(ids) for ids in writing.records.values())
        ids = [(writing.name, number + index) for index in range(count)]
        mine += ids
        table = records(ids, accounts, amounts)
        future = producer.produce(topic, table, partition=partition)
        future.add_done_callback(lambda done: note_places(writing, ids, done))
        return future


def plain_append(process: Process, engine: Engine, name: str, topic: str, partition: int) -> None:
    """Append a batch without a producer id. Nothing can recognise it if it comes again, so it is never sent
    again."""
    history = process.world.history
    writing = history.begin(name, process.name, atomic=False)
    ids: list[RecordId] = [(name, 0), (name, 1)]
    writing.records[topic, partition] = ids
    try:
        engine.partition(topic, partition).append(records(ids))
    except OutcomeUnknownError as error:
        history.end(writing, "failed", error)
        sleep(SECOND)
    except TxnEngineError as error:
        history.end(writing, "refused", error)
        sleep(SECOND)
    else:
        history.end(writing, "ok")


def fall_asleep(process: Process, soon: int, duration: int) -> None:
    """Stop this process for this long, after `soon`, in the middle of what it does then."""
    process.world.kernel.at(process.world.kernel.now + soon, lambda: process.pause(duration))


def note_places(writing: Writing, ids: list[RecordId], done: Future[list[RecordMetadata]]) -> None:
    """Keep the offsets that the engine acknowledged."""
    if done.cancelled() or done.exception() is not None:
        return
    offsets = [
        offset for place in done.result() for offset in range(place.base_offset, place.last_offset + 1)
    ]
    writing.placed.update(zip(ids, offsets, strict=True))


def create_topics(engine: Engine, partitions: int, *names: str) -> None:
    """Create the topics of a workload, all with the same schema."""
    for name in names:
        engine.admin.create_topic(name, partitions=partitions, schema=SCHEMA, key="account")


def partitions_of(engine: Engine, topic: str) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [TopicPartition(topic, number) for number in range(engine.admin.describe_topic(topic).partitions)]
