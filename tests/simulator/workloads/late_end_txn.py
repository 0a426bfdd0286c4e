"""A delayed EndTxn must not decide a later transaction (KAFKA-17754): requests arrive twice, and long after
their time.

The workload sends the coordinator's requests and writes to the partitions itself, like a client of Kafka's
protocol.
"""

from __future__ import annotations

from contextlib import suppress

from tests.simulator.applications import create_topics, records
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import MINUTE, MS, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import ConcurrentTransactionsError, TxnEngineError
from txn_engine.types import ProducerIdAndEpoch, TopicPartition

TOPICS = ("late",)
_CLIENTS = 2
_TRIES = 6


def set_up(world: World) -> None:
    """Two clients whose EndTxn requests are also delivered by a slow network, each in a process of its own."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(_CLIENTS):
        world.client(
            f"client{number}", _client(f"late-{number}", max(world.knobs.transactions // _CLIENTS, 1))
        )
    add_background(world, TOPICS)


def _client(transactional_id: str, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        identity: ProducerIdAndEpoch | None = None
        for index in range(transactions):
            if identity is None:
                identity = _initialise(process, engine, transactional_id)
            if identity is not None:
                identity = _transaction(
                    process, engine, transactional_id, identity, f"{process.name}-{index}"
                )

    return body


def _initialise(process: Process, engine: Engine, transactional_id: str) -> ProducerIdAndEpoch | None:
    for number in range(_TRIES):
        try:
            return engine.coordinator.init_producer_id(transactional_id, transaction_timeout_ms=20_000)
        except ConcurrentTransactionsError:
            _finish(engine, transactional_id)
        except TxnEngineError:
            sleep(process.world.chance.spread(10 * MS, SECOND, "init", process.name, number))
    return None


def _finish(engine: Engine, transactional_id: str) -> None:
    """Write the markers for which the id waits, as far as that works now."""
    with suppress(TxnEngineError):
        engine.coordinator.finish(transactional_id)


def _transaction(
    process: Process, engine: Engine, transactional_id: str, identity: ProducerIdAndEpoch, name: str
) -> ProducerIdAndEpoch | None:
    """Run one transaction. Returns the id and epoch for the next, or None if a new start is needed."""
    world = process.world
    draw = world.chance.random("late", name)
    writing = world.history.begin(name, process.name)
    try:
        targets = draw.sample(range(world.knobs.partitions), draw.randint(1, world.knobs.partitions))
        engine.coordinator.add_partitions(
            transactional_id, *identity, [TopicPartition(TOPICS[0], number) for number in targets]
        )
        for number in targets:
            ids: list[RecordId] = [(name, number)]
            writing.records[TOPICS[0], number] = ids
            engine.partition(TOPICS[0], number).append(
                records(ids),
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=0,
                is_transactional=True,
            )
    except TxnEngineError as error:
        world.history.end(writing, "failed", error)
        return None
    committed = draw.random() < 0.6
    if committed:
        world.history.ask(writing)
    for number in range(draw.randint(0, 2)):
        delay = world.chance.spread(10 * MS, 2 * MINUTE, "delivered", name, number)
        _deliver_late(world, f"network-{name}-{number}", transactional_id, identity, committed, delay)
    return _end(process, engine, transactional_id, identity, writing, committed)


def _deliver_late(
    world: World, name: str, transactional_id: str, identity: ProducerIdAndEpoch, committed: bool, delay: int
) -> None:
    """Deliver the same request once more from another process, at any later time."""
    process = world.new_process(name)

    def deliver() -> None:
        try:
            process.connect().coordinator.end_transaction(transactional_id, *identity, committed=committed)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "late EndTxn", transactional_id, error.code, "")

    process.start("main", deliver, delay=delay)


def _end(
    process: Process,
    engine: Engine,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    writing: Writing,
    committed: bool,
) -> ProducerIdAndEpoch | None:
    unclear = False
    history = process.world.history
    problem: TxnEngineError | None = None
    for number in range(_TRIES):
        try:
            found = engine.coordinator.end_transaction(transactional_id, *identity, committed=committed)
        except ConcurrentTransactionsError:
            _finish(engine, transactional_id)
        except TxnEngineError as error:
            problem = error
            if error.fatal or error.abortable:
                break
            unclear = True
            sleep(process.world.chance.spread(10 * MS, SECOND, "end", writing.name, number))
        else:
            history.end(writing, "ok" if committed else "failed", "aborted" if not committed else "")
            return found
    if not committed:
        history.end(writing, "failed", problem or "aborted")
    elif problem is not None and not unclear and problem.fatal:
        history.end(writing, "committing", problem)  # a late delivery may have committed it before the fence
    return None
