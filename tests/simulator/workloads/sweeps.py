"""Overlapping sweepers, deferred markers and expiring ids, with clients that are idle, asleep or gone."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.applications import Application, create_topics
from tests.simulator.history import Writing
from tests.simulator.kernel import HOUR, MINUTE, SECOND
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.producer import Producer

TOPICS = ("swept",)
_CLIENTS = 4


def shape(knobs: Knobs) -> Knobs:
    """Ids expire after minutes, not days."""
    return replace(knobs, id_expiration_ms=120_000, producer_id_expiration_ms=300_000)


def set_up(world: World) -> None:
    """Four clients with short time-outs and long rests, against four sweepers."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(_CLIENTS):
        world.client(f"client{number}", _client(number, max(world.knobs.transactions // _CLIENTS, 1)))
    add_background(world, TOPICS, sweepers=4)


def _client(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        markers = "deferred" if number % 2 else "inline"
        app = Application(process, engine, f"swept-{number}", timeout_ms=5_000, markers=markers)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            draw = process.world.chance.at("long", process.name, index)
            app.rest(low=10_000, high=HOUR if draw < 0.2 else 5 * SECOND)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("swept", writing.name)
    for _ in range(draw.randint(1, 3)):
        app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), 1)
        if draw.random() < 0.25:
            app.rest(high=5 * MINUTE)
