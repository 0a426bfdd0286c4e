"""Transactions without a coordinator: the operator's tool ends them, and spares the healthy ones."""

from __future__ import annotations

from contextlib import suppress

from tests.simulator.applications import Application, create_topics, records
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import HOUR, MINUTE, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer

TOPICS = ("hung",)
_LIMIT_MS = 60_000


def set_up(world: World) -> None:
    """Clients that break the protocol's order, healthy ones, and operators with the tool."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    world.client("careless", _careless(max(world.knobs.transactions // 4, 1)))
    for number in range(2):
        world.client(f"healthy{number}", _healthy(number, max(world.knobs.transactions // 3, 1)))
    for number in range(2):
        world.client(f"operator{number}", _operator, worker=False)
    world.client("reckless", _reckless, worker=False)
    add_background(world, TOPICS)


def _careless(batches: int) -> Body:
    """A client that writes transactional batches that no coordinator knows, like a faulty client."""

    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(batches):
            name = f"{process.name}-{index}"
            writing = world.history.begin(name, process.name)
            ids: list[RecordId] = [(name, 0)]
            number = world.chance.between(0, world.knobs.partitions - 1, "hung", name)
            writing.records[TOPICS[0], number] = ids
            try:
                identity = engine.coordinator.init_producer_id(None)
                engine.partition(TOPICS[0], number).append(
                    records(ids),
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=0,
                    is_transactional=True,
                )
            except TxnEngineError:
                pass
            world.history.end(writing, "failed", "nobody will ever commit it")
            sleep(world.chance.spread(SECOND, 5 * MINUTE, "next", name))

    return body


def _healthy(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"healthy-{number}", timeout_ms=900_000)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(high=20 * SECOND)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("healthy", writing.name)
    for _ in range(draw.randint(1, 2)):
        app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), 1)
        if draw.random() < 0.5:
            app.rest(high=10 * MINUTE)


def _operator(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        with suppress(TxnEngineError):
            end_hanging(engine, limit_ms=_LIMIT_MS)
        sleep(world.chance.spread(MINUTE, HOUR, "patrol", process.name, rounds))


def _reckless(process: Process, engine: Engine) -> None:
    """An operator that asks for the end of every open transaction. Those with a coordinator have to be
    spared."""
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        number = rounds % world.knobs.partitions
        with suppress(TxnEngineError):
            for known in engine.partition(TOPICS[0], number).producers():
                if known.current_transaction_start_offset >= 0:
                    engine.admin.abort_transaction(TOPICS[0], number, known.current_transaction_start_offset)
        sleep(world.chance.spread(SECOND, 10 * MINUTE, "reckless", process.name, rounds))


def end_hanging(engine: Engine, *, limit_ms: int) -> None:
    """Find the hanging transactions and end each of them, as an operator does."""
    for hanging in engine.admin.find_hanging_transactions(max_transaction_timeout_ms=limit_ms):
        engine.admin.abort_transaction(hanging.topic, hanging.partition, hanging.start_offset)


def heal(world: World) -> None:
    """An operator ends the transactions that still hang before the run is judged."""
    world.run_alone("operator", lambda _, engine: end_hanging(engine, limit_ms=_LIMIT_MS))
