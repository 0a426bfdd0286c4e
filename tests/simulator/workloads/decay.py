"""Snapshots are damaged on their disk while entries are sealed that are stored in snapshots alone."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.applications import Application, create_topics, plain_append
from tests.simulator.history import Writing
from tests.simulator.kernel import HOUR, MINUTE, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, keeper, read_topic
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError, TxnEngineError
from txn_engine.producer import Producer

TOPICS = ("decaying",)
_JOBS = ("snapshot", "retain", "seal", "clean")


def shape(knobs: Knobs) -> Knobs:
    """Few partitions, each with many snapshots."""
    return replace(knobs, partitions=min(knobs.partitions, 2), longest_pause=HOUR, local_store=False)


def set_up(world: World) -> None:
    """Writers, two keepers that seal as much as they can, and decay."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    each = max(world.knobs.transactions // 2, 6)
    world.client("plain", _plain_writer(2 * each))
    world.client("writer", _writer(each))
    for number in range(2):
        world.client(f"keeper{number}", keeper(_JOBS), worker=False)
    world.client("decay", _decay, worker=False)
    add_background(world, TOPICS, sweepers=1)


def _plain_writer(batches: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(batches):
            name = f"{process.name}-{index}"
            number = world.chance.between(0, world.knobs.partitions - 1, "where", name)
            plain_append(process, engine, name, TOPICS[0], number)
            sleep(world.chance.spread(SECOND, MINUTE, "next", name))

    return body


def _writer(transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, "writer")
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(low=SECOND, high=2 * MINUTE)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    for number in range(app.world.knobs.partitions):
        app.write(producer, writing, TOPICS[0], number, 1)


def _decay(process: Process, engine: Engine) -> None:
    """Damage one snapshot of each partition, usually the newest. Other clients have to use the others."""
    world, rounds = process.world, 0
    damaged: dict[str, bytes] = world.notes.setdefault("damaged", {})
    while not world.stopping:
        rounds += 1
        sleep(world.chance.spread(30 * SECOND, 10 * MINUTE, "decay", process.name, rounds))
        spared = {_folder(key) for key in damaged}
        found = sorted(
            key for key in world.shelf.objects if "/snapshots/" in key and _folder(key) not in spared
        )
        if found:
            draw = world.chance.random("decay", process.name, rounds)
            key = draw.choice(found)
            if draw.random() < 0.8:
                key = max(each for each in found if _folder(each) == _folder(key))
            damaged[key] = world.shelf.damage(key)
            world.kernel.note(process.name, "", "decay", key, "", "")
            _look(process)


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def _look(process: Process) -> None:
    """A reader without a view has to fall back to an older snapshot."""
    engine = process.connect()
    try:
        read_topic(engine, TOPICS[0])
        list(engine.coordinator.rows())
    except CorruptObjectError as error:
        process.world.history.complain(f"a damaged snapshot stopped a reader: {error}")
    except TxnEngineError:
        pass


def heal(world: World) -> None:
    """Restore the damaged snapshots that still exist from a copy."""
    for key, data in world.notes.get("damaged", {}).items():
        if key in world.shelf.objects:
            world.shelf.put(key, data)
