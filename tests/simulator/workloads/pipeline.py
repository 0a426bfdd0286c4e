"""Consume, transform, produce: two overlapping owners of one group commit output and input offsets in one
transaction."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pyarrow as pa

from tests.simulator.applications import Application, create_topics
from tests.simulator.checks import Final
from tests.simulator.history import Writing
from tests.simulator.kernel import SECOND
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, group_watcher
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.consumer import Consumer
from txn_engine.errors import TxnEngineError
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC
from txn_engine.producer import Producer
from txn_engine.types import TopicPartition

TOPICS = ("input", "output")
GROUP = "pipeline"
_OWNERS = 2
_IDLE_MAX = 12


def set_up(world: World) -> None:
    """A feeder, two owners that know nothing of each other, and a client that watches the group's offsets."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    world.client("feeder", _feeder(world.knobs.transactions))
    for number in range(_OWNERS):
        world.client(f"owner{number}", _owner(number))
    world.client("watcher", group_watcher(GROUP, TOPICS[0]), worker=False)
    add_background(world, TOPICS)


def _feeder(batches: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, "feeder", timeout_ms=30_000)
        for index in range(batches // 2):
            draw = process.world.chance.random("feed", process.name, index)

            def feed(producer: Producer, writing: Writing, draw: object = draw) -> None:
                for _ in range(draw.randint(1, 2)):  # type: ignore[attr-defined]
                    partition = draw.randrange(process.world.knobs.partitions)  # type: ignore[attr-defined]
                    app.write(producer, writing, TOPICS[0], partition, draw.randint(1, 3))  # type: ignore[attr-defined]

            app.transact(f"{process.name}-{index}", feed)
            app.rest(high=5 * SECOND)

    return body


def _owner(number: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        app = Application(
            process,
            engine,
            f"owner-{number}",
            timeout_ms=world.chance.spread(5_000, 60_000, "timeout", number),
        )
        consumer: Consumer | None = None
        idle = rounds = 0
        while idle < _IDLE_MAX:
            rounds += 1
            app.rest(high=5 * SECOND)
            try:
                if consumer is None:
                    consumer = engine.consumer(group_id=GROUP)
                    consumer.subscribe([TOPICS[0]])
                batch = consumer.poll(max_records=world.chance.between(1, 5, "poll", process.name, rounds))
            except TxnEngineError:
                idle += 1
                continue
            if batch is None:
                idle += 1
                continue
            idle = 0
            writing = app.transact(f"{process.name}-{rounds}", _transform(app, consumer, batch))
            if writing is None or writing.outcome != "ok":
                # Its positions are ahead of the group's: begin where the group is, with it or with a new one.
                stays = world.chance.at("seeks", process.name, rounds) < 0.5 and _seek_to_group(consumer)
                consumer = consumer if stays else None

    return body


def _seek_to_group(consumer: Consumer) -> bool:
    """Seek with the same consumer. False if the store or another member's pending commit prevents it."""
    try:
        consumer.seek_to_committed()
        return len(consumer.positions()) > 0
    except TxnEngineError:
        return False


def _transform(app: Application, consumer: Consumer, batch: pa.Table):  # type: ignore[no-untyped-def]
    def body(producer: Producer, writing: Writing) -> None:
        rows = batch.select(["_partition", "_offset"]).to_pylist()
        offsets: dict[TopicPartition, int] = {}
        for row in rows:
            partition, offset = row["_partition"], row["_offset"]
            offsets[TopicPartition(TOPICS[0], partition)] = offset + 1
            target = (partition + offset) % app.world.knobs.partitions
            app.write(producer, writing, TOPICS[1], target, 1, accounts=[partition], amounts=[offset])
        if app.world.chance.at("positions", writing.name) < 0.3:
            offsets |= {tp: at.offset for tp, at in consumer.positions().items() if tp in offsets}
        if app.world.chance.at("asks", writing.name) < 0.2:
            with suppress(TxnEngineError):  # for a look, which changes nothing of what is committed
                consumer.committed(offsets)
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if app.world.chance.at("snapshot", writing.name) < 0.1:
            with suppress(TxnEngineError):  # what is pending stands in it
                app.engine.admin.snapshot(CONSUMER_OFFSETS_TOPIC)

    return body


def check(world: World, final: Final) -> list[str]:
    """Invariant 8: records below the group's offset were processed once, and those above it were not."""

    def look(_: Process, engine: Engine) -> tuple[pa.Table, dict[int, int]]:
        partitions = [TopicPartition(TOPICS[0], number) for number in range(world.knobs.partitions)]
        committed = engine.consumer(group_id=GROUP).committed(partitions)
        output = engine.scan(TOPICS[1]).to_table(["account", "amount"])
        return output, {tp.partition: at.offset for tp, at in committed.items()}

    output, committed = world.run_alone("group", look)
    done = Counter(zip(*(column.to_pylist() for column in output.columns), strict=True))
    wanted = {
        (partition, offset)
        for (topic, partition), rows in final.items()
        if topic == TOPICS[0]
        for offset, _ in rows
        if offset < committed.get(partition, 0)
    }
    found = [f"processed {times} times: input {place}" for place, times in done.items() if times > 1]
    found += [f"skipped: input {place} is below the group's offset" for place in sorted(wanted - set(done))]
    found += [f"output without offset: input {place}" for place in sorted(set(done) - wanted)]
    return found
