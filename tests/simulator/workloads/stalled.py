"""First writes that stall: a writer sleeps between AddPartitions and its first entry, until the partition has
forgotten it.

Owners of one id sleep there in turn, so that one may wake while the id is Ongoing again, with a newer epoch
and with the very partition to which it is about to write.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tests.simulator.applications import Application, create_topics
from tests.simulator.history import Writing
from tests.simulator.kernel import HOUR, MINUTE, MS, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, keeper
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.log.store_config import TRANSACTION_STATE_TOPIC
from txn_engine.producer import Producer

TOPICS = ("stalled",)
_FORGETTING = ("expire_producers",)
_SEALING = ("expire_producers", "snapshot", "retain", "seal")
_TIMEOUT_MS = 300_000
_COORDINATORS = f"topics/{TRANSACTION_STATE_TOPIC}/"
_JOINING_MS = 2_000


def shape(knobs: Knobs) -> Knobs:
    """Producers are forgotten after ten seconds without a row."""
    return replace(knobs, producer_id_expiration_ms=10_000, longest_pause=HOUR)


def set_up(world: World) -> None:
    """Two owners of one id and one of another, and a keeper that forgets producers and, in every other run,
    seals."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    each = max(world.knobs.transactions // 3, 4)
    for name, transactional_id in (("first", "shared"), ("second", "shared"), ("alone", "own")):
        world.client(name, _owner(transactional_id, each))
    jobs = _SEALING if world.chance.at("seals") < 0.5 else _FORGETTING
    world.client("keeper", keeper(jobs, TOPICS[0], high=15 * SECOND), worker=False)
    add_background(world, TOPICS, sweepers=1)


def _owner(transactional_id: str, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, transactional_id, timeout_ms=_TIMEOUT_MS)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(high=2 * MINUTE)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("stalled", writing.name)
    numbers = list(range(app.world.knobs.partitions))
    for number in draw.sample(numbers, draw.randint(1, len(numbers))):
        landed = len(app.world.shelf.landed)
        app.write(producer, writing, TOPICS[0], number, 1)
        if draw.random() < 0.4:
            _wait_until_joined(app, landed)
            _stall(app, number, draw.randint(10 * SECOND, 12 * MINUTE), looks=draw.random() < 0.5)


def _wait_until_joined(app: Application, landed: int) -> None:
    """Sleep until a row of a coordinator has landed since: the producer joins the partition beside this thread."""
    for _ in range(_JOINING_MS):
        if any(key.startswith(_COORDINATORS) for _, key, *_ in app.world.shelf.landed[landed:]):
            return
        sleep(MS)


def _stall(app: Application, number: int, duration: int, *, looks: bool) -> None:
    """Sleep after the partition has joined the transaction and before its first entry.

    With `looks`, the writer reads the log when it wakes, so that its view may have moved on or have been
    loaded again.
    """
    app.process.pause(duration)
    if looks:
        sleep(0)
        with suppress(TxnEngineError):
            app.engine.logs.get(TOPICS[0], 0, number).refresh()
