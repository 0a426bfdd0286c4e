"""One transactional id, two processes that both believe that it is theirs, and sweepers with short time-outs."""

from __future__ import annotations

from tests.simulator.applications import Application, create_topics
from tests.simulator.history import Writing
from tests.simulator.kernel import MINUTE, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.producer import Producer
from txn_engine.protocol.producers import MAX_EPOCH
from txn_engine.testing import write_transaction_state

TOPICS = ("owned",)


def set_up(world: World) -> None:
    """Two owners, a third client that only initialises, twins that begin at the same moment, and three
    sweepers."""
    world.run_alone("setup", lambda _, engine: _create(world, engine))
    for number in range(2):
        world.client(f"owner{number}", _owner(max(world.knobs.transactions // 2, 1)))
    for number in range(2):
        world.client(f"twin{number}", _twin(max(world.knobs.transactions // 4, 1)))
    world.client("fencer", _fencer(max(world.knobs.transactions // 6, 1)))
    add_background(world, TOPICS, sweepers=3)


def _create(world: World, engine: Engine) -> None:
    """Create the topic and, in some runs, an id with so many transactions that its epochs run out soon."""
    create_topics(engine, world.knobs.partitions, *TOPICS)
    if world.chance.at("old id") < 0.3:
        write_transaction_state(
            engine,
            "shared",
            state="CompleteCommit",
            producer_id=engine.coordinator.init_producer_id(None).producer_id,
            producer_epoch=MAX_EPOCH - world.chance.between(1, 9, "epochs left"),
        )


def _owner(transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, "shared", timeout_ms=8_000)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(high=5 * SECOND)

    return body


def _twin(times: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        for index in range(times):
            sleep(MINUTE - process.world.kernel.now % MINUTE)
            _transact_once(Application(process, engine, "twins", timeout_ms=8_000), f"{process.name}-{index}")

    return body


def _transact_once(app: Application, name: str) -> None:
    app.transact(name, lambda producer, writing: _write(app, producer, writing))


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("owned", writing.name)
    for _ in range(draw.randint(1, 3)):
        future = app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), 1)
        if draw.random() < 0.3:
            future.result()
        if draw.random() < 0.3:
            app.rest(high=12 * SECOND)


def _fencer(times: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        for _ in range(times):
            app = Application(process, engine, "shared", timeout_ms=8_000)
            app.rest(low=SECOND, high=60 * SECOND)
            app.ready()

    return body
