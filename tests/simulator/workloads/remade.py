"""Topics that are deleted, and made anew, under transactions that write to them."""

from __future__ import annotations

from contextlib import suppress

from tests.simulator.applications import Application, create_topics, records
from tests.simulator.history import Writing
from tests.simulator.kernel import MINUTE, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer
from txn_engine.types import MarkerMode

TOPICS = ("stays",)
_GOES = "goes"


def set_up(world: World) -> None:
    """Clients that write into a topic that stays and one that does not, and somebody who deletes and makes it."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS, _GOES))
    each = max(world.knobs.transactions // 3, 1)
    for number in range(3):
        world.client(f"writer{number}", _writer(number, each))
    world.client("maker", _maker, worker=False)
    add_background(world, TOPICS)


def _writer(number: int, transactions: int) -> Body:
    markers: MarkerMode = "deferred" if number == 0 else "inline"

    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"writer-{number}", markers=markers)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(high=20 * SECOND)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    """What is written to the topic that goes is nobody's concern; that it goes must not hold up the one that stays."""
    draw = app.world.chance.random("remade", writing.name)
    app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), 1)
    producer.produce(_GOES, records([(writing.name, -1)]), partition=0)
    if draw.random() < 0.3:
        app.rest(high=MINUTE)


def _maker(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        with suppress(TxnEngineError):
            engine.admin.delete_topic(_GOES)
        sleep(world.chance.spread(SECOND, MINUTE, "gone", process.name, rounds))
        with suppress(TxnEngineError):
            create_topics(engine, world.knobs.partitions, _GOES)
        sleep(world.chance.spread(10 * SECOND, 10 * MINUTE, "made", process.name, rounds))
