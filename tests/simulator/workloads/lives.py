"""Transactional ids that expire within a minute, with a coordinator's log that is sealed, and owners that
fall asleep while they initialise."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.simulator.applications import Application, create_topics, fall_asleep
from tests.simulator.history import Writing
from tests.simulator.kernel import HOUR, MINUTE, MS, SECOND
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, keeper, over_and_over
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.log.store_config import TRANSACTION_STATE_TOPIC
from txn_engine.producer import Producer

TOPICS = ("lived",)
_IDS = 12
_OWNERS = 3
_JOBS = ("snapshot", "retain", "seal")


def shape(knobs: Knobs) -> Knobs:
    """In every other run ids expire after twenty seconds. There is one coordinator partition, whose log moves
    on."""
    expiration_ms = 20_000 if knobs.transactions % 2 else 3_600_000
    return replace(knobs, id_expiration_ms=expiration_ms, coordinator_partitions=1, longest_pause=HOUR)


def set_up(world: World) -> None:
    """Owners that use many ids in turn, each time with a new one, a keeper of the coordinator's log, and one
    of its ids."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(_OWNERS):
        world.client(f"owner{number}", _owner(world.knobs.transactions))
    world.client("keeper", keeper(_JOBS, TRANSACTION_STATE_TOPIC, high=20 * SECOND), worker=False)
    world.client("undertaker", over_and_over("bury", _expire, high=20 * SECOND), worker=False)
    add_background(world, TOPICS, sweepers=1)


def _owner(transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        for index in range(transactions):
            name = f"{process.name}-{index}"
            draw = process.world.chance.random("lives", name)
            app = Application(process, engine, f"life-{draw.randrange(_IDS)}")
            if draw.random() < 0.3:
                fall_asleep(process, draw.randint(0, 25 * MS), draw.randint(2 * MINUTE, 8 * MINUTE))
            app.transact(name, partial(_write, app))
            app.rest(low=SECOND, high=MINUTE)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    number = app.world.chance.between(0, app.world.knobs.partitions - 1, "where", writing.name)
    app.write(producer, writing, TOPICS[0], number, 1)


def _expire(engine: Engine, _: int) -> None:
    engine.coordinator.expire_transactional_ids()
