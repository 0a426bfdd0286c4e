"""Ids whose epochs run out, with owners that work longer than their transactions' time-outs and go on all the
same."""

from __future__ import annotations

from tests.simulator.applications import Application, create_topics
from tests.simulator.history import Writing
from tests.simulator.kernel import MINUTE, SECOND
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, over_and_over
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TransactionAbortableError
from txn_engine.producer import Producer
from txn_engine.protocol.producers import MAX_EPOCH
from txn_engine.testing import write_transaction_state

TOPICS = ("counted",)
_IDS = 4
_TIMEOUT_MS = 8_000


def set_up(world: World) -> None:
    """An owner of each old id, a second owner of the first, and a client that ends what takes too long within
    seconds."""
    world.run_alone("setup", lambda _, engine: _create(world, engine))
    each = max(world.knobs.transactions // _IDS, 5)
    for number in range(_IDS):
        world.client(f"owner{number}", _owner(number, each))
    world.client("second", _owner(0, each), delay=world.chance.spread(SECOND, 5 * MINUTE, "second"))
    world.client("clock", over_and_over("clock", _abort_timed_out, high=6 * SECOND), worker=False)
    add_background(world, TOPICS, sweepers=1)


def _create(world: World, engine: Engine) -> None:
    create_topics(engine, world.knobs.partitions, *TOPICS)
    for number in range(_IDS):
        write_transaction_state(
            engine,
            f"old-{number}",
            state="CompleteCommit",
            producer_id=engine.coordinator.init_producer_id(None).producer_id,
            producer_epoch=MAX_EPOCH - world.chance.between(2, 4, "epochs left", number),
        )


def _owner(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"old-{number}", timeout_ms=_TIMEOUT_MS)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(high=5 * SECOND)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    """Write parts of a transaction with waits that may be too long. Some transactions are given up."""
    draw = app.world.chance.random("epochs", writing.name)
    for _ in range(draw.randint(1, 3)):
        app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), 1).result()
        if draw.random() < 0.4:
            app.rest(low=SECOND, high=20 * SECOND)
    if draw.random() < 0.4:
        raise TransactionAbortableError(f"{writing.name} thinks better of it")


def _abort_timed_out(engine: Engine, _: int) -> None:
    engine.coordinator.abort_timed_out_transactions()
