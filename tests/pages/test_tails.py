"""The last rows of a log: only so many, followed as the log grows, forgotten when nobody asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from txn_engine import Engine, connect
from txn_engine.testing import write_transaction_state
from txn_engine_airflow.pages.tails import KEPT_MS, ROWS_MAX, Tails


@pytest.fixture
def engine() -> Iterator[Engine]:
    with connect("memory://tails") as engine:
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
    assert [row.base_offset for row in rows] == list(range(50, ROWS_MAX + 50))
    write_transaction_state(engine, "load", state="Empty", producer_id=1, producer_epoch=7)
    log.refresh()
    tails.follow()
    rows = tails.ask(log)
    assert rows is not None
    assert [row.base_offset for row in rows] == list(range(51, ROWS_MAX + 51))


def test_an_empty_log_has_been_read_too(engine: Engine) -> None:
    log = engine.logs.coordinator("nobody's")
    tails = Tails(Watch())
    tails.ask(log)
    tails.follow()
    assert tails.ask(log) == ()


def test_a_log_that_nobody_asks_for_is_let_go(engine: Engine) -> None:
    watch = Watch()
    tails = Tails(watch)
    log = engine.logs.coordinator("idle")
    tails.ask(log)
    tails.follow()
    assert tails.ask(log) == ()
    watch.now_ms += KEPT_MS + 1
    tails.follow()
    assert tails.ask(log) is None
