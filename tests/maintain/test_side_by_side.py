"""Two maintenance runs work at the same time: the second one starts at any moment of the first."""

from __future__ import annotations

import pytest

from storage import ObjectStore
from tests.maintain.ledgers import (
    JOBS,
    POLICY,
    TOPIC,
    YOUNG,
    accounts,
    commit,
    ledger,
    open_engine,
    sealed,
    upload,
)
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.stores import assert_sound, copy_of
from txn_engine import Engine
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.testing import ManualClock

STRIDE = 3


class Interruption:
    """A store that lets another process do all jobs right before its n-th operation."""

    def __init__(self, store: ObjectStore, clock: ManualClock, at: int) -> None:
        self._store, self._clock, self._at = store, clock, at
        self.happened = False

    def __call__(self, operation: Operation, key: str, number: int) -> Fault | None:
        if number == self._at:
            self.happened = True
            with open_engine(self._store, self._clock) as other:
                everything(other)
        return None


def everything(engine: Engine) -> None:
    for job in JOBS.values():
        assert job(engine).failures == ()


@pytest.mark.parametrize(
    ("name", "stride"),
    in_shard(
        "kills",
        [*((name, 12 * STRIDE) for name in JOBS), *((name, STRIDE) for name in JOBS)],
        keep=[("compact", 12 * STRIDE), ("clean", 12 * STRIDE)],
    ),
)
def test_another_run_at_any_moment(name: str, stride: int) -> None:
    """If another process does all jobs between any two store operations of a job, both runs succeed and the
    store is sound.

    `make test` interrupts two of the jobs, at every twelfth of the operations that the shard tries.
    """
    made, clock = ledger()
    with open_engine(made, clock) as engine:
        for before in list(JOBS)[: list(JOBS).index(name)]:
            JOBS[before](engine)
    happened, at, interruptions = True, 0, 0
    while happened:
        store, now = copy_of(made), ManualClock(clock())
        interruption = Interruption(store, now, at)
        interruptible = FaultyStore(store)
        with open_engine(interruptible, now) as engine:
            interruptible.calls.clear()
            interruptible.decide = interruption
            report = JOBS[name](engine)
            interruptible.decide = None
            assert report.failures == ()
            everything(engine)
            assert accounts(engine) == YOUNG
            slots = sealed(store)
            assert slots == sorted(slots, reverse=True)
            if at % (2 * stride) == 0:
                assert_sound(engine)
        happened = interruption.happened
        interruptions += happened
        at += stride
    assert interruptions >= (3 if stride == STRIDE else 1)


def test_another_run_with_another_policy() -> None:
    """If a run that keeps orphans for a shorter time raises the floor between this run's plan and its entry,
    this run plans again."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        upload(engine, 3001)
        before = engine.partition(TOPIC, 0).high_watermark
        clock.advance(8 * DAY_MS)
        commit(engine, 9)
    eager = MaintenancePolicy(orphan_age_ms=0)
    raised = []

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if operation == "put_if_absent" and not raised:
            with open_engine(store, clock) as other:
                raised.append(other.maintenance.clean(TOPIC, policy=eager).partitions[0].floor)
        return None

    interruptible = FaultyStore(store)
    with open_engine(interruptible, clock) as engine:
        interruptible.decide = decide
        report = engine.maintenance.clean(TOPIC, policy=POLICY)
        interruptible.decide = None
        assert report.failures == ()
        assert engine.partition(TOPIC, 0).state.floor == raised[0] > before
        assert_sound(engine)
