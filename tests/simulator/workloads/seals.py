"""Entries are sealed within minutes, while their writers do not learn what happened to them until then."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.applications import Application, create_topics, fall_asleep, plain_append, records
from tests.simulator.history import Writing
from tests.simulator.kernel import HOUR, MINUTE, MS, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, keeper
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer

TOPICS = ("sealed",)
_JOBS = ("snapshot", "retain", "seal", "clean")
_LONGEST = 25 * MINUTE


def shape(knobs: Knobs) -> Knobs:
    """Few partitions, and nobody sleeps for longer than a client in doubt waits."""
    return replace(knobs, partitions=min(knobs.partitions, 2), longest_pause=HOUR)


def set_up(world: World) -> None:
    """Writers without a producer id, with one, and with transactions, two of them with one id, and two
    keepers."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    each = max(world.knobs.transactions // 3, 4)
    for number in range(2):
        world.client(f"plain{number}", _plain_writer(2 * each))
    world.client("sender", _sender(each))
    world.client("owner", _owner(each))
    world.client("successor", _owner(each), delay=world.chance.spread(SECOND, 10 * MINUTE, "successor"))
    age_ms = (0, 60_000, 600_000)[world.chance.between(0, 2, "age")]
    for number in range(2):
        world.client(f"keeper{number}", keeper(_JOBS, age_ms=age_ms, high=2 * MINUTE), worker=False)
    add_background(world, TOPICS, sweepers=1, readers=2)


def _rest(process: Process, *name: object) -> None:
    sleep(process.world.chance.spread(SECOND, 2 * MINUTE, "rest", process.name, *name))


def _doze(process: Process, name: str, share: float) -> None:
    """Now and then, fall asleep in the next few store operations until others have moved on."""
    draw = process.world.chance.random("doze", name)
    if draw.random() < share:
        fall_asleep(process, draw.randint(5 * MS, 60 * MS), draw.randint(3 * MINUTE, _LONGEST))


def _partition(process: Process, name: str) -> int:
    return process.world.chance.between(0, process.world.knobs.partitions - 1, "where", name)


def _plain_writer(batches: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        for index in range(batches):
            name = f"{process.name}-{index}"
            _doze(process, name, 0.3)
            plain_append(process, engine, name, TOPICS[0], _partition(process, name))
            _rest(process, index)

    return body


def _sender(batches: int) -> Body:
    """A producer without transactions. After a seal, the log still knows its last batches."""

    def body(process: Process, engine: Engine) -> None:
        history, producer = process.world.history, engine.producer()
        for index in range(batches):
            name = f"{process.name}-{index}"
            writing = history.begin(name, process.name, atomic=False)
            partition = _partition(process, name)
            writing.records[TOPICS[0], partition] = [(name, 0)]
            _doze(process, name, 0.3)
            try:
                producer.produce(TOPICS[0], records([(name, 0)]), partition=partition).result()
            except TxnEngineError as error:
                history.end(writing, "failed", error)
                producer = engine.producer()
            else:
                history.end(writing, "ok")
            _rest(process, index)

    return body


def _owner(transactions: int) -> Body:
    """Commits whose reply is lost for so long that another owner takes over and the decision is sealed."""

    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, "owned", timeout_ms=300_000, deaf_for=_LONGEST)
        for index in range(transactions):
            name = f"{process.name}-{index}"
            app.transact(name, lambda producer, writing: _write(app, producer, writing))
            _rest(process, index)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    app.write(producer, writing, TOPICS[0], _partition(app.process, writing.name), 1)
    _doze(app.process, writing.name, 0.2)
