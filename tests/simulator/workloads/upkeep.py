"""Two keepers compact, trim, seal, clean up and forget producers at once, while writers sleep for days."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.applications import SCHEMA, Application, fall_asleep, plain_append
from tests.simulator.history import Writing
from tests.simulator.kernel import DAY, HOUR, MINUTE, MS, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, group_watcher, keep
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.maintain import MaintenancePolicy
from txn_engine.producer import Producer
from txn_engine.types import TopicPartition

TOPICS = ("kept", "trimmed")
GROUP = "upkeep"
_CLIENTS = 3
_JOBS = ("compact", "retain", "seal", "clean", "expire_producers", "snapshot")
_HOUR_MS = 3_600_000


def shape(knobs: Knobs) -> Knobs:
    """Days, not hours, and producers that are forgotten after half a day."""
    return replace(
        knobs,
        partitions=min(knobs.partitions, 2),
        longest_pause=4 * DAY,
        producer_id_expiration_ms=12 * _HOUR_MS,
    )


def set_up(world: World) -> None:
    """Writers, two of them with one id and one without, a group that reads along, and two keepers with short
    ages."""

    def create(_: Process, engine: Engine) -> None:
        for topic, retention_ms in zip(TOPICS, (-1, 6 * _HOUR_MS), strict=True):
            engine.admin.create_topic(
                topic,
                partitions=world.knobs.partitions,
                schema=SCHEMA,
                key="account",
                retention_ms=retention_ms,
            )

    world.run_alone("setup", create)
    each = max(world.knobs.transactions // _CLIENTS, 1)
    for number in range(_CLIENTS):
        world.client(f"writer{number}", _writer(number, each))
    world.client("successor", _writer(0, each), delay=DAY)
    world.client("plain", _plain_writer(3 * each))
    world.client("follower", _follower, worker=False)
    world.client("watcher", group_watcher(GROUP, TOPICS[0]), worker=False)
    for number in range(2):
        world.client(f"keeper{number}", _keeper, worker=False)
    add_background(world, TOPICS, sweepers=1)


def _writer(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        app = Application(process, engine, f"writer-{number}", timeout_ms=600_000)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            asleep = world.chance.at("asleep", process.name, index) < 0.15
            app.rest(low=MINUTE, high=2 * DAY if asleep else 2 * HOUR)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("upkeep", writing.name)
    if draw.random() < 0.15:
        # until its transaction was timed out and forgotten
        fall_asleep(app.process, draw.randint(0, 60 * MS), draw.randint(13 * HOUR, 4 * DAY))
    for _ in range(draw.randint(1, 3)):
        app.write(producer, writing, draw.choice(TOPICS), draw.randrange(app.world.knobs.partitions), 1)
        if draw.random() < 0.1:
            app.rest(high=20 * MINUTE)


def _plain_writer(batches: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(batches):
            number = world.chance.between(0, world.knobs.partitions - 1, "plain", index)
            plain_append(process, engine, f"{process.name}-{index}", TOPICS[0], number)
            sleep(world.chance.spread(MINUTE, 6 * HOUR, "plain", process.name, index))

    return body


def _follower(process: Process, engine: Engine) -> None:
    """A group that plainly commits where it has read to, one partition after another."""
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        try:
            with engine.consumer(group_id=GROUP) as consumer:
                number = rounds % world.knobs.partitions
                consumer.assign([TopicPartition(TOPICS[0], number)])
                consumer.poll(max_records=3)
                consumer.commit()
        except TxnEngineError:
            pass
        sleep(world.chance.spread(MINUTE, 3 * HOUR, "follow", process.name, rounds))


def _keeper(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    age_ms = world.chance.spread(_HOUR_MS // 6, 24 * _HOUR_MS, "age")
    policy = MaintenancePolicy(
        orphan_age_ms=age_ms, entries_age_ms=age_ms, trim_step=1, target_file_bytes=4_000, min_files=2
    )
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("keep", process.name, rounds)
        try:
            keep(engine, draw.choice(_JOBS), draw.choice((None, *TOPICS)), policy)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "keeper", error.code, "", "")
        sleep(draw.randint(10 * SECOND, 4 * HOUR))
