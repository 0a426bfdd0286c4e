"""Topics are deleted and created again while transactions write to them and groups read them."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

import pyarrow as pa

from tests.simulator.applications import Application, create_topics, records
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import MINUTE, MS, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.log.uploads import upload_records
from txn_engine.producer import Producer
from txn_engine.types import MarkerMode, TopicPartition

TOPICS = ("stays",)
GOES = "goes"
_GROUP = "followers"


def set_up(world: World) -> None:
    """Clients that write to a topic that stays and to one that does not, and a client that deletes and
    creates the latter."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS, GOES))
    each = max(world.knobs.transactions // 3, 1)
    for number in range(3):
        world.client(f"writer{number}", _writer(number, each))
    world.client("maker", maker, worker=False)
    read: defaultdict[str, set[RecordId]] = defaultdict(set)
    for number in range(2):
        world.client(f"follower{number}", _follower(read), worker=False)
    add_background(world, TOPICS)


def _writer(number: int, transactions: int) -> Body:
    markers: MarkerMode = "deferred" if number == 0 else "inline"

    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"writer-{number}", markers=markers)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(high=2 * MINUTE)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    """Write to both topics. What is written to the one that is deleted does not matter, but it must not hold
    up the other."""
    draw = app.world.chance.random("remade", writing.name)
    app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), 1)
    if draw.random() < 0.3:
        write_as_spark_does(app, producer, records([(writing.name, -1)]))
    else:
        producer.produce(GOES, records([(writing.name, -1)]), partition=0)
    if draw.random() < 0.3:
        app.rest(high=MINUTE)


def write_as_spark_does(app: Application, producer: Producer, found: pa.Table) -> None:
    """Upload as executors do, and name the files some time later as the driver does."""
    process, engine = app.process, app.engine
    topic = engine.logs.topics.look_up(GOES)
    log = engine.logs.get(GOES, topic.incarnation, 0)
    file = upload_records(
        engine.logs.tools.objects,
        process.new_id,
        log.keys.prefix,
        found,
        topic.schemas.layout,
        log_end=log.refresh().log_end_offset,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        timestamp_ms=process.clock(),
    )
    app.rest(high=MINUTE)
    producer.produce_files(topic, [(0, file)])


def _follower(read: defaultdict[str, set[RecordId]]) -> Body:
    """A member of a group that reads the topic that is deleted, and sometimes commits so late that the topic
    is another one by then. In every other round its group is new and has no offset, so only the topic's
    incarnation shows that the commit is too late."""

    def body(process: Process, engine: Engine) -> None:
        world, rounds = process.world, 0
        while not world.stopping:
            rounds += 1
            alone = world.chance.at("alone", process.name, rounds) < 0.5
            group = f"{process.name}-{rounds}" if alone else _GROUP
            with suppress(TxnEngineError), engine.consumer(group_id=group) as consumer:
                consumer.subscribe([GOES])
                for turn in range(4):
                    before = _life(engine)
                    batch = consumer.poll(max_records=3)
                    read_from = before if _life(engine) == before else ""
                    if batch is not None:
                        read[group].update(zip(batch["txn"].to_pylist(), batch["n"].to_pylist(), strict=True))
                    long = world.chance.at("until it is made anew", process.name, rounds, turn) < 0.3
                    low, high = (20 * SECOND, 5 * MINUTE) if long else (MS, 20 * SECOND)
                    sleep(world.chance.spread(low, high, "work", process.name, rounds, turn))
                    positions = consumer.positions()
                    consumer.commit({tp: at._replace(metadata=read_from) for tp, at in positions.items()})
                    _check_nothing_skipped(process, engine, group, read[group])
            sleep(world.chance.spread(SECOND, 2 * MINUTE, "follow", process.name, rounds))

    return body


def _life(engine: Engine) -> str:
    return str(engine.logs.topics.look_up(GOES).incarnation)


def _check_nothing_skipped(process: Process, engine: Engine, group: str, read: set[RecordId]) -> None:
    """Every record before the group's offset was read by a member of the group in this topic, not in an
    earlier one of its name. The metadata of a position names the topic in which it was read."""
    before = _life(engine)
    at = TopicPartition(GOES, 0)
    with engine.consumer(group_id=group) as consumer:
        committed = consumer.committed([at]).get(at)
    if committed is None or not committed.offset:
        return
    if committed.metadata not in ("", before) and _life(engine) == before:
        process.world.history.complain(
            f"group {group}: offset {committed.offset} of incarnation {committed.metadata} is its offset in {before}"
        )
    passed = engine.scan(GOES, partitions=[0], end={at: committed.offset}).to_table(["txn", "n"])
    if _life(engine) != before:
        return
    skipped = {*zip(passed["txn"].to_pylist(), passed["n"].to_pylist(), strict=True)} - read
    if skipped:
        process.world.history.complain(
            f"skipped: group {group} is at {committed.offset} and never read {skipped}"
        )


def maker(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        with suppress(TxnEngineError):
            engine.admin.delete_topic(GOES)
        sleep(world.chance.spread(SECOND, 20 * SECOND, "gone", process.name, rounds))
        with suppress(TxnEngineError):
            create_topics(engine, world.knobs.partitions, GOES)
        sleep(world.chance.spread(10 * SECOND, 3 * MINUTE, "made", process.name, rounds))
