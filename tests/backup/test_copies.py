"""Two copies of one store have one id, until one of them gets an id of its own. Backups of both in one place are
refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from storage import LocalStore, MemoryStore, ObjectStore
from tests.backup.conftest import fresh_store, has_committed, load, opened, places_in, restored
from tests.support.faults import FaultyStore
from tests.support.kills import Death, ProcessDiedError
from tests.support.refusals import refused
from tests.support.stores import accounts_in, assert_sound, copy_of
from txn_engine import AddColumn, Engine, connect
from txn_engine.backup import restore
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    InconsistentClusterIdError,
    InvalidRequestError,
)
from txn_engine.log.objects import Objects
from txn_engine.log.store_config import read_store_config
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock


def copied(store: ObjectStore) -> MemoryStore:
    return copy_of(store, fresh_store())


def new_id(store: ObjectStore, clock: ManualClock) -> str:
    with opened(store, clock) as engine:
        return engine.take_new_id(execute=True, watch_ms=0).store_id


def id_of(store: ObjectStore) -> str | None:
    config = read_store_config(Objects(store))
    return None if config is None else config.store_id


@pytest.mark.parametrize("first", ["the original", "the copy"])
def test_two_copies_in_one_place(engine: Engine, place: MemoryStore, clock: ManualClock, first: str) -> None:
    """Once one of two copies has backed up, the other one is refused in that place. The backup stays as it is."""
    load(engine, "one", 1)
    engine.backup(place)
    with opened(copied(engine.store), clock) as copy:
        one, other = (engine, copy) if first == "the original" else (copy, engine)
        load(one, "two", 2)
        load(other, "another two", 3)
        one.backup(place)
        for _ in range(2):
            with refused(InvalidRequestError, Reason.CONTRADICTS_EARLIER_BACKUP):
                other.backup(place)
        load(one, "three", 4)
        one.backup(place)
        with restored(place, clock) as again:
            assert places_in(again) == places_in(one)


def test_a_copy_that_has_made_cuts_of_the_same_numbers(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """That both copies have a cut of the same number tells nothing: the claims to it differ."""
    load(engine, "one", 1)
    with opened(copied(engine.store), clock) as copy:
        made = engine.backup(place)
        assert copy.cut().number == made.cut
        with refused(InvalidRequestError, Reason.CONTRADICTS_EARLIER_BACKUP):
            copy.backup(place)


def test_an_object_that_contradicts_an_earlier_backup(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A topic's object that an earlier backup has otherwise is named and refuses the backup."""
    load(engine, "one", 1)
    copy = copied(engine.store)
    engine.admin.alter_configs({"retention.ms": 7_000}, topic="payments")
    engine.backup(place)
    key = "topics/payments/0/changes/00000000000000000000.json"
    with opened(copy, clock) as other:
        other.admin.alter_configs({"retention.ms": 8_000}, topic="payments")
    engine.store.put(key, copy.get(key))
    with (
        opened(engine.store, clock) as again,
        pytest.raises(
            CorruptObjectError,
            check=lambda error: key in str(error.place) and error.reason is Reason.CONTRADICTS_EARLIER_BACKUP,
        ),
    ):
        again.backup(place)


def test_a_copy_becomes_a_store_of_its_own(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """It has all that the original has, cuts and published tables too, and goes on by itself."""
    load(engine, "one", 1)
    cut = engine.cut()
    engine.tables.publish("payments", "delta")
    engine.backup(place)
    copy = copied(engine.store)
    former = id_of(copy)
    made = new_id(copy, clock)
    assert made == id_of(copy) != former == id_of(engine.store)
    with opened(copy, clock) as other:
        assert has_committed(other, "loader", "one") == [True]
        assert other.scan("payments", cut=cut.number).to_table().num_rows == 2
        load(other, "two", 2)
        other.tables.publish("payments", "delta")
        assert_sound(other)
        with refused(InvalidRequestError, Reason.PLACE_OF_ANOTHER_STORE):
            other.backup(place)
        elsewhere = fresh_store()
        other.backup(elsewhere)
        with restored(elsewhere, clock) as again:
            assert accounts_in(again) == [1, 1, 2, 2]
    load(engine, "three", 3)
    engine.backup(place)
    assert accounts_in(engine) == [1, 1, 3, 3]


def test_the_delta_table_of_a_copy_keeps_its_id(engine: Engine, clock: ManualClock) -> None:
    """Whoever follows the table finds the id that it began with, also after a change of its columns."""
    load(engine, "one", 1)
    engine.tables.publish("payments", "delta")
    copy = copied(engine.store)
    new_id(copy, clock)
    with opened(copy, clock) as other:
        other.admin.alter_topic("payments", [AddColumn(pa.field("note", pa.string()))])
        load(other, "two", 2)
        other.tables.publish("payments", "delta")
        keys = [info.key for info in copy.list("topics/payments/0/_delta_log/") if info.key.endswith(".json")]
    lines = [json.loads(line) for key in keys for line in copy.get(key, max_bytes=1 << 20).splitlines()]
    assert len({line["metaData"]["id"] for line in lines if "metaData" in line}) == 1
    assert sum("metaData" in line for line in lines) == 2


def test_a_copy_of_a_restored_store(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """A restored store, which is in a folder of its place, is copied and gets a new id like any other."""
    load(engine, "one", 1)
    engine.backup(place)
    target = fresh_store()
    restore(place, target, clock=clock)
    copy = copied(target)
    assert new_id(copy, clock) != id_of(target)
    with opened(copy, clock) as other:
        load(other, "two", 2)
        assert accounts_in(other) == [1, 1, 2, 2]
        assert_sound(other)


def test_backups_below_a_restored_store(engine: Engine, place: MemoryStore, tmp_path: Path) -> None:
    """A restored store is in a folder of its place. Its backups belong nowhere in that place."""
    load(engine, "one", 1)
    engine.backup(place)
    restore(place, LocalStore(tmp_path / "ledger"))
    with connect(f"file://{tmp_path}/ledger") as again:
        for inside in ("backups", "restored/backups"):
            with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
                again.backup(LocalStore(tmp_path / "ledger").below(inside))
        assert again.url == f"file://{tmp_path}/ledger"


def test_who_has_the_copy_open_is_refused(engine: Engine, clock: ManualClock) -> None:
    """A process that had opened the copy before it got its id acknowledges nothing there any more."""
    copy = copied(engine.store)
    with opened(copy, clock) as before:
        load(before, "one", 1)
        new_id(copy, clock)
        with refused(InconsistentClusterIdError, Reason.STORE_REPLACED):
            load(before, "two", 2)


def test_somebody_writes_to_it(engine: Engine, clock: ManualClock) -> None:
    """A store whose log grows while it is watched gets no new id."""
    store = engine.store
    with opened(store, clock) as other:
        former = id_of(store)
        asked = iter(range(1, 100))
        look = other.look_at_everything

        def looked() -> object:
            load(engine, f"run-{next(asked)}", 1)
            return look()

        other.look_at_everything = looked  # type: ignore[method-assign, assignment]
        with refused(ConcurrentTransactionsError, Reason.STORE_IN_USE):
            other.take_new_id(execute=True, watch_ms=0)
        assert id_of(store) == former


def test_only_looked_at(engine: Engine, clock: ManualClock) -> None:
    """Without `execute` nothing is written."""
    former = id_of(engine.store)
    assert not engine.take_new_id(watch_ms=0).executed
    assert id_of(engine.store) == former
    load(engine, "one", 1)


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("blow", ["dies before", "dies after"])
def test_killed_while_it_gets_its_id(
    engine: Engine, place: MemoryStore, clock: ManualClock, blow: str, is_restored: bool
) -> None:
    """Killed at any of its puts, the copy is the store that it was, or another one. Run again it is another one."""
    load(engine, "one", 1)
    source: ObjectStore = engine.store
    if is_restored:
        engine.backup(place)
        source = fresh_store()
        restore(place, source, clock=clock)
    former = id_of(source)
    for at in range(3):
        copy = copied(source)
        death = Death(blow, at, operations=("put",))  # type: ignore[arg-type]
        with opened(FaultyStore(copy, decide=death.client(), error=death.error), clock) as other:
            try:
                other.take_new_id(execute=True, watch_ms=0)
            except ProcessDiedError:
                assert death.happened
        with opened(copy, clock) as again:
            assert_sound(again)
        assert new_id(copy, clock) not in (former, "")
        with opened(copy, clock) as again:
            load(again, "two", 2)
            assert accounts_in(again) == [1, 1, 2, 2]
            assert_sound(again)
        if not death.happened:
            return
    raise AssertionError("it never came to its end")
