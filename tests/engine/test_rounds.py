"""How many store calls wait for each other: engines run under virtual time, on a store where every call takes
one round.

The counts are exact on any machine: calls that overlap take one round together, and each call that waits for
another one adds a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
import pytest

from tests.simulator.kernel import MS
from tests.simulator.knobs import Knobs
from tests.simulator.patches import simulated
from tests.simulator.process import Process
from tests.simulator.store import ClientStore
from tests.simulator.world import World
from txn_engine import Engine
from txn_engine.log import read_ahead
from txn_engine.types import MarkerMode

ROUND = 60 * MS
SCHEMA = pa.schema([("id", pa.int64())])
PARTITIONS = 4
GROUP = "readers"
T = TypeVar("T")


class RoundStore(ClientStore):
    """A store where every call takes one round, and calls on keys that contain `slow` take a hundred."""

    slow: str | None = None

    def _latency(self, site: str, leg: str) -> int:
        if leg != "there":
            return 1
        return (100 * ROUND if self.slow is not None and self.slow in site else ROUND) - 1


class RoundWorld(World):
    """A world of processes that the test tells from outside what to do next."""

    def store_of(self, process: Process) -> ClientStore:
        return RoundStore(self.shelf, process)

    def rounds(self, work: Callable[[], T], process: Process | None = None) -> tuple[T, int]:
        """What `work` returns, and the rounds that it took in this process, or in a fresh one."""
        process = process or self.new_process("fresh")
        began, found, failed = self.kernel.now, list[T](), len(self.kernel.failures)
        process.start("main", lambda: found.append(work()))
        self.kernel.run(lambda: bool(found) or len(self.kernel.failures) > failed, "the test")
        if not found:
            raise self.kernel.failures[-1][1]
        return found[0], round((self.kernel.now - began) / ROUND)

    def opened(self) -> tuple[Process, Engine]:
        process = self.new_process("opened")
        return process, self.rounds(process.engine, process)[0]

    def fresh(self, work: Callable[[Engine], T]) -> tuple[T, int]:
        """What `work` returns in a fresh process, and the rounds that it took, including those to open the
        engine."""
        process = self.new_process("fresh")
        return self.rounds(lambda: work(process.engine()), process)

    def do(self, work: Callable[[Engine], T]) -> T:
        return self.fresh(work)[0]


@pytest.fixture
def world() -> Iterator[RoundWorld]:
    with simulated():
        made = RoundWorld(7, Knobs(intensity=0.0, skewed_clocks=False))
        made.set_up_store()
        made.do(create)
        yield made
        made.bury()


def create(engine: Engine) -> None:
    engine.admin.create_topic("t", partitions=PARTITIONS, schema=SCHEMA, key="id")


def fill(engine: Engine, entries: int, partitions: int = PARTITIONS) -> None:
    for number in range(partitions):
        log = engine.partition("t", number)
        for _ in range(entries):
            log.append(pa.table({"id": [1, 2, 3]}, schema=SCHEMA))


def snapshot(engine: Engine) -> None:
    for number in range(PARTITIONS):
        engine.logs.get("t", 0, number).write_snapshot()


def plan(engine: Engine) -> int:
    return len(engine.scan("t").files())


def log_end(engine: Engine) -> int:
    return engine.logs.get("t", 0, 0).refresh().log_end_offset


# --- writing ----------------------------------------------------------------------------------------------------


def test_a_plain_append(world: RoundWorld) -> None:
    """A plain append takes three rounds: the upload, together with the question whether the topic still exists,
    then the entry, and then store.json, which says that it went into the store that was opened."""
    process, engine = world.opened()
    log, _ = world.rounds(lambda: engine.partition("t", 0), process)
    records = pa.table({"id": [1]}, schema=SCHEMA)
    world.rounds(lambda: log.append(records), process)
    assert world.rounds(lambda: log.append(records), process)[1] == 3


@pytest.mark.parametrize(("markers", "rounds"), [("inline", 3), ("deferred", 3)])
def test_the_end_of_a_transaction(world: RoundWorld, markers: MarkerMode, rounds: int) -> None:
    """A commit takes three rounds: whether the topics still exist, the decision, and the markers beside the look
    at store.json, which says that the decision went into the store that was opened."""
    process, engine = world.opened()
    producer, _ = world.rounds(lambda: engine.producer(transactional_id="id", markers=markers), process)
    world.rounds(producer.init_transactions, process)

    def write() -> None:
        producer.begin_transaction()
        producer.produce("t", pa.table({"id": list(range(100))}, schema=SCHEMA))
        producer.flush()

    for _ in range(2):
        world.rounds(write, process)
        _, took = world.rounds(producer.commit_transaction, process)
    assert took == rounds


@pytest.mark.parametrize("known", [True, False])
def test_a_fresh_process_initialises_an_id(world: RoundWorld, known: bool) -> None:
    """A fresh process initialises an id in four rounds: store.json, then listings of the coordinator's log
    and of the producer id blocks, then the log's rows or the claim of a block, then the new row.

    If other ids have rows in the same log, the process reads them before it claims a block. In a store without any
    block there is one round more: a listing of the topics says whether the blocks were lost.
    """

    def init(engine: Engine) -> int:
        return engine.coordinator.init_producer_id("id").producer_epoch

    if known:
        world.do(init)
    assert world.fresh(init) == (int(known), 4 if known else 5)


# --- loading a log ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("entries", "rounds"), [(0, 5), (1, 5), (3, 5), (50, 6)])
def test_a_scan_is_planned_without_snapshots(world: RoundWorld, entries: int, rounds: int) -> None:
    """Without snapshots, a fresh process reads store.json, the topic, the listings with the first slots, and
    the entries with the slot that is likely to be the log's end. If there are files, it also reads whether
    the topic's columns have changed meanwhile. If logs are empty, it asks in two rounds whether they always
    were."""
    world.do(lambda engine: fill(engine, entries))
    assert world.fresh(plan) == (entries * PARTITIONS, rounds)


@pytest.mark.parametrize("later", [0, 3])
def test_a_scan_is_planned_from_snapshots(world: RoundWorld, later: int) -> None:
    """With snapshots, a fresh process reads store.json, the topic, the listings, the snapshots with the
    entries after them and the likely end, and whether the columns have changed."""
    world.do(lambda engine: fill(engine, 50))
    world.do(snapshot)
    world.do(lambda engine: fill(engine, later))
    assert world.fresh(plan) == ((50 + later) * PARTITIONS, 5)


def test_a_snapshot_that_no_page_of_the_listing_reaches(
    world: RoundWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the listing's first page does not reach the snapshot, the entries after it are listed while it is
    read, which takes one more round."""
    monkeypatch.setattr(read_ahead, "PAGE_KEYS", 10)
    world.do(lambda engine: fill(engine, 50))
    world.do(snapshot)
    world.do(lambda engine: fill(engine, 3))
    assert world.fresh(plan) == (53 * PARTITIONS, 6)


def test_a_damaged_snapshot_is_passed_over(world: RoundWorld) -> None:
    """If the newest snapshot is damaged, the older one is read instead, while the entries after it are
    listed. The end is looked at twice."""
    world.do(lambda engine: fill(engine, 3))
    world.do(snapshot)
    world.do(lambda engine: fill(engine, 20))
    world.do(snapshot)
    for number in range(PARTITIONS):
        world.shelf.damage(f"topics/t/0/{number}/snapshots/{69:020d}.parquet")
    assert world.fresh(plan) == (23 * PARTITIONS, 8)


def test_a_log_longer_than_what_is_read_ahead(world: RoundWorld) -> None:
    """Gets continue while the first entries are replayed, so two hundred entries take four rounds, 64 at a
    time."""
    world.do(lambda engine: fill(engine, 200, partitions=1))
    assert world.fresh(log_end) == (600, 1 + 1 + 4)


@pytest.mark.parametrize(("entries", "rounds"), [(0, 1), (1, 2), (4, 5), (20, 6)])
def test_a_view_moves_forward(world: RoundWorld, entries: int, rounds: int) -> None:
    """A view moves forward slot by slot at first, because there is usually little new, and then by a
    listing."""
    process, engine = world.opened()
    assert world.rounds(lambda: log_end(engine), process)[0] == 0
    world.do(lambda other: fill(other, entries, partitions=1))
    assert world.rounds(lambda: log_end(engine), process) == (3 * entries, rounds)


# --- consumers --------------------------------------------------------------------------------------------------


def read_and_commit(engine: Engine) -> None:
    consumer = engine.consumer(group_id=GROUP)
    consumer.subscribe(["t"])
    consumer.poll(max_records=7)
    consumer.commit()


def test_a_fresh_process_polls_for_the_first_time(world: RoundWorld) -> None:
    """A fresh process polls for the first time in four rounds: the topic, the listings of its logs and the
    group's, all of these logs, and all data files."""
    world.do(lambda engine: fill(engine, 3))
    world.do(read_and_commit)
    process, engine = world.opened()

    def first_poll() -> int:
        consumer = engine.consumer(group_id=GROUP)
        consumer.subscribe(["t"])
        found = consumer.poll()
        return 0 if found is None else found.num_rows

    assert world.rounds(first_poll, process) == (3 * 3 * PARTITIONS - 7, 4)


@pytest.mark.parametrize(("entries", "rounds"), [(0, 1), (1, 3)])
def test_a_consumer_polls_again(world: RoundWorld, entries: int, rounds: int) -> None:
    """A second poll takes one round to look at each log's end. If there is a new entry, it takes one more for
    the slot after it and one for all data files."""
    process, engine = world.opened()
    consumer = engine.consumer()

    def poll() -> int:
        found = consumer.poll()
        return 0 if found is None else found.num_rows

    world.rounds(lambda: consumer.subscribe(["t"]), process)
    world.rounds(poll, process)
    world.do(lambda other: fill(other, entries))
    assert world.rounds(poll, process) == (3 * entries * PARTITIONS, rounds)


def test_a_group_that_is_ahead_of_its_log_as_it_was_seen(world: RoundWorld) -> None:
    """A poll reads the group's offsets and the logs at the same time. If an offset lies past the end that it
    saw, it looks at the log again before it calls the offset out of range."""
    process, engine = world.opened()
    consumer = engine.consumer(group_id=GROUP, auto_offset_reset="none")
    world.rounds(lambda: consumer.subscribe(["t"]), process)
    assert isinstance(process.store, RoundStore)
    process.store.slow = "__consumer_offsets"
    other = world.new_process("other")

    def write_read_and_commit() -> None:
        engine = other.engine()
        fill(engine, 1)
        reader = engine.consumer(group_id=GROUP)
        reader.subscribe(["t"])
        assert reader.poll() is not None
        reader.commit()

    other.start("main", write_read_and_commit)
    found, rounds = world.rounds(consumer.poll, process)
    assert found is None
    assert rounds > 100
    assert {at.offset for at in consumer.positions().values()} == {3}
