"""A store that is deleted and restored under a live process: at whichever call of the process that happens, nothing is
acknowledged that went into the store that is there now, and that store is as it was restored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pyarrow as pa
import pytest

from storage import MemoryStore, ObjectStore
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.internal import FEW_INTERNAL
from tests.support.refusals import refused
from tests.support.stores import accounts_in, assert_sound, copy_of
from txn_engine import Engine
from txn_engine.backup import restore
from txn_engine.clock import Waiting
from txn_engine.errors import (
    CorruptObjectError,
    InconsistentClusterIdError,
    InvalidRequestError,
    OutcomeUnknownError,
    TxnEngineError,
)
from txn_engine.log.store_identity import STORE_KEY
from txn_engine.maintain import MaintenancePolicy
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

_NUMBERS = count()
SCHEMA = pa.schema([("account_id", pa.int64())])


def payments(*accounts: int) -> pa.Table:
    return pa.table({"account_id": list(accounts)}, schema=SCHEMA)


def opened(store: ObjectStore, clock: ManualClock) -> Engine:
    return Engine(store, clock=clock, pause=no_pause, configs=FEW_INTERNAL)


def load(engine: Engine, run_id: str, *accounts: int) -> None:
    with engine.producer(transactional_id="loader") as producer:
        producer.init_transactions()
        with producer.transaction(run_id=run_id):
            for partition in (0, 1):
                producer.produce("payments", payments(*accounts), partition=partition)


class Replaced:
    """A store in memory that is deleted at one of a process's calls, and restored from a backup of before.

    before: the store as it was just before that.
    """

    def __init__(self, clock: ManualClock, store: MemoryStore, place: MemoryStore) -> None:
        self.clock = clock
        self.store = copy_of(store, MemoryStore(f"replaced-{next(_NUMBERS)}"))
        self._place = place
        self.before: MemoryStore | None = None
        self._calls_left = -1

    def replace(self) -> None:
        """Delete the store and restore the backup in its place."""
        self.before = copy_of(self.store, MemoryStore(f"before-{next(_NUMBERS)}"))
        while True:
            self.delete()
            with suppress(InvalidRequestError):  # a thread of the process has put something between the two
                restore(self._place, self.store, clock=self.clock, pause=no_pause)
                return

    def delete(self) -> None:
        for info in list(self.store.list("")):
            self.store.delete(info.key)

    def client(self) -> ObjectStore:
        """The store as a process sees it that may be armed."""
        return FaultyStore(self.store, decide=self._decide)

    def arm(self, calls: int) -> None:
        """Replace it once the process has made so many calls more."""
        self._calls_left = calls

    def _decide(self, _operation: Operation, _key: str, _number: int) -> Fault | None:
        self._calls_left -= 1
        if self._calls_left == -1 and self.before is None:
            self.replace()
        return None

    def assert_as_restored(self) -> None:
        with opened(self.store, self.clock) as engine:
            assert accounts_in(engine) == [1, 1]
            load(engine, "one more", 9)
            assert accounts_in(engine) == [1, 1, 9, 9]
            assert_sound(engine)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world_of(clock: ManualClock) -> Callable[[], Replaced]:
    """Makes stores that are alike: what was loaded since the backup is gone once they are replaced."""
    store, place = (MemoryStore(f"replaced-{next(_NUMBERS)}") for _ in range(2))
    with opened(store, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA)
        load(engine, "one", 1)
        with engine.consumer(group_id="sums") as consumer:
            consumer.subscribe(["payments"])
            consumer.poll()
            consumer.commit()
        engine.backup(place)
        for account in (2, 3, 4):
            load(engine, f"later-{account}", account)
    return lambda: Replaced(clock, store, place)


@pytest.fixture
def world(world_of: Callable[[], Replaced]) -> Replaced:
    return world_of()


# --- what a process does, and whether the store has it that it was meant for ------------------------------------------


def commits(engine: Engine) -> Callable[[Engine], bool]:
    load(engine, "mine", 7)
    return lambda before: accounts_in(before).count(7) == 2 or has_committed(before, "mine")


def defers_markers(engine: Engine) -> Callable[[Engine], bool]:
    with engine.producer(transactional_id="loader", markers="deferred") as producer:
        producer.init_transactions()
        with producer.transaction(run_id="mine"):
            producer.produce("payments", payments(7), partition=0)
    return lambda before: has_committed(before, "mine")


def has_committed(engine: Engine, run_id: str) -> bool:
    with engine.producer(transactional_id="loader") as producer:
        producer.init_transactions()
        return producer.has_committed(run_id) is True


def produces(engine: Engine) -> Callable[[Engine], bool]:
    with engine.producer() as producer:
        producer.produce("payments", payments(7), partition=0).result()
    return lambda before: 7 in accounts_in(before)


def appends(engine: Engine) -> Callable[[Engine], bool]:
    engine.partition("payments", 1).append(payments(7))
    return lambda before: 7 in accounts_in(before)


def commits_offsets(engine: Engine) -> Callable[[Engine], bool]:
    with engine.consumer(group_id="sums") as consumer:
        consumer.subscribe(["payments"])
        consumer.poll()
        positions = consumer.positions()
        consumer.commit()

    def is_there(before: Engine) -> bool:
        with before.consumer(group_id="sums") as again:
            held = again.committed(list(positions))
        return {tp: at.offset for tp, at in held.items()} == positions

    return is_there


def asks_for_a_run(engine: Engine) -> Callable[[Engine], bool]:
    with engine.producer(transactional_id="loader") as producer:
        producer.init_transactions()
        answer = producer.has_committed("later-4")
    return lambda before: has_committed(before, "later-4") is answer


def makes_a_topic(engine: Engine) -> Callable[[Engine], bool]:
    engine.admin.create_topic("refunds", schema=SCHEMA)
    return lambda before: "refunds" in before.admin.list_topics()


def makes_a_cut(engine: Engine) -> Callable[[Engine], bool]:
    made = engine.cut()
    return lambda before: made.number in [each.number for each in before.cuts()]


def changes_a_setting(engine: Engine) -> Callable[[Engine], bool]:
    engine.admin.alter_configs({"retention.ms": 7_000}, topic="payments")
    return lambda before: before.admin.describe_topic("payments").retention_ms == 7_000


def maintains(engine: Engine) -> Callable[[Engine], bool]:
    eager = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)
    done = engine.maintenance
    reports = [done.compact(policy=eager), done.retain(policy=eager), done.seal(), done.clean(policy=eager)]
    for report in reports:
        for failure in report.failures:
            assert failure.code in ("INCONSISTENT_CLUSTER_ID", "OVERTAKEN"), failure
    return lambda before: len(accounts_in(before)) == 8


WORK = [
    commits,
    defers_markers,
    produces,
    appends,
    commits_offsets,
    asks_for_a_run,
    makes_a_topic,
    makes_a_cut,
    changes_a_setting,
    maintains,
]


@pytest.mark.parametrize(
    "work",
    in_shard(
        "kills", [pytest.param(work, id=work.__name__) for work in WORK], keep=["produces", "commits_offsets"]
    ),
)
def test_a_store_replaced_at_any_call(
    clock: ManualClock, world_of: Callable[[], Replaced], work: Callable[[Engine], object]
) -> None:
    """Whichever call of a process the store is replaced at, what the process is told of as done was done in the store
    that it had opened. Later calls of the process are refused, and the restored store is sound."""
    at = 0
    while True:
        world = world_of()
        with opened(world.client(), clock) as engine:
            engine.scan("payments").files()  # the process knows its logs
            world.arm(at)
            told: object = None
            with suppress(TxnEngineError):
                told = work(engine)
            if world.before is None:
                assert told is not None
                break
            if callable(told):
                with opened(world.before, clock) as before:
                    assert told(before), (
                        f"acknowledged, and only in the store that was restored, at call {at}"
                    )
            with pytest.raises(InconsistentClusterIdError):
                engine.partition("payments", 0).append(payments(8))
        world.assert_as_restored()
        at += 1
    assert at > 3, "the store was never replaced under the work"


# --- what is told ---------------------------------------------------------------------------------------------------


def test_another_store(clock: ManualClock, world: Replaced) -> None:
    """The error says that another store is there. It finishes the producer, and each later call raises it again."""
    with opened(world.store, clock) as engine, engine.producer(transactional_id="loader") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", payments(7), partition=0).result()
        world.replace()
        for _ in range(2):
            with refused(InconsistentClusterIdError, Reason.STORE_REPLACED):
                producer.commit_transaction()
        with refused(InconsistentClusterIdError, Reason.STORE_REPLACED):
            engine.admin.create_topic("refunds", schema=SCHEMA)


def test_a_store_that_is_gone(clock: ManualClock, world: Replaced) -> None:
    """A store that was deleted is told as such, and its process writes nothing into the empty place after five
    seconds."""
    with opened(world.store, clock) as engine:
        log = engine.partition("payments", 0)
        world.delete()
        with refused(InconsistentClusterIdError, Reason.STORE_DELETED):
            log.append(payments(7))
        written = [info.key for info in world.store.list("")]
        with refused(InconsistentClusterIdError, Reason.STORE_DELETED):
            log.append(payments(7))
        assert [info.key for info in world.store.list("")] == written


def test_who_only_waits_notices(clock: ManualClock, world: Replaced) -> None:
    """A consumer that waits for records, and a topic that is looked for, notice within five seconds."""
    waiting = Waiting(monotonic_ms=clock, pause_ms=clock.advance)
    with (
        Engine(world.store, clock=clock, pause=no_pause, waiting=waiting) as engine,
        engine.consumer(group_id="others") as consumer,
    ):
        consumer.subscribe(["payments"])
        while consumer.poll() is not None:
            pass
        world.replace()
        with refused(InconsistentClusterIdError, Reason.STORE_REPLACED):
            for _ in range(6):
                consumer.poll()
                clock.advance(1_000)
        with refused(InconsistentClusterIdError, Reason.STORE_REPLACED):
            engine.scan("refunds")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"store_id": "x"'])
def test_a_damaged_store_json(clock: ManualClock, world: Replaced, data: bytes) -> None:
    """While store.json is damaged the outcome of a write is unknown. Once it is right again, work goes on."""
    whole = world.store.get(STORE_KEY)
    with opened(world.store, clock) as engine:
        log = engine.partition("payments", 0)
        log.append(payments(6))
        world.store.put(STORE_KEY, data)
        with refused(OutcomeUnknownError, Reason.STORE_NOT_CONFIRMED):
            log.append(payments(7))
        with engine.producer(transactional_id="loader") as producer:
            producer.init_transactions()
            with pytest.raises(CorruptObjectError):
                producer.has_committed("one")
        world.store.put(STORE_KEY, whole)
        log.append(payments(8))
        assert accounts_in(engine) == [1, 1, 2, 2, 3, 3, 4, 4, 6, 7, 8]
