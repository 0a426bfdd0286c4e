"""Producer expiry: which producers are forgotten, which are not, and what happens to one that comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.conftest import SCHEMA, payments
from tests.maintain.ledgers import TOPIC, accounts, new_store, open_engine
from tests.support.stores import assert_sound
from txn_engine import Engine
from txn_engine.maintain.policy import DAY_MS
from txn_engine.partition_log import PartitionLog
from txn_engine.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    with open_engine(new_store(), clock) as opened:
        opened.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id")
        yield opened


def append(log: PartitionLog, producer_id: int, sequence: int, *, transactional: bool = False) -> int:
    done = log.append(
        payments(sequence), producer_id=producer_id, producer_epoch=5, base_sequence=sequence,
        is_transactional=transactional,
    )  # fmt: skip
    return done.base_offset


def known(log: PartitionLog) -> list[int]:
    return [producer.producer_id for producer in log.producers()]


def test_open_transactions_do_not_expire(engine: Engine, clock: ManualClock) -> None:
    """PSM-16: a producer with an open transaction does not expire, and the last stable offset stays where its
    transaction begins."""
    log = engine.partition(TOPIC, 0)
    first = append(log, 1, 0, transactional=True)
    clock.advance(DAY_MS + 1)
    assert engine.maintenance.expire_producers(dry_run=True).partitions == ()
    assert engine.maintenance.expire_producers().partitions == ()
    assert known(log) == [1]
    assert log.last_stable_offset == first


def test_idle_producers_are_forgotten(engine: Engine, clock: ManualClock) -> None:
    """PSM-17: a producer that was idle for the limit is forgotten. A batch with its next sequence is then
    accepted like one of an unknown producer."""
    log = engine.partition(TOPIC, 0)
    append(log, 1, 0)
    clock.advance(DAY_MS + 1)
    (report,) = engine.maintenance.expire_producers(TOPIC).partitions
    assert (report.topic, report.partition, report.producer_ids) == (TOPIC, 0, (1,))
    assert known(log) == []
    append(log, 1, 1)
    (producer,) = log.producers()
    assert (producer.producer_id, producer.last_sequence) == (1, 1)
    assert accounts(engine) == [0, 1]
    assert_sound(engine)


def test_the_limit_is_the_stores_to_the_millisecond(engine: Engine, clock: ManualClock) -> None:
    """A producer expires after exactly 24 idle hours by the log's time. The times that its records carry do
    not count."""
    engine.admin.alter_configs({"message.timestamp.after.max.ms": 100 * DAY_MS}, topic=TOPIC)
    log = engine.partition(TOPIC, 0)
    for producer_id, stamp in ((1, 0), (2, clock() + 100 * DAY_MS)):
        log.append(
            payments(1), producer_id=producer_id, producer_epoch=0, base_sequence=0, timestamp_ms=stamp
        )
    clock.advance(DAY_MS - 1)
    assert engine.maintenance.expire_producers(dry_run=True).partitions == ()
    assert engine.maintenance.expire_producers().partitions == ()
    clock.advance(1)
    assert [each.producer_ids for each in engine.maintenance.expire_producers().partitions] == [(1, 2)]


def test_who_comes_back_in_time_stays(engine: Engine, clock: ManualClock) -> None:
    """A producer that wrote after the run had looked is not forgotten, because the append judges again."""
    log = engine.partition(TOPIC, 0)
    append(log, 1, 0)
    append(log, 2, 0)
    clock.advance(DAY_MS)
    target_log = engine.logs.get(TOPIC, 0, 0)
    original = target_log.append_one

    def wakes_up_first(*args: object) -> object:
        append(log, 2, 1)
        return original(*args)  # type: ignore[arg-type]

    target_log.append_one = wakes_up_first  # type: ignore[method-assign,assignment]
    (report,) = engine.maintenance.expire_producers(TOPIC).partitions
    assert report.producer_ids == (1,)
    assert known(log) == [2]
    assert_sound(engine)


def test_nothing_twice(engine: Engine, clock: ManualClock) -> None:
    """A second run writes nothing, and neither does a dry run."""
    log = engine.partition(TOPIC, 0)
    append(log, 1, 0)
    clock.advance(DAY_MS)
    planned = engine.maintenance.expire_producers(dry_run=True)
    assert known(log) == [1]
    assert planned.partitions == engine.maintenance.expire_producers().partitions
    end = log.high_watermark
    assert engine.maintenance.expire_producers().partitions == ()
    assert log.high_watermark == end
