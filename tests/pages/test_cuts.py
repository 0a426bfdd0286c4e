"""The Cuts pages: which cuts exist, what is inside them, and how far the store has moved on since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages import busy_store
from txn_engine import Engine, connect
from txn_engine.log.cut_format import Part, cut_key
from txn_engine.maintain import MaintenancePolicy
from txn_engine.testing import ManualClock
from txn_engine_airflow.pages.cuts_seen import (
    CUTS_MAX,
    PARTITIONS_A_LOOK,
    CutReadings,
    SeenCuts,
    look_at_cuts,
)
from txn_engine_airflow.pages.moment import Moment, look
from txn_engine_airflow.pages.views_cuts import CutDetail, CutLine, describe_cut, list_cuts

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    with connect(f"file://{tmp_path}/ledger", clock=clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=busy_store.SCHEMA)
        engine.admin.create_topic("balances", partitions=1, schema=busy_store.SCHEMA)
        yield engine


def seen(engine: Engine) -> Moment:
    return look(engine, engine.logs.topics.survey_each(), look_at_cuts(engine, SeenCuts()))


def lines(engine: Engine) -> list[CutLine]:
    return list(list_cuts(seen(engine)).cuts)


def detail(engine: Engine, number: int) -> CutDetail:
    readings = CutReadings(lambda: 0)
    cut = engine.find_cut(number)
    readings.ask(cut)
    readings.follow(engine)
    return describe_cut(seen(engine), cut, readings.ask(cut))


def load(engine: Engine, count: int, *, partition: int = 0, topic: str = "payments") -> None:
    engine.partition(topic, partition).append(busy_store.records(0, count))


def test_the_newest_come_first_with_how_far_the_store_has_gone_on(engine: Engine, clock: ManualClock) -> None:
    load(engine, 5)
    engine.cut(keep_ms=DAY_MS)
    load(engine, 3)
    load(engine, 2, topic="balances")
    engine.cut(["balances", "payments"])
    load(engine, 7, partition=1)
    newest, older = lines(engine)
    assert (newest.number, newest.state, newest.behind, newest.expires_ms) == (1, "cut", 7, -1)
    assert (newest.every_topic, newest.topics, newest.partitions) == (False, ("balances", "payments"), 3)
    assert (older.number, older.behind, older.every_topic) == (0, 12, True)
    assert (older.created_ms, older.expires_ms) == (clock(), clock() + DAY_MS)
    clock.advance(DAY_MS)
    assert [line.state for line in lines(engine)] == ["cut", "expired"]


def test_one_that_is_being_made_is_shown_and_one_that_was_not_made_is_not(
    engine: Engine, clock: ManualClock
) -> None:
    engine._cuts.give_up(engine._cuts.claim())
    engine._cuts.claim()
    (line,) = lines(engine)
    assert (line.number, line.state, line.created_ms, line.behind) == (1, "open", clock(), -1)


def test_a_damaged_cut_is_named_and_the_others_are_shown(engine: Engine) -> None:
    for _ in range(2):
        engine.cut()
    engine.store.put(cut_key(1, Part.CUT), b"{}")
    with connect(engine.url) as another:
        damaged, sound = lines(another)
    assert (damaged.number, damaged.state, damaged.partitions) == (1, "damaged", -1)
    assert cut_key(1, Part.CUT) in damaged.error
    assert (sound.number, sound.state, sound.behind) == (0, "cut", 0)


def test_a_store_that_refuses_its_cuts_shows_all_else(engine: Engine) -> None:
    (Path(engine.url.removeprefix("file://")) / "cuts").write_text("no folder")
    found = list_cuts(seen(engine))
    assert found.cuts == ()
    assert found.trouble
    assert set(seen(engine).topics) == {"balances", "payments"}


def test_a_topic_that_is_gone_or_has_grown_since(engine: Engine) -> None:
    """Later partitions are outside the cut. A deleted topic no longer counts, and a new topic of the same
    name is another one."""
    load(engine, 4)
    load(engine, 4, topic="balances")
    engine.cut()
    engine.admin.add_partitions_to_topic("payments", 3)
    load(engine, 6, partition=2)
    engine.admin.delete_topic("balances")
    found = detail(engine, 0)
    assert [(at.topic, at.behind, at.is_deleted, at.added) for at in found.topics] == [
        ("balances", -1, True, 0),
        ("payments", 6, False, 1),
    ]
    assert [(at.topic, at.is_deleted, at.last_stable) for at in found.partitions] == [
        ("balances", True, -1),
        ("payments", False, 4),
        ("payments", False, 0),
    ]
    assert lines(engine)[0].behind == found.line.behind == 6
    assert [at.records for at in found.topics] == [4, 4]
    engine.admin.create_topic("balances", partitions=1, schema=busy_store.SCHEMA)
    load(engine, 9, topic="balances")
    assert lines(engine)[0].behind == detail(engine, 0).line.behind == 6


def test_what_is_inside_is_counted_as_it_was(engine: Engine, clock: ManualClock) -> None:
    """Compaction, retention and later records change nothing, and aborted records are not inside."""
    for _ in range(3):
        load(engine, 4)
    with engine.producer(transactional_id="wrong") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", busy_store.records(0, 30), partition=0).result()
        producer.abort_transaction()
    engine.cut()
    before = detail(engine, 0)
    assert before.is_read
    assert [(at.offset, at.records, at.log_start) for at in before.partitions] == [
        (0, 0, 0),
        (43, 12, 0),
        (0, 0, 0),
    ]
    assert (before.records, before.is_exact) == (12, True)
    load(engine, 5)
    clock.advance(2 * DAY_MS)
    engine.admin.snapshot()
    engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
    clock.advance(2 * DAY_MS)
    engine.maintenance.clean()
    after = detail(engine, 0)
    assert (after.records, [at.records for at in after.partitions]) == (12, [0, 12, 0])
    assert after.line.behind >= 5


def test_a_partition_whose_snapshot_is_gone_is_named(engine: Engine) -> None:
    load(engine, 5)
    load(engine, 2, partition=1)
    cut = engine.cut()
    (snapshot,) = [info.key for info in engine.store.list("topics/payments/0/0/snapshots/")]
    engine.store.delete(snapshot)
    found = detail(engine, cut.number)
    (damage,) = found.damage
    assert (damage.topic, damage.partition) == ("payments", 0)
    assert snapshot in damage.error
    assert found.records == 2


def test_a_partition_that_cannot_be_read_now_leaves_what_is_behind_unknown(engine: Engine) -> None:
    load(engine, 5)
    load(engine, 5, topic="balances")
    engine.cut()
    load(engine, 1)
    _, entry = [info.key for info in engine.store.list("topics/payments/0/0/log/")]
    engine.store.put(entry, b"no entry")
    with connect(engine.url) as another:
        assert lines(another)[0].behind == -1
        assert [at.behind for at in detail(another, 0).partitions] == [0, -1, 0]


def test_many_cuts_and_partitions_are_read_a_few_in_a_look(engine: Engine) -> None:
    """At most a hundred cuts are read, each once. A look reads a limited part of the cut that was asked for last."""
    first = engine.cut()
    for _ in range(CUTS_MAX + 2):
        engine._cuts.settle(replace(first, number=engine._cuts.claim()))
    cuts = look_at_cuts(engine, SeenCuts())
    assert [each.number.number for each in cuts.newest] == list(range(CUTS_MAX + 2, 2, -1))
    assert cuts.older == 3
    again = look_at_cuts(engine, cuts)
    assert all(one is other for one, other in zip(cuts.newest, again.newest, strict=True))

    engine.admin.create_topic("wide", partitions=PARTITIONS_A_LOOK + 5, schema=busy_store.SCHEMA)
    earlier, cut = engine.cut(["wide"]), engine.cut(["wide"])
    time = ManualClock()
    readings = CutReadings(time)
    assert readings.ask(earlier) == {}
    time.advance(1)
    assert readings.ask(cut) == {}
    readings.follow(engine)
    assert (len(readings.ask(earlier)), len(readings.ask(cut))) == (0, PARTITIONS_A_LOOK)
    readings.follow(engine)
    readings.follow(engine)
    assert {len(readings.ask(each)) for each in (earlier, cut)} == {PARTITIONS_A_LOOK + 5}
