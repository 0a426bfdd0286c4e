"""Transactions end just as they time out, ids are used just as they expire, and sweepers come just then."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tests.simulator.applications import Application, create_topics
from tests.simulator.history import Writing
from tests.simulator.kernel import MS, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer

TOPICS = ("due",)
_TIMEOUT_MS = 5_000
_ROUND = 10 * SECOND


def shape(knobs: Knobs) -> Knobs:
    """Clocks that agree, so that all meet at the same moment, and ids that expire just as they are used
    again."""
    return replace(knobs, skewed_clocks=False, clock_tick_ms=1, id_expiration_ms=_TIMEOUT_MS)


def set_up(world: World) -> None:
    """Owners whose rounds begin exactly on time, and sweepers that look around the deadlines."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    rounds = max(world.knobs.transactions // 2, 1)
    for number in range(2):
        world.client(f"owner{number}", _owner(number, rounds))
        world.client(f"watch{number}", _watch, worker=False)
    add_background(world, TOPICS, sweepers=1)


def _to_next_round(process: Process) -> None:
    sleep(_ROUND - process.world.kernel.now % _ROUND)


def _owner(number: int, rounds: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"due-{number}", timeout_ms=_TIMEOUT_MS)
        for index in range(rounds):
            app.ready()
            _to_next_round(process)
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("due", writing.name)
    app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), 1).result()
    due = _TIMEOUT_MS * MS + draw.randint(-20 * MS, 80 * MS)
    sleep(max(due - app.world.kernel.now % _ROUND, 1))


def _watch(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        _to_next_round(process)
        sleep(world.chance.between(0, 60 * MS, "expire", process.name, rounds))
        with suppress(TxnEngineError):
            engine.coordinator.expire_transactional_ids()
        sleep(_TIMEOUT_MS * MS + world.chance.between(0, 100 * MS, "watch", process.name, rounds))
        with suppress(TxnEngineError):
            engine.coordinator.abort_timed_out_transactions()
