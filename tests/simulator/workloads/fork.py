"""A process forks with open producers: the child may use none of them, and gives out none of its parent's ids."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from copy import copy

from tests.simulator.applications import Application, create_topics, records
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import IllegalStateError, TxnEngineError
from txn_engine.log.own_process import OwnLock
from txn_engine.producer import Producer

TOPICS = ("forked",)
_PARENTS = 2


def set_up(world: World) -> None:
    """Two parents with open transactions, each of which forks some children."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(_PARENTS):
        world.client(f"parent{number}", _parent(number, max(world.knobs.transactions // _PARENTS, 1)))
    add_background(world, TOPICS, sweepers=1)


def _parent(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"parent-{number}", timeout_ms=30_000)
        _write_alone(process, engine, f"{process.name}-own")
        for index in range(transactions):
            name = f"{process.name}-{index}"

            def write(producer: Producer, writing: Writing, name: str = name) -> None:
                draw = process.world.chance.random("forked", name)
                app.write(producer, writing, TOPICS[0], draw.randrange(process.world.knobs.partitions), 1)
                if draw.random() < 0.5:
                    _fork(process, engine, producer, f"child-{name}")
                app.write(producer, writing, TOPICS[0], draw.randrange(process.world.knobs.partitions), 2)

            app.transact(name, write)
            _write_alone(process, engine, f"{name}-own")
            app.rest(high=5 * SECOND)

    return body


def _fork(process: Process, engine: Engine, producer: Producer, name: str) -> None:
    """Fork a child with a copy of the producer ids in its parent's memory, and with its parent's producer."""
    world = process.world
    child = world.new_process(name)
    inherited = copy(engine.coordinator._producer_ids)
    inherited._free = deque(inherited._free)
    inherited._lock = OwnLock()  # made here, in the parent

    def live() -> None:
        sleep(world.chance.spread(1_000, SECOND, "forked", name))
        for call in (
            producer.flush,
            producer.commit_transaction,
            lambda: producer.produce(TOPICS[0], records([])),
        ):
            _expect_refusal(world, "a carried producer", call)
        _expect_refusal(world, "a carried block of producer ids", inherited.take)
        own = child.connect()
        for index in range(2):
            _write_alone(child, own, f"{child.name}-{index}")

    child.start("main", live)


def _expect_refusal(world: World, what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except IllegalStateError:
        return
    except TxnEngineError as error:
        world.history.complain(f"fork: {what} answered {error.code} in the child")
    else:
        world.history.complain(f"fork: {what} did what the child asked")


def _write_alone(process: Process, engine: Engine, name: str) -> None:
    """Append a batch with a fresh producer id."""
    world = process.world
    writing = world.history.begin(name, process.name, atomic=False)
    ids: list[RecordId] = [(name, 0)]
    number = world.chance.between(0, world.knobs.partitions - 1, "alone", name)
    writing.records[TOPICS[0], number] = ids
    try:
        identity = engine.coordinator.init_producer_id(None)
        given = world.notes.setdefault("ids given out", Counter())
        given[identity.producer_id] += 1
        if given[identity.producer_id] > 1:
            world.history.complain(f"fork: producer id {identity.producer_id} was given out twice")
        engine.partition(TOPICS[0], number).append(
            records(ids), producer_id=identity.producer_id, producer_epoch=0, base_sequence=0
        )
    except TxnEngineError as error:
        world.history.end(writing, "failed", error)
    else:
        world.history.end(writing, "ok")
