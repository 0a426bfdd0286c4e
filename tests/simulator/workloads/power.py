"""Writers die inside a put, readers see what they left, and the machine loses power: what was read stays.

Each partition has one writer, which stays away for long after it died. So nobody puts anything next to what
it left, and only the readers make sure that the name of what they saw is on the disk.
"""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.applications import create_topics, plain_append
from tests.simulator.kernel import MINUTE, MS, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import read_and_note
from tests.simulator.world import Body, World
from txn_engine import Engine

TOPICS = ("power",)
_READERS = 2


def shape(knobs: Knobs) -> Knobs:
    """A local store on which every kind of fault comes often, and processes that come back as often."""
    return replace(knobs, local_store=True, every_kind=True, intensity=1.0, partitions=3, max_lives=60)


def set_up(world: World) -> None:
    """A writer for each partition, readers, and somebody who switches the machine off."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(world.knobs.partitions):
        world.client(f"writer{number}", _writer(number, world.knobs.transactions))
    for number in range(_READERS):
        world.client(f"reader{number}", _read, worker=False)
    world.client("switch", _switch_off, worker=False)


def _writer(number: int, batches: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(batches):
            name = f"{process.name}-{index}"
            if world.machine is not None and world.chance.at("dies", name) < 0.3:
                world.machine.stop_at_name(process, "/log/")
            plain_append(process, engine, name, TOPICS[0], number)
            sleep(world.chance.spread(SECOND, 30 * SECOND, "next", name))

    return body


def _read(process: Process, engine: Engine) -> None:
    """Look so often that what somebody left is seen before its folder is synced for another reason."""
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        read_and_note(process, engine, TOPICS)
        sleep(world.chance.spread(50 * MS, 10 * SECOND, "look", process.name, rounds))


def _switch_off(process: Process, engine: Engine) -> None:
    world = process.world
    sleep(world.chance.spread(SECOND, 10 * MINUTE, "stays on", process.name))
    if world.machine is not None and not world.stopping:
        world.machine.cut_power()
        process.crash()
