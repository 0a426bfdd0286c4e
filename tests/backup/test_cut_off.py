"""If a process dies at any write of a backup or a restore, before or after the write took effect, the next
one goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from storage import MemoryStore, ObjectStore, open_store
from tests.backup.conftest import begun, fresh_store, load, opened, places_in, restored, write
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.kills import Death, ProcessDiedError
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import Engine
from txn_engine.backup import backups, check_backup, restore
from txn_engine.backup.place import PLACE_KEY
from txn_engine.errors import CorruptObjectError, InvalidRequestError, TxnEngineError
from txn_engine.log.store_config import RESTORED_KEY
from txn_engine.log.store_identity import STORE_KEY
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.verify import verify_store


class Mishap(Death):
    """A fault at the n-th put to any of the stores of one process. The process dies there, or one call fails."""

    def __init__(self, at: int, fault: Fault, *, dies: bool) -> None:
        super().__init__(f"dies {fault}" if dies else fault, at, operations=("put_if_absent",))  # type: ignore[arg-type]
        self._decide = self.client()

    def of(self, store: ObjectStore) -> FaultyStore:
        return FaultyStore(store, decide=self._decide, error=self.error)


CASES = in_shard(
    "kills", [("after", True, 5), ("before", True, 1), ("after", True, 1), ("after", False, 1)], keep=1
)
"""The fault, whether the process dies of it, and the step: `make test` tries every fifth put, the shard tries all."""


def each_put(attempt: Callable[[Mishap], object], fault: Fault, *, dies: bool, step: int) -> tuple[int, int]:
    """Let the fault happen at every `step`-th put, until an attempt does not reach it.

    Returns how many attempts were cut off, and the number of the put that the last attempt did not reach.
    """
    for number, at in enumerate(range(0, 1_000, step)):
        mishap = Mishap(at, fault, dies=dies)
        try:
            attempt(mishap)
        except (ProcessDiedError, TxnEngineError):
            assert mishap.happened
        if not mishap.happened:
            return number, at
    raise AssertionError("the attempts never end")


@pytest.fixture
def lived(engine: Engine) -> Engine:
    load(engine, "one", 1, 2)
    load(engine, "two", 3)
    consumer = engine.consumer(group_id="sums")
    consumer.subscribe(["payments"])
    consumer.poll()
    consumer.commit()
    late = begun(engine, "late", "late-run")
    write(late, 9)
    late.commit_transaction()
    return engine


@pytest.mark.parametrize(("fault", "dies", "step"), CASES)
def test_the_next_backup_goes_on_where_one_was_cut_off(
    lived: Engine, clock: ManualClock, fault: Fault, dies: bool, step: int
) -> None:
    """Each attempt has a place of its own, where it is cut off once. What was cut off is not a backup."""
    inside, files = accounts_in(lived), len(lived.scan("payments").files())

    def attempt(mishap: Mishap) -> None:
        place = fresh_store()
        with opened(mishap.of(lived.store), clock) as engine:
            try:
                engine.backup(mishap.of(place))
            finally:
                arrived = sum("/data/" in info.key for info in place.list(""))
                done, _ = backups(place) if _has_begun(place) else ([], [])
                asked = FaultyStore(lived.store)
                with opened(asked, clock) as another:
                    made = another.backup(place)
                read = [key for operation, key, _ in asked.calls if operation == "get" and "/data/" in key]
                assert len(read) == (0 if done else files - arrived)
                assert made.number == len(done)
                assert not check_backup(place).damaged
        last.append(place)

    last: list[MemoryStore] = []
    _, puts = each_put(attempt, fault, dies=dies, step=step)
    assert puts > 12
    with restored(last[-1], clock) as again:
        assert accounts_in(again) == inside


def _has_begun(place: MemoryStore) -> bool:
    return any(info.key == PLACE_KEY for info in place.list(""))


@pytest.mark.parametrize(("fault", "dies", "step"), CASES)
def test_the_next_restore_goes_on_where_one_was_cut_off(
    lived: Engine, place: MemoryStore, clock: ManualClock, fault: Fault, dies: bool, step: int
) -> None:
    """A restore that was cut off is not a store: nobody can open it."""
    lived.backup(place)
    before, ids = places_in(lived), set()
    tries = 0

    def attempt(mishap: Mishap) -> None:
        """Restore into a place of its own: cut off once, examined, and finished."""
        nonlocal tries
        tries += 1
        target = fresh_store()
        try:
            restore(place, mishap.of(target), clock=clock)
        finally:
            left = {info.key.rpartition("/")[2] for info in target.list("")}
            if STORE_KEY in left and RESTORED_KEY not in left:
                with refused(InvalidRequestError, Reason.RESTORE_UNFINISHED):
                    opened(target, clock)
                codes = {finding.code for finding in verify_store(target, workers=0).findings}
                assert "restore-unfinished" in codes
            if RESTORED_KEY not in left:
                ids.add(restore(place, target, clock=clock).store_id)
            with opened(target, clock) as engine:
                assert places_in(engine) == before
                assert not engine.admin.verify().findings

    cut_off, puts = each_put(attempt, fault, dies=dies, step=step)
    assert puts > 15
    assert len(ids) >= (cut_off - 2 if dies else 0)


def test_two_restores_at_once_make_one_store(lived: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """The second restore begins while the first one begins its last log, and finishes first."""
    lived.backup(place)
    target = fresh_store()
    others: list[str] = []

    def decide(operation: Operation, key: str, _: int) -> Fault | None:
        if key.endswith(f"/{RESTORED_KEY}") and operation == "put_if_absent" and not others:
            others.append(restore(place, target, clock=clock).store_id)
        return None

    first = restore(place, FaultyStore(target, decide=decide), clock=clock)
    assert others == [first.store_id]
    with opened(target, clock) as engine:
        assert not engine.admin.verify().findings


@pytest.mark.parametrize("who_is_first", ["set up", "restore"])
def test_a_restore_and_a_new_store_race_for_a_place(
    lived: Engine, place: MemoryStore, clock: ManualClock, who_is_first: str
) -> None:
    """Exactly one of the two gets the place."""
    lived.backup(place)
    name = fresh_store().url.removeprefix("memory://")
    target = open_store(f"memory://{name}")
    met: list[object] = []

    def other() -> None:
        if who_is_first == "set up":
            opened(target, clock).close()
        else:
            met.append(restore(place, target, clock=clock))

    def decide(operation: Operation, key: str, _: int) -> Fault | None:
        if key == STORE_KEY and operation == "put_if_absent" and not met:
            met.append(None)
            other()
        return None

    if who_is_first == "set up":
        with refused(InvalidRequestError, Reason.PLACE_NOT_EMPTY):
            restore(place, FaultyStore(target, decide=decide), clock=clock)
        assert {info.key for info in target.list("")} == {STORE_KEY}
    else:
        with opened(FaultyStore(target, decide=decide), clock) as engine:
            assert accounts_in(engine) == [1, 1, 2, 2, 3, 3]


def test_a_failed_backup_deletes_its_cut(lived: Engine, place: MemoryStore) -> None:
    """So does the next backup with the cut that an earlier backup made. A cut that the caller named stays."""
    refuse = FaultyStore(place, decide=lambda operation, key, _: "before" if "/data/" in key else None)
    with pytest.raises(TxnEngineError):
        lived.backup(refuse)
    assert lived.cuts() == []
    first = lived.backup(place)
    assert [cut.number for cut in lived.cuts()] == [first.cut]
    second = lived.backup(place)
    assert [cut.number for cut in lived.cuts()] == [second.cut]
    kept = lived.cut()
    third = lived.backup(place, cut=kept.number)
    fourth = lived.backup(place)
    assert [cut.number for cut in lived.cuts()] == [third.cut, fourth.cut]


def test_a_write_that_the_store_lost_is_detected(lived: Engine, place: MemoryStore) -> None:
    """The store confirmed a write and does not have the object: the backup fails and is not listed."""
    lies = FaultyStore(place, decide=lambda operation, key, _: "lost" if "/data/" in key else None)
    with refused(CorruptObjectError, Reason.WRITE_LOST):
        lived.backup(lies)
    assert backups(place) == ([], [])


@pytest.mark.parametrize("step", in_shard("kills", [4, 1], keep=1))
def test_records_are_erased_at_any_moment_of_a_backup(
    engine: Engine, place: MemoryStore, clock: ManualClock, step: int
) -> None:
    """A backup that misses a file because an erasure wrote it again starts over, and finishes."""
    number = 0
    is_erased = True
    while is_erased:
        load(engine, f"erased-{number}", 7, 8)
        puts = iter(range(number, -1, -1))
        is_erased = False

        def decide(operation: Operation, _: str, __: int, left: Iterator[int] = puts) -> None:
            nonlocal is_erased
            if operation == "put_if_absent" and next(left, None) == 0:
                is_erased = True
                engine.erase("payments", "account_id = 7", execute=True)

        engine.backup(FaultyStore(place, decide=decide))
        with restored(place, clock) as again:
            kept = [account for account in accounts_in(again) if account != 7]
        assert kept == [account for account in accounts_in(engine) if account != 7]
        number += step
    assert number > 5
