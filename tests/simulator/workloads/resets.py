"""An operator resets a group again and again, while plain and transactional readers that fetched before
commit."""

from __future__ import annotations

from contextlib import suppress

from tests.simulator.applications import Application, create_topics
from tests.simulator.history import Writing
from tests.simulator.kernel import MINUTE, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer
from txn_engine.types import TopicPartition

TOPICS = ("read", "copied")
GROUP = "resets"


def set_up(world: World) -> None:
    """Input, two plain readers, a transactional one, and an operator. The auditor knows which commits are legal."""
    partitions = world.knobs.partitions

    def create(process: Process, engine: Engine) -> None:
        create_topics(engine, partitions, *TOPICS)
        app = Application(process, engine, "input")
        app.transact("input", lambda producer, writing: _fill(app, producer, writing))

    world.run_alone("setup", create)
    for number in range(2):
        world.client(f"plain{number}", _plain(world.knobs.transactions // 2))
    world.client("copier", _copier(world.knobs.transactions // 2))
    world.client("operator", _operator(world.knobs.transactions // 3))
    add_background(world, TOPICS)


def _fill(app: Application, producer: Producer, writing: Writing) -> None:
    for number in range(app.world.knobs.partitions):
        app.write(producer, writing, TOPICS[0], number, 6)


def _plain(commits: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(commits):
            draw = world.chance.random("plain", process.name, index)
            with suppress(TxnEngineError), engine.consumer(group_id=GROUP) as consumer:
                consumer.subscribe([TOPICS[0]])
                for _ in range(draw.randint(1, 3)):
                    consumer.poll(max_records=draw.randint(1, 3))
                    sleep(world.chance.spread(10_000, MINUTE, "work", process.name, index))
                    consumer.commit()

    return body


def _copier(transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, "copier", timeout_ms=20_000)
        for index in range(transactions):
            with suppress(TxnEngineError), engine.consumer(group_id=GROUP) as consumer:
                consumer.subscribe([TOPICS[0]])
                batch = consumer.poll(max_records=2)
                if batch is None:
                    app.rest()
                    continue

                def copy(producer: Producer, writing: Writing, count: int = batch.num_rows) -> None:
                    app.write(producer, writing, TOPICS[1], 0, count)
                    app.rest(high=20 * SECOND)
                    positions = {tp: at.offset for tp, at in consumer.positions().items()}
                    producer.send_offsets_to_transaction(positions, consumer.group_metadata())
                    app.rest(high=10 * SECOND)

                app.transact(f"{process.name}-{index}", copy)
            app.rest()

    return body


def _operator(resets: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(resets):
            draw = world.chance.random("reset", process.name, index)
            targets = {
                TopicPartition(TOPICS[0], number): draw.choice((0, 1, 2, 3))
                for number in range(world.knobs.partitions)
                if draw.random() < 0.7
            }
            with suppress(TxnEngineError):
                engine.admin.reset_offsets(GROUP, targets, execute=True)
            sleep(world.chance.spread(SECOND, 2 * MINUTE, "next", process.name, index))

    return body
