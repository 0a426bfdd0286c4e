"""Append-only lists as in Jepsen: transactions that append to several partitions, with plain appends between
them."""

from __future__ import annotations

from contextlib import suppress

from tests.simulator.applications import Application, create_topics, plain_append
from tests.simulator.history import Writing
from tests.simulator.kernel import MINUTE, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, reader
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer

TOPICS = ("lists", "more")
_CLIENTS = 3


def set_up(world: World) -> None:
    """Writers that commit, abort and leave, a writer without a producer id, and readers."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    each = max(world.knobs.transactions // _CLIENTS, 1)
    for number in range(_CLIENTS):
        world.client(f"writer{number}", _writer(number, each))
    world.client("plain", _plain_writer(3 * each))
    world.client("grower", _grower)
    world.client("dashboard", reader(TOPICS), worker=False)
    add_background(world, TOPICS)


def _writer(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        timeout_ms = world.chance.spread(2_000, 60_000, "timeout", number)
        app = Application(process, engine, f"writer-{number}", timeout_ms=timeout_ms)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _append(app, producer, writing))
            app.rest(high=10 * SECOND)

    return body


def _append(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("append", writing.name)
    for _ in range(draw.randint(1, 4)):
        topic = draw.choice(TOPICS)
        partition = draw.randrange(
            app.world.knobs.partitions + (topic == TOPICS[1])
        )  # the last one may not be there
        future = app.write(producer, writing, topic, partition, draw.randint(1, 3))
        if draw.random() < 0.4:
            future.result()
    if draw.random() < 0.15:
        app.rest(high=2 * MINUTE)
    if draw.random() < 0.15:
        app.give_up(producer, writing, None)


def _grower(process: Process, engine: Engine) -> None:
    """Add a partition while all are at work."""
    world = process.world
    sleep(world.chance.spread(SECOND, 2 * MINUTE, "grow"))
    with suppress(TxnEngineError):
        engine.admin.add_partitions_to_topic(TOPICS[1], world.knobs.partitions + 1)


def _plain_writer(batches: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(batches):
            number = world.chance.between(0, world.knobs.partitions - 1, "plain", index)
            plain_append(process, engine, f"{process.name}-{index}", TOPICS[0], number)

    return body
