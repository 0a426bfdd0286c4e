"""The objects that a deleted topic has left are removed a day after its tombstone, and no other objects
are."""

from __future__ import annotations

import pytest

from storage import MemoryStore
from tests.engine.conftest import SCHEMA
from tests.maintain.ledgers import START_MS, TOPIC, accounts, commit, new_store, open_engine
from tests.maintain.test_deaths import FAULTS, attempt, faulty
from tests.support.faults import FaultyStore
from tests.support.stores import assert_sound, copy_of
from txn_engine import Engine
from txn_engine.log.objects import encode_json
from txn_engine.maintain.policy import DAY_MS
from txn_engine.testing import ManualClock

DEAD = f"topics/{TOPIC}/0/"


def remade() -> tuple[MemoryStore, ManualClock]:
    """A topic with a snapshot and an added partition that was deleted during a transaction, and then created
    again."""
    store, clock = new_store(), ManualClock(START_MS)
    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id")
        commit(engine, 1)
        engine.admin.snapshot(TOPIC)
        engine.admin.add_partitions_to_topic(TOPIC, 2)
        engine.admin.alter_configs({"retention.ms": DAY_MS}, topic=TOPIC)
        commit(engine, 2, partition=1)
        left = engine.producer(transactional_id="left")
        left.init_transactions()
        left.begin_transaction()
        engine.admin.delete_topic(TOPIC)
        clock.advance(DAY_MS // 2)
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id")
        commit(engine, 3)
    return store, clock


def dead(store: MemoryStore) -> list[str]:
    return [info.key for info in store.list(DEAD)]


def test_a_day_after_the_tombstone() -> None:
    """Until a day after the tombstone nothing is removed, and then everything is. The topic of the same name
    does not change, and another run has nothing to do."""
    store, clock = remade()
    others = {info.key for info in store.list("")} - set(dead(store))
    with open_engine(store, clock) as engine:
        clock.advance(DAY_MS // 2 - 1)
        assert engine.maintenance.remove_deleted_topics().partitions == ()
        assert len(dead(store)) > 6
        clock.advance(1)
        (would,) = engine.maintenance.remove_deleted_topics(dry_run=True).partitions
        assert len(dead(store)) == would.objects
        assert engine.maintenance.remove_deleted_topics().partitions == (would,)
        assert dead(store) == []
        assert {info.key for info in store.list("")} == others
        assert engine.maintenance.remove_deleted_topics().partitions == ()
        assert accounts(engine) == [3]
        assert engine.admin.describe_topic(TOPIC).incarnation == 2
        assert_sound(engine)


def test_one_name_only() -> None:
    """The job can be limited to one topic, deleted or not."""
    store, clock = remade()
    clock.advance(DAY_MS)
    with open_engine(store, clock) as engine:
        engine.admin.create_topic("other", partitions=1)
        engine.admin.delete_topic("other")
        assert engine.maintenance.remove_deleted_topics("other").partitions == ()
        (gone,) = engine.maintenance.remove_deleted_topics(TOPIC).partitions
        assert (gone.topic, gone.incarnation) == (TOPIC, 0)


def test_what_is_not_ours_stays() -> None:
    """Objects with foreign names are never removed."""
    store, clock = remade()
    foreign = [
        f"{DEAD}notes.txt",
        f"{DEAD}0/log/readme",
        f"{DEAD}0/other/{0:020d}.parquet",
        f"{DEAD}partitions/x.json",
    ]
    for key in foreign:
        store.put(key, b"x")
    clock.advance(DAY_MS)
    with open_engine(store, clock) as engine:
        engine.maintenance.remove_deleted_topics()
    assert dead(store) == sorted(foreign)


def test_without_its_tombstone_nothing_goes() -> None:
    """If the object in the tombstone's place says something else or is damaged, nothing of that topic is
    removed."""
    store, clock = remade()
    key = f"topics/{TOPIC}/1.json"
    clock.advance(DAY_MS)
    held = {"topic": TOPIC, "incarnation": 1, "deleted": False, "created_ms": 0}
    with open_engine(store, clock) as engine:
        for changed in ({}, {"deleted": True, "topic": "other"}, {"deleted": True, "incarnation": 7}):
            store.put(key, encode_json({**held, **changed}, "topic"))
            assert engine.maintenance.remove_deleted_topics().partitions == ()
        store.put(key, b"damaged")
        (failure,) = engine.maintenance.remove_deleted_topics().failures
        assert (failure.topic, failure.partition, failure.code) == (TOPIC, -1, "CORRUPT_MESSAGE")
        assert len(dead(store)) > 6


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "taken_after"])
def test_every_deletion(fault: str) -> None:
    """Whichever deletion is the last one or fails once, the next run goes on."""
    made, clock = remade()
    clock.advance(DAY_MS)

    def job(engine: Engine) -> object:
        return engine.maintenance.remove_deleted_topics()

    counted = FaultyStore(copy_of(made))
    with open_engine(counted, clock) as engine:
        counted.calls.clear()
        job(engine)
    deletions = [at for at, (operation, _, _) in enumerate(counted.calls) if operation == "delete"]
    for at in deletions:
        store = copy_of(made)
        attempt(job, faulty(store, fault, at), clock)  # type: ignore[arg-type]
        with open_engine(store, clock) as engine:
            job(engine)
            assert dead(store) == []
            assert accounts(engine) == [3]
            assert_sound(engine)


def test_a_writer_that_slept_in_it() -> None:
    """An entry that a sleeping writer puts into a removed topic does no harm: the new topic does not show it,
    and the next run removes it."""
    store, clock = new_store(), ManualClock(START_MS)
    with open_engine(store, clock) as engine, open_engine(store, clock) as keeper:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id")
        commit(engine, 1)
        log = engine.logs.get(TOPIC, 0, 0)
        end = log.refresh().log_end_offset
        keeper.admin.delete_topic(TOPIC)
        clock.advance(DAY_MS)
        keeper.maintenance.remove_deleted_topics()
        keeper.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id")
        store.put(f"{DEAD}0/log/{end:020d}.parquet", b"what a sleeper put there")
        commit(keeper, 2)
        assert accounts(engine) == accounts(keeper) == [2]
        assert_sound(keeper)
        (gone,) = keeper.maintenance.remove_deleted_topics().partitions
        assert (gone.objects, dead(store)) == (1, [])
