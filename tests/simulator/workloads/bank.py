"""Transfers between accounts in two partitions: money is neither made nor lost, whatever is read, and whenever."""

from __future__ import annotations

from collections import Counter

from tests.simulator.applications import Application, create_topics
from tests.simulator.checks import Final
from tests.simulator.history import Writing
from tests.simulator.kernel import MINUTE, SECOND
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.producer import Producer

TOPICS = ("accounts",)
_CLIENTS = 3


def set_up(world: World) -> None:
    """Three tellers, one of them with deferred markers, together with readers and sweepers."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    each = max(world.knobs.transactions // _CLIENTS, 1)
    for number in range(_CLIENTS):
        world.client(f"teller{number}", _teller(number, each))
    add_background(world, TOPICS)


def _teller(number: int, transfers: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        app = Application(
            process,
            engine,
            f"teller-{number}",
            timeout_ms=world.chance.spread(5_000, 120_000, "timeout", number),
            markers="deferred" if number == 2 else "inline",
        )
        for index in range(transfers):
            name = f"{process.name}-{index}"
            app.transact(name, lambda producer, writing: _transfer(app, producer, writing))
            app.rest(high=20 * SECOND)

    return body


def _transfer(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("transfer", writing.name)
    count = app.world.knobs.partitions
    for _ in range(draw.choice((1, 1, 1, 2))):
        amount = draw.randint(1, 100)
        for sign in (-1, 1):
            size = draw.choice((1, 1, 2))
            amounts = [sign * amount] if size == 1 else [sign * amount - 7, 7]
            future = app.write(
                producer,
                writing,
                TOPICS[0],
                draw.randrange(count),
                size,
                accounts=[draw.randrange(8)] * size,
                amounts=amounts,
            )
            if draw.random() < 0.3:
                future.result()
        if draw.random() < 0.2:
            app.rest(high=3 * MINUTE)


def check(world: World, final: Final) -> list[str]:
    """The sum of each committed transfer is zero."""
    table = world.run_alone("sum", lambda _, engine: engine.scan(TOPICS[0]).to_table(["txn", "amount"]))
    sums: Counter[str] = Counter()
    for name, amount in zip(*(column.to_pylist() for column in table.columns), strict=True):
        sums[name] += amount
    return [f"money: {name} adds up to {amount}" for name, amount in sums.items() if amount]
