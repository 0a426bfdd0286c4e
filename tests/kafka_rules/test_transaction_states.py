"""Every request and sweep shows which of the 64 moves in the table of states are possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, product

import pytest

from tests.kafka_rules.driver import DAY_MS, T0, T1, answer, fresh_id, put_row
from txn_engine import Engine
from txn_engine.testing import ManualClock

PID, EPOCH = 5_010, 5
STATES = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
]
AT_REST = {"Empty", "CompleteCommit", "CompleteAbort"}
# target: the states that may come before it
KAFKA = {
    "Empty": AT_REST,
    "Ongoing": {"Ongoing", *AT_REST},
    "PrepareCommit": {"Ongoing"},
    "PrepareAbort": {"Ongoing", "PrepareEpochFence", *AT_REST},
    "CompleteCommit": {"PrepareCommit"},
    "CompleteAbort": {"PrepareAbort"},
    "Dead": AT_REST,
    "PrepareEpochFence": {"Ongoing"},
}
# Ours differs in two places. A tombstone is a row here, not a removal, so an initialisation follows it. And a fence is
# the PrepareAbort row itself: PrepareEpochFence is never a row, as in Kafka it is never more than pending.
OURS = {
    target: {"Dead", *before} if target == "Empty" else before - {"PrepareEpochFence"}
    for target, before in KAFKA.items()
    if target != "PrepareEpochFence"
}


def requests(engine: Engine, name: str) -> Iterator[Callable[[], object]]:
    """Every call that can write a row for the id."""
    ask = engine.coordinator
    yield lambda: ask.init_producer_id(name)
    yield lambda: ask.init_producer_id(name, producer_id=PID, producer_epoch=EPOCH)
    yield lambda: ask.add_partitions(name, PID, EPOCH, [T0])
    yield lambda: ask.add_partitions(name, PID, EPOCH, [T1])
    for committed, epoch in product((True, False), (EPOCH, EPOCH - 1)):
        yield lambda c=committed, e=epoch: ask.end_transaction(name, PID, e, committed=c, markers="deferred")  # type: ignore[misc]
    yield ask.abort_timed_out_transactions
    yield ask.write_pending_markers
    yield ask.expire_transactional_ids
    yield lambda: ask.finish(name)


@pytest.fixture(scope="module")
def moves(table_engine: Engine, table_clock: ManualClock) -> set[tuple[str, str]]:
    """Every (state, next state) that a request or a sweep makes, each tried on a row of its own."""
    found: set[tuple[str, str]] = set()
    states = [state for state in STATES if state != "PrepareEpochFence"]
    for state in states:
        for number in range(len(list(requests(table_engine, "")))):
            name = put_row(table_engine, state, pid=PID, epoch=EPOCH, name=fresh_id("moves"))
            table_clock.advance(8 * DAY_MS)  # timed out, and expired
            answer(list(requests(table_engine, name))[number])
            found |= set(_steps(table_engine, name))
    return found


def _steps(engine: Engine, name: str) -> Iterator[tuple[str, str]]:
    """Each row of the id with the one after it."""
    states = [
        str(batch.row.state)
        for batch in engine.logs.coordinator(name).batches()
        if batch.row is not None and getattr(batch.row, "transactional_id", None) == name
    ]
    yield from pairwise(states)


@pytest.mark.parametrize(("before", "target"), list(product(STATES, STATES)))
def test_every_move(moves: set[tuple[str, str]], before: str, target: str) -> None:
    """A request or a sweep makes a move if and only if the table of valid previous states allows it."""
    assert ((before, target) in moves) == (before in OURS.get(target, set()))


def test_what_differs_from_kafka() -> None:
    """The table differs from Kafka's in two points, which the page on differences names."""
    kafka = {(before, target) for target, states in KAFKA.items() for before in states}
    ours = {(before, target) for target, states in OURS.items() for before in states}
    assert ours - kafka == {("Dead", "Empty")}
    assert kafka - ours == {("Ongoing", "PrepareEpochFence"), ("PrepareEpochFence", "PrepareAbort")}
