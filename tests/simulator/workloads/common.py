"""Clients that several workloads share: readers, and sweepers that finish what others have left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulator.history import Position, Read, RecordId
from tests.simulator.kernel import MINUTE, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.maintain import MaintenancePolicy
from txn_engine.types import TopicPartition


def read_topic(engine: Engine, topic: str) -> dict[tuple[str, int], tuple[int, list[tuple[int, RecordId]]]]:
    """Where a read_committed scan of each partition ends, and its records: (offset, record)."""
    scan = engine.scan(topic)
    table = scan.to_table(["_partition", "_offset", "txn", "n"])
    found: dict[tuple[str, int], tuple[int, list[tuple[int, RecordId]]]] = {
        (tp.topic, tp.partition): (end, []) for tp, end in scan.offsets.items()
    }
    for partition, offset, name, n in zip(*(column.to_pylist() for column in table.columns), strict=True):
        found[topic, partition][1].append((offset, (name, n)))
    return found


def rest(process: Process, rounds: int) -> None:
    """Wait for the next round, longer and longer, so that hours in which nothing happens cost nothing."""
    world = process.world
    sleep(
        round(
            world.chance.spread(SECOND, MINUTE, "rest", process.name, rounds)
            * min(1.15 ** min(rounds, 40), 100)
        )
    )


def read_and_note(process: Process, engine: Engine, topics: Sequence[str]) -> None:
    """Read everything, and note what was seen."""
    world = process.world
    for topic in topics:
        began = world.kernel.now
        try:
            read = read_topic(engine, topic)
        except TxnEngineError:
            continue
        for place, (end, rows) in read.items():
            world.history.reads.append(
                Read(process.name, began, world.kernel.now, place, 0, end, tuple(rows))
            )


def reader(topics: Sequence[str]) -> Body:
    """A client that reads everything now and then."""

    def body(process: Process, engine: Engine) -> None:
        rounds = 0
        while not process.world.stopping:
            read_and_note(process, engine, topics)
            rounds += 1
            rest(process, rounds)

    return body


def sweeper() -> Body:
    """The coordinator's DAGs: time-outs, markers, expiry and snapshots, each at its time."""

    def body(process: Process, engine: Engine) -> None:
        world, rounds = process.world, 0
        while not world.stopping:
            rounds += 1
            work = world.chance.at("sweep", process.name, rounds)
            try:
                if work < 0.4:
                    engine.coordinator.write_pending_markers()
                elif work < 0.8:
                    engine.coordinator.abort_timed_out_transactions()
                elif work < 0.9:
                    engine.coordinator.expire_transactional_ids()
                else:
                    engine.admin.snapshot()
            except TxnEngineError:
                pass
            rest(process, rounds)

    return body


def keep(engine: Engine, job: str, topic: str | None, policy: MaintenancePolicy) -> None:
    """Run one job of maintenance, for a topic or for all and the internal ones."""
    if job == "snapshot":
        engine.admin.snapshot(topic)
    elif job in ("seal", "expire_producers"):
        getattr(engine.maintenance, job)(topic)
    else:
        getattr(engine.maintenance, job)(topic, policy=policy)


def over_and_over(site: str, work: Callable[[Engine, int], object], *, high: int) -> Body:
    """A client that does one duty round after round from 0, at most `high` apart. An error is left to the
    next round."""

    def body(process: Process, engine: Engine) -> None:
        world, rounds = process.world, 0
        while not world.stopping:
            try:
                work(engine, rounds)
            except TxnEngineError as error:
                world.kernel.note(process.name, "", site, error.code, "", "")
            rounds += 1
            sleep(world.chance.spread(SECOND, high, site, process.name, rounds))

    return body


def keeper(jobs: Sequence[str], topic: str | None = None, *, age_ms: int = 0, high: int = MINUTE) -> Body:
    """A client that runs one job after the other, again and again. Everything older than `age_ms` is old
    enough."""
    policy = MaintenancePolicy(orphan_age_ms=age_ms, entries_age_ms=age_ms, trim_step=1)

    def work(engine: Engine, rounds: int) -> None:
        keep(engine, jobs[rounds % len(jobs)], topic, policy)

    return over_and_over("keep", work, high=high)


def group_watcher(group_id: str, topic: str) -> Body:
    """A client that looks at a group's position."""

    def body(process: Process, engine: Engine) -> None:
        world, rounds = process.world, 0
        while not world.stopping:
            rounds += 1
            began = world.kernel.now
            try:
                count = engine.admin.describe_topic(topic).partitions
                consumer = engine.consumer(group_id=group_id)
                found = consumer.committed([TopicPartition(topic, number) for number in range(count)])
            except TxnEngineError:
                found = {}
            for tp, at in found.items():
                world.history.positions.append(
                    Position(began, world.kernel.now, (group_id, tp.topic, tp.partition), at.offset)
                )
            rest(process, rounds)

    return body


def add_background(world: World, topics: Sequence[str], *, sweepers: int = 2, readers: int = 1) -> None:
    """Add sweepers and readers to the workers."""
    for number in range(sweepers):
        world.client(f"sweeper{number}", sweeper(), worker=False)
    for number in range(readers):
        world.client(f"reader{number}", reader(topics), worker=False)
