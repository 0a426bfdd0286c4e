"""Writers die inside a put, readers see what they left, and the machine loses power: what was read stays.

Each partition has one writer, which stays away for long after it died. So nobody puts anything next to what
it left, and only the readers make sure that the name of what they saw is on the disk.
"""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.applications import create_topics, plain_append
from tests.simulator.kernel import SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import reader
from tests.simulator.world import Body, World
from txn_engine import Engine

TOPICS = ("power",)
_READERS = 2


def shape(knobs: Knobs) -> Knobs:
    """A local store on which every kind of fault comes often, and processes that come back as often."""
    return replace(knobs, local_store=True, every_kind=True, intensity=5.0, partitions=3, max_lives=60)


def set_up(world: World) -> None:
    """A writer for each partition, and readers."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(world.knobs.partitions):
        world.client(f"writer{number}", _writer(number, world.knobs.transactions))
    for number in range(_READERS):
        world.client(f"reader{number}", reader(TOPICS), worker=False)


def _writer(number: int, batches: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        for index in range(batches):
            name = f"{process.name}-{index}"
            plain_append(process, engine, name, TOPICS[0], number)
            sleep(process.world.chance.spread(SECOND, 30 * SECOND, "next", name))

    return body
