"""Maintenance dies, or meets an error, at every store operation of every job: nothing is lost, and the next
run goes on."""

from __future__ import annotations

import pytest

from storage import MemoryStore, ObjectStore
from tests.maintain.ledgers import JOBS, Job, accounts, commit, ledger, open_engine, sealed
from tests.suite.tiers import in_shard
from tests.support.faults import FaultyStore, Operation
from tests.support.kills import Blow, Death, ProcessDiedError
from tests.support.stores import assert_sound, copy_of
from txn_engine.errors import TxnEngineError
from txn_engine.testing import ManualClock

FAULTS: tuple[Blow, ...] = ("dies before", "dies after", "before", "after", "taken_after")


def prepared(name: str) -> tuple[MemoryStore, int]:
    """A ledger on which the jobs before this one have run, and its time."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        for before in JOBS:
            if before == name:
                break
            JOBS[before](engine)
    return store, clock()


def operations(job: Job, store: ObjectStore, clock: ManualClock) -> list[Operation]:
    """The store operations that the job does when nothing goes wrong."""
    counted = FaultyStore(store)
    with open_engine(counted, clock) as engine:
        counted.calls.clear()
        report = job(engine)
        assert report.partitions, "the job has nothing to do here"
        assert report.failures == ()
    return [operation for operation, _, _ in counted.calls]


def attempt(job: Job, store: FaultyStore, clock: ManualClock) -> None:
    """Run the job, which may end in any way."""
    decide, store.decide = store.decide, None
    with open_engine(store, clock) as engine:
        store.decide, store.calls = decide, []
        try:
            job(engine)
        except (TxnEngineError, ProcessDiedError):
            pass  # what the try left behind is judged after the next one
        finally:
            store.decide = None


def check_and_go_on(
    job: Job, store: ObjectStore, clock: ManualClock, seen: tuple[list[int], list[int]]
) -> None:
    """Check that readers see the records from before or after the job, that another run finishes the job, and
    that a third one has nothing to do."""
    before, after = seen
    with open_engine(store, clock) as engine:
        assert accounts(engine) in (before, after)
        assert job(engine).failures == ()
        assert accounts(engine) == after
        assert job(engine).partitions == ()


def writers_go_on(store: ObjectStore, clock: ManualClock, after: list[int]) -> None:
    """Check that a later commit is read and that the auditor finds nothing wrong."""
    slots = sealed(store)
    assert slots == sorted(slots, reverse=True), "a seal above an entry"
    with open_engine(store, clock) as engine:
        clock.advance(120_000)
        engine.coordinator.abort_timed_out_transactions()
        commit(engine, 7777)
        assert accounts(engine) == [*after, 7777]
        assert_sound(engine)


def outcome(job: Job, store: ObjectStore, clock: ManualClock) -> tuple[list[int], list[int]]:
    """The records that readers see before and after an undisturbed job."""
    with open_engine(store, clock) as engine:
        before = accounts(engine)
        job(engine)
        return before, accounts(engine)


CASES = [(name, fault) for name in JOBS for fault in FAULTS if (name, fault) != ("seal", "taken_after")]
"""A seal overwrites what is there, so no store says "already there" to it."""
ONE_FAULT_PER_JOB = (
    ("compact", "dies after"),
    ("retain", "dies before"),
    ("seal", "after"),
    ("clean", "before"),
    ("expire", "taken_after"),
)


@pytest.mark.parametrize(
    ("name", "fault", "step"),
    in_shard(
        "kills",
        [*((*each, 4) for each in ONE_FAULT_PER_JOB), *((*each, 1) for each in CASES)],
        keep=len(ONE_FAULT_PER_JOB),
    ),
)
def test_every_write(name: str, fault: str, step: int) -> None:
    """Any write is a job's last, or fails once, before or after it took effect: the ledger is sound, readers see the
    same records, and the next run finishes. `make test` tries every fourth write, the shard tries all.
    """
    job = JOBS[name]
    made, at_ms = prepared(name)
    seen = outcome(job, copy_of(made), ManualClock(at_ms))
    writes = [
        at
        for at, operation in enumerate(operations(job, copy_of(made), ManualClock(at_ms)))
        if operation not in _READS and (fault != "taken_after" or operation == "put_if_absent")
    ]
    for at in writes[::step]:
        store, clock = copy_of(made), ManualClock(at_ms)
        attempt(job, faulty(store, fault, at), clock)
        check_and_go_on(job, store, clock, seen)
        writers_go_on(store, clock, seen[1])


@pytest.mark.parametrize(
    ("name", "step"), in_shard("kills", [("clean", 12), *((name, 2) for name in JOBS)], keep=1)
)
def test_every_read(name: str, step: int) -> None:
    """If any read fails once, the job decides nothing without it, and the next run finishes.

    `make test` tries every twelfth operation of one job, the shard every second one of all jobs.
    """
    job = JOBS[name]
    made, at_ms = prepared(name)
    seen = outcome(job, copy_of(made), ManualClock(at_ms))
    for at, operation in enumerate(operations(job, copy_of(made), ManualClock(at_ms))):
        if operation in _READS and at % step == 1:
            store, clock = copy_of(made), ManualClock(at_ms)
            attempt(job, faulty(store, "before", at), clock)
            check_and_go_on(job, store, clock, seen)


_READS = ("get", "get_range", "head", "list", "list_folders")


def faulty(store: ObjectStore, fault: Blow, at: int) -> FaultyStore:
    """A store whose client dies at an operation, or at which the operation fails."""
    return Death(fault, at).of(store)
