"""An erasure also covers the leftovers and the backups of a topic that was deleted, or deleted and created
again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from storage import MemoryStore
from tests.erasing.dying import attempt, erase
from tests.erasing.persons import (
    PERSON,
    SCHEMA,
    TOPIC,
    WHERE,
    commit,
    digests,
    objects_with,
    open_engine,
    rows,
    seen,
    upload,
    without_person,
)
from tests.loading.refusals import because
from tests.support.faults import FaultyStore
from tests.support.kills import ProcessDiedError, died
from tests.support.stores import assert_sound, copy_of
from txn_engine import AddColumn, Engine
from txn_engine.errors import InvalidRequestError, UnknownTopicOrPartitionError
from txn_engine.maintain.policy import DAY_MS
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

OTHER = 7
"""An account of which the present topic alone has records."""


def _life(engine: Engine, *accounts: int) -> None:
    """A topic with tables, a cut, an aborted transaction and an upload, first with one partition and then
    with two."""
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
    commit(engine, *accounts)
    commit(engine, *accounts, ends="abort")
    engine.admin.add_partitions_to_topic(TOPIC, 2)
    commit(engine, *accounts, partition=1)
    engine.cut()
    engine.tables.publish(TOPIC)
    upload(engine, *accounts)


def _made_again() -> tuple[MemoryStore, ManualClock]:
    """Three incarnations. The first one and the present one hold records of the person."""
    store, clock = MemoryStore(), ManualClock()
    with open_engine(store, clock) as engine:
        _life(engine, 1, PERSON)
        engine.admin.delete_topic(TOPIC)
        _life(engine, 2, 3)
        engine.admin.delete_topic(TOPIC)
        _life(engine, PERSON, OTHER)
    return store, clock


def _of(store: MemoryStore, incarnation: int) -> list[str]:
    return [info.key for info in store.list(f"topics/{TOPIC}/{incarnation}")]


def test_former_incarnations_that_hold_any_go_whole() -> None:
    """A former incarnation that holds a record of the person goes as a whole at once, whatever cuts name it.
    One without any stays for clean-up, and the present one stays."""
    store, clock = _made_again()
    with open_engine(store, clock) as engine:
        before, others = seen(engine), digests(engine, None, 4, without=True)
        second = _of(store, 2)
        look = engine.erase(TOPIC, WHERE)
        assert [(each.incarnation, each.records, each.cuts) for each in look.former] == [
            (0, -1, (0, 1)),
            (2, 0, ()),
        ]
        assert len(_of(store, 0)) > 8
        report = erase(engine)
        assert report.is_complete
        assert [each.removed > 8 for each in report.former] == [True, False]
        assert objects_with(store) == []
        assert _of(store, 0) == []
        assert _of(store, 2) == second
        assert seen(engine) == without_person(before)
        assert digests(engine, None, 4) == others
        assert_sound(engine)
        assert [each.incarnation for each in erase(engine).former] == [2]


def test_records_of_a_former_incarnation_are_counted() -> None:
    """If the log names every file of a former incarnation, the report counts its committed and its aborted
    records."""
    with open_engine(MemoryStore(), ManualClock()) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        commit(engine, 1, PERSON, PERSON)
        commit(engine, PERSON, ends="abort")
        engine.admin.delete_topic(TOPIC)
        (found,) = engine.erase(TOPIC, WHERE).former
        assert (found.incarnation, found.records, found.removed) == (0, 3, 0)


def test_a_topic_that_was_deleted_and_not_made_again() -> None:
    """A deleted topic is searched by its columns. Once nothing is left the answer says so, without an
    error."""
    store, clock = MemoryStore(), ManualClock()
    with open_engine(store, clock) as engine:
        _life(engine, 1, PERSON)
        engine.admin.alter_topic(TOPIC, AddColumn(pa.field("city", pa.string())))
        engine.admin.delete_topic(TOPIC)
        with pytest.raises(InvalidRequestError, check=because(Reason.UNKNOWN_COLUMN)):
            engine.erase(TOPIC, "town = 'Ulm'", execute=True)
        with pytest.raises(InvalidRequestError, check=because(Reason.CONDITION_TAKES_ALL)):
            engine.erase(TOPIC, "true", execute=True)
        assert len(objects_with(store)) > 2
        report = engine.erase(TOPIC, f"{WHERE} AND city IS NULL", execute=True)
        assert (report.is_complete, report.records, len(report.former)) == (True, 0, 1)
        assert _of(store, 0) == objects_with(store) == []
        assert erase(engine).former == ()
        assert_sound(engine)
        with pytest.raises(UnknownTopicOrPartitionError):
            engine.erase("nobody", WHERE)


def test_one_that_cannot_be_searched_goes_too() -> None:
    """A former incarnation that has other columns or has lost a file goes too, because nobody can say whether
    it holds the person."""
    for damaged in (False, True):
        store, clock = MemoryStore(), ManualClock()
        with open_engine(store, clock) as engine:
            schema = SCHEMA if damaged else pa.schema([("number", pa.int64())])
            engine.admin.create_topic(TOPIC, partitions=1, schema=schema)
            engine.partition(TOPIC, 0).append(rows(1) if damaged else pa.table({"number": [1]}))
            engine.admin.delete_topic(TOPIC)
            engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
            commit(engine, 1, PERSON)
            if damaged:
                store.delete(next(key for key in _of(store, 0) if "/data/" in key))
            assert [each.records for each in engine.erase(TOPIC, WHERE).former] == [-1]
            assert erase(engine).is_complete
            assert _of(store, 0) == []


def test_one_that_was_deleted_while_records_were_erased() -> None:
    """A topic was deleted while an erasure ran, so its log calls files erased that still exist. The next
    erasure removes the incarnation as a whole."""
    store, clock = MemoryStore(), ManualClock()
    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        commit(engine, 1, PERSON)
    dying = FaultyStore(store, error=died)
    dying.decide = lambda operation, key, _: "before" if operation == "delete" and "/data/" in key else None
    with open_engine(dying, clock) as engine, pytest.raises(ProcessDiedError):
        erase(engine)
    with open_engine(store, clock) as engine:
        engine.admin.delete_topic(TOPIC)
        assert len(objects_with(store)) == 1
        assert [each.records for each in engine.erase(TOPIC, WHERE).former] == [-1]
        assert erase(engine).is_complete
        assert _of(store, 0) == objects_with(store) == []


def test_backups_of_a_former_incarnation_are_named() -> None:
    """The backups are named even if the store has nothing left of the incarnation."""
    store, clock, place = MemoryStore(), ManualClock(), MemoryStore("backups-of-former")
    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        commit(engine, 1, PERSON, PERSON)
        engine.backup(place)
        engine.admin.delete_topic(TOPIC)
        for is_made_again in (False, True):
            if is_made_again:
                engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
                commit(engine, 1)
            report = engine.erase(TOPIC, WHERE, execute=True, backups=place)
            (held,) = report.still_held
            assert held.place.startswith(f"backup 0 in {place.url}")
            assert held.records == 2
            assert objects_with(store) == []
            clock.advance(2 * DAY_MS)
            engine.maintenance.remove_deleted_topics()


@pytest.mark.shard("kills")
@pytest.mark.parametrize(
    ("fault", "step"),
    [("dies after", 60), ("dies after", 30), ("dies before", 11), ("dies after", 6)],
)
def test_every_write(fault: str, step: int) -> None:
    """If an erasure is cut off at any write, the next one removes the rest."""
    made, clock = _made_again()
    with open_engine(copy_of(made), clock) as engine:
        others = digests(engine, None, 4, without=True)
    for at in range(0, attempt(copy_of(made), clock()), step):
        store = copy_of(made)
        attempt(store, clock(), fault, at)
        with open_engine(store, clock) as engine:
            assert erase(engine).is_complete
            assert objects_with(store) == []
            assert digests(engine, None, 4) == others
            assert_sound(engine)
