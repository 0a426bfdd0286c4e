"""Producers without transactions send batch after batch, some at the same time: none is doubled or out of
order."""

from __future__ import annotations

from concurrent.futures import wait

from tests.simulator.applications import create_topics, note_places, records
from tests.simulator.history import RecordId
from tests.simulator.kernel import MS, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError

TOPICS = ("plain",)
_CLIENTS = 3


def set_up(world: World) -> None:
    """Three producers that write bursts of batches, and that are replaced by a new producer after an
    error."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(_CLIENTS):
        world.client(f"sender{number}", _sender(max(world.knobs.transactions // _CLIENTS, 1)))
    add_background(world, TOPICS, sweepers=1)


def _sender(bursts: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        producer = engine.producer()
        for index in range(bursts):
            name = f"{process.name}-{index}"
            draw = world.chance.random("burst", name)
            try:
                _burst(process, producer, name, draw.randint(1, 9), draw.randrange(world.knobs.partitions))
            except TxnEngineError:
                producer = engine.producer()
            sleep(world.chance.spread(10 * MS, 10 * SECOND, "next", name))

    return body


def _burst(process: Process, producer, name: str, batches: int, partition: int) -> None:  # type: ignore[no-untyped-def]
    history = process.world.history
    sent = []
    try:
        for number in range(batches):
            writing = history.begin(f"{name}-{number}", process.name, atomic=False)
            ids: list[RecordId] = [(writing.name, n) for n in range(1 + number % 3)]
            writing.records[TOPICS[0], partition] = ids
            future = producer.produce(TOPICS[0], records(ids), partition=partition)
            future.add_done_callback(lambda done, writing=writing, ids=ids: note_places(writing, ids, done))
            sent.append((writing, future))
        producer.flush()
    finally:
        wait([future for _, future in sent])
        for writing, future in sent:
            error = future.exception()
            history.end(writing, "ok" if error is None else "failed", error or "")
