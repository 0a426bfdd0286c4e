"""One account's records are erased from a topic that is deleted and created again and again, by several
clients that die, while transactions write to it and to a topic that stays. After an erasure without faults
nothing that the deleted topic has left holds one of them, and what others wrote to the present one is
there."""

from __future__ import annotations

import io
import re

import pyarrow.parquet as pq

from tests.simulator.applications import Application, create_topics, records
from tests.simulator.checks import Final
from tests.simulator.history import Writing
from tests.simulator.kernel import MINUTE, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.workloads.erasure import ERASED, OfOneAccount
from tests.simulator.workloads.remade import GOES, maker, write_as_spark_does
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError, UnknownTopicOrPartitionError
from txn_engine.producer import Producer

TOPICS = ("stays",)
_OTHER = 1
_DATA = re.compile(rf"topics/{GOES}/([0-9]+)/([0-9]+)/data/.+")

Rows = dict[tuple[int, int], tuple[str, int, int]]
"""By partition and offset: a record's transaction, number and account."""


def set_up(world: World) -> None:
    """Writers to both topics, a client that deletes and creates the one, and two that erase."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS, GOES))
    each = max(world.knobs.transactions // 3, 1)
    for number in range(3):
        world.client(f"writer{number}", _writer(number, each))
    world.client("maker", maker, worker=False)
    for number in range(2):
        world.client(f"eraser{number}", _eraser, worker=False)
    add_background(world, TOPICS)


def _writer(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"writer-{number}")
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(high=2 * MINUTE)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    """Write to both topics. Erased files, and a topic that is deleted, must not hold up the one that
    stays."""
    draw = app.world.chance.random("former", writing.name)
    app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), 1)
    accounts = [draw.choice((ERASED, _OTHER)) for _ in range(draw.randint(1, 3))]
    found = records([(writing.name, -1 - n) for n in range(len(accounts))], accounts)
    if draw.random() < 0.3:
        write_as_spark_does(app, producer, found)
    else:
        producer.produce(GOES, found, partition=0)
    if draw.random() < 0.3:
        app.rest(high=MINUTE)


def _eraser(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("erase", process.name, rounds)
        try:
            engine.erase(GOES, OfOneAccount(), execute=draw.random() < 0.9, everything=True)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "eraser", error.code, "", "")
        sleep(draw.randint(SECOND, 3 * MINUTE))


# --- what must hold -------------------------------------------------------------------------------------------------


def check(world: World, _final: Final) -> list[str]:
    """Erase without faults twice: while the topic is as it was left, and after it was deleted with everything
    that it has then."""
    complaints: list[str] = []

    def erase(_: Process, engine: Engine) -> None:
        before = _read(engine)
        report = engine.erase(GOES, OfOneAccount(), execute=True, everything=True)
        empty = {each.partition for each in report.partitions if not each.searched_to}
        held = [each for each in report.still_held if not any(f"-{at} data/" in each.place for at in empty)]
        complaints.extend(f"in peace still held: {each}" for each in held[:1])
        after = _read(engine)
        if after != {at: row for at, row in before.items() if row[2] != ERASED}:
            complaints.append(f"{GOES} has {sorted(after.items())[:3]} of {sorted(before.items())[:3]}")
        complaints.extend(_holding(world, _life(engine), empty))
        if before or _life(engine) >= 0:
            engine.admin.delete_topic(GOES)
        engine.erase(GOES, OfOneAccount(), execute=True, everything=True)
        complaints.extend(_holding(world, -1, set()))

    world.run_alone("eraser in peace", erase)
    return complaints


def _life(engine: Engine) -> int:
    """The present incarnation, or -1 if the topic is deleted."""
    try:
        return engine.logs.topics.look_up(GOES).incarnation
    except UnknownTopicOrPartitionError:
        return -1


def _read(engine: Engine) -> Rows:
    if _life(engine) < 0:
        return {}
    table = engine.scan(GOES).to_table(["_partition", "_offset", "txn", "n", "account"])
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {(partition, offset): (name, n, account) for partition, offset, name, n, account in rows}


def _holding(world: World, life: int, empty: set[int]) -> list[str]:
    """The data files that hold erased records, except for uploads to empty logs of the present topic, which
    no floor refuses."""
    found = []
    for key in sorted(world.shelf.objects):
        match = _DATA.fullmatch(key)
        if match is None or (int(match[1]) == life and int(match[2]) in empty):
            continue
        table = pq.read_table(io.BytesIO(world.shelf.objects[key][0]), columns=["account"])
        if ERASED in table.column("account").to_pylist():
            found.append(f"{key} holds what was erased")
    return found
