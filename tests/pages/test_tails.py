"""The last rows of a log are limited in number, followed as the log grows, and forgotten when nobody asks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from txn_engine import Engine, connect
from txn_engine.testing import write_transaction_state
from txn_engine_airflow.pages.tails import DAMAGED_MAX, KEPT_MS, ROWS_MAX, TailRows, Tails


@pytest.fixture
def engine() -> Iterator[Engine]:
    with connect(f"memory://{uuid.uuid4().hex}") as engine:
        yield engine


class Watch:
    """A monotonic clock that is set by hand."""

    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_a_long_log_is_read_from_near_its_end_and_then_followed(engine: Engine) -> None:
    for number in range(ROWS_MAX + 50):
        write_transaction_state(engine, "load", state="Empty", producer_id=1, producer_epoch=number % 100)
    log = engine.logs.coordinator("load")
    log.refresh()
    tails = Tails(Watch())
    assert tails.ask(log) is None
    tails.follow()
    rows = tails.ask(log)
    assert rows is not None
    assert [row.base_offset for row in rows.rows] == list(range(50, ROWS_MAX + 50))
    write_transaction_state(engine, "load", state="Empty", producer_id=1, producer_epoch=7)
    log.refresh()
    tails.follow()
    rows = tails.ask(log)
    assert rows is not None
    assert [row.base_offset for row in rows.rows] == list(range(51, ROWS_MAX + 51))


def test_an_empty_log_has_been_read_too(engine: Engine) -> None:
    log = engine.logs.coordinator("nobody's")
    tails = Tails(Watch())
    tails.ask(log)
    tails.follow()
    assert tails.ask(log) == TailRows((), ())


def test_a_log_that_nobody_asks_for_is_let_go(engine: Engine) -> None:
    watch = Watch()
    tails = Tails(watch)
    log = engine.logs.coordinator("idle")
    tails.ask(log)
    tails.follow()
    assert tails.ask(log) == TailRows((), ())
    watch.now_ms += KEPT_MS + 1
    tails.follow()
    assert tails.ask(log) is None


def test_a_damaged_entry_is_passed_over_and_named(engine: Engine) -> None:
    """With a snapshot after a damaged entry, every other row of this log and of other logs is shown."""
    for number in range(10):
        write_transaction_state(engine, "hurt", state="Empty", producer_id=1, producer_epoch=number)
        write_transaction_state(engine, "sound", state="Empty", producer_id=2, producer_epoch=number)
    hurt, sound = engine.logs.coordinator("hurt"), engine.logs.coordinator("sound")
    engine.admin.snapshot()
    whole = engine.store.get(hurt.keys.entry(4))
    for slot in (4, 7):
        engine.store.put(hurt.keys.entry(slot), b"garbage")
    tails = Tails(Watch())
    for log in (hurt, sound):
        log.refresh()
        tails.ask(log)
    tails.follow()
    found, other = tails.ask(hurt), tails.ask(sound)
    assert found is not None
    assert other is not None
    assert [row.base_offset for row in found.rows] == [0, 1, 2, 3, 5, 6, 8, 9]
    assert [hurt.keys.entry(slot) in line for slot, line in zip((4, 7), found.damaged, strict=True)] == [
        True
    ] * 2
    assert ([row.base_offset for row in other.rows], other.damaged) == (list(range(10)), ())
    engine.store.put(hurt.keys.entry(4), whole)
    write_transaction_state(engine, "hurt", state="Empty", producer_id=1, producer_epoch=99)
    hurt.refresh()
    tails.follow()
    grown = tails.ask(hurt)
    assert grown is not None
    assert [row.base_offset for row in grown.rows][-2:] == [9, 10]


def test_a_log_that_is_all_damaged_is_given_up_for_now(engine: Engine) -> None:
    """One look tries a limited number of damaged entries."""
    for number in range(2 * DAMAGED_MAX):
        write_transaction_state(engine, "gone", state="Empty", producer_id=3, producer_epoch=number)
    log = engine.logs.coordinator("gone")
    log.refresh()
    for slot in range(2 * DAMAGED_MAX):
        engine.store.put(log.keys.entry(slot), b"garbage")
    tails = Tails(Watch())
    tails.ask(log)
    tails.follow()
    found = tails.ask(log)
    assert found is not None
    assert (found.rows, len(found.damaged)) == ((), DAMAGED_MAX)
