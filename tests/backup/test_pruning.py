"""Old backups are removed with the objects that no other backup needs, and every kept backup stays whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from storage import MemoryStore, ObjectInfo, ObjectStore, encode_json
from tests.backup.conftest import SCHEMA, fresh_store, load, opened, restored, set_up
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.kills import Blow, Death, ProcessDiedError
from tests.support.refusals import refused
from tests.support.stores import accounts_in, copy_of
from txn_engine import Engine
from txn_engine.backup import Pruned, backups, check_backup, prune, restore
from txn_engine.backup.manifest import encoded_manifest
from txn_engine.backup.place import manifest_key
from txn_engine.errors import CorruptObjectError, InvalidRequestError, TxnEngineError
from txn_engine.maintain import MaintenancePolicy
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

MERGE = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)
DAY_MS = 86_400_000
RESTORED: set[object] = set()
"""The backups that were restored, by all that they are: they are not restored twice."""


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.get(info.key) for info in store.list("")}


def keep(place: ObjectStore, count: int, clock: ManualClock, **more: bool) -> Pruned:
    return prune(place, keep=count, execute=True, clock=clock, pause=no_pause, **more)


def check_all(place: ObjectStore, clock: ManualClock, expected: dict[int, list[int]]) -> None:
    """The place has exactly these backups. Each is whole and restores to its records."""
    found, damaged = backups(place)
    assert ([each.number for each in found], damaged) == (sorted(expected), [])
    for number, accounts in expected.items():
        read = FaultyStore(place)
        assert not check_backup(read, number).damaged
        objects = frozenset((key, place.get(key)) for operation, key, _ in read.calls if operation == "get")
        if (number, objects) not in RESTORED:
            with restored(place, clock, number) as again:
                assert accounts_in(again) == accounts
            RESTORED.add((number, objects))


def needed_in(place: ObjectStore) -> set[str]:
    """The keys of all objects that the place's backups need."""
    read = FaultyStore(place)
    for each in backups(place)[0]:
        check_backup(read, each.number)
    return {key for operation, key, _ in read.calls if operation == "get"}


class Aged(FaultyStore):
    """A place whose manifests were put a day apart, by the store's clock."""

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_after=start_after):
            found = re.search(r"backups/([0-9]{20})", info.key)
            yield replace(info, modified_ms=int(found[1]) * DAY_MS) if found else info


@cache
def _four_backups() -> tuple[MemoryStore, MemoryStore, int]:
    """A ledger, the place of its backups, and the time afterwards. No test changes them."""
    ledger, place, clock = fresh_store(), fresh_store(), ManualClock()
    set_up(ledger)
    with opened(ledger, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        for number in range(4):
            if number == 2:
                engine.maintenance.compact(policy=MERGE)
            else:
                load(engine, f"run-{number}", number)
            engine.backup(place)
            clock.advance(DAY_MS)
    return ledger, place, clock()


@pytest.fixture
def lived(place: MemoryStore, clock: ManualClock) -> Iterator[Engine]:
    """Four backups, a day apart: 0 and 1 of small files, 2 and 3 after compaction, 3 with one more file."""
    ledger, backed_up, now_ms = _four_backups()
    for key, data in contents(backed_up).items():
        place.put(key, data)
    clock.advance(now_ms - clock())
    with opened(copy_of(ledger, fresh_store()), clock) as engine:
        yield engine


EXPECTED = {0: [0, 0], 1: [0, 0, 1, 1], 2: [0, 0, 1, 1], 3: [0, 0, 1, 1, 3, 3]}


def test_what_stays_and_what_goes(lived: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """A dry run reports what a prune would remove. A prune leaves no unneeded object, and later backups copy
    only new files."""
    before = contents(place)
    told = prune(place, keep=2, clock=clock)
    assert contents(place) == before
    assert ([each.number for each in told.kept], told.removed, told.executed) == ([2, 3], (0, 1), False)
    done = keep(place, 2, clock)
    gone = before.keys() - contents(place).keys()
    assert (done.removed, done.objects, done.bytes) == ((0, 1), told.objects, told.bytes)
    assert len(gone) == told.objects > 8
    assert sum(len(before[key]) for key in gone) == told.bytes
    check_all(place, clock, {number: EXPECTED[number] for number in (2, 3)})
    manifests = {manifest_key(number) for number in range(5)}
    assert contents(place).keys() == needed_in(place) | manifests
    load(lived, "run-5", 5)
    made = lived.backup(place)
    assert (made.number, made.counts.new_files, made.counts.files) == (5, 2, 6)
    assert keep(place, 3, clock).removed == ()
    check_all(place, clock, {**{n: EXPECTED[n] for n in (2, 3)}, 5: [*EXPECTED[3], 5, 5]})
    assert keep(place, 1, clock).removed == (2, 3)
    check_all(place, clock, {5: [*EXPECTED[3], 5, 5]})
    with refused(InvalidRequestError, Reason.BACKUP_NOT_FOUND):
        restore(place, fresh_store(), number=3, clock=clock)
    with refused(InvalidRequestError, Reason.BACKUP_NOT_FOUND):
        check_backup(place, 4)


@pytest.mark.parametrize(
    ("which", "stay"),
    [
        ({"keep": 1}, [3]),
        ({"keep": 9}, [0, 1, 2, 3]),
        ({"older_than_ms": 3 * DAY_MS}, [0, 1, 2, 3]),
        ({"older_than_ms": 2 * DAY_MS}, [1, 2, 3]),
        ({"older_than_ms": 0}, [3]),
        ({"older_than_ms": 1 * DAY_MS, "keep": 3}, [1, 2, 3]),
        ({"older_than_ms": 2 * DAY_MS, "keep": 1}, [1, 2, 3]),
    ],
)
@pytest.mark.parametrize("wrong_ms", [0, -900 * DAY_MS, 900 * DAY_MS])
@pytest.mark.usefixtures("lived")
def test_which_backups_stay(
    place: MemoryStore, clock: ManualClock, which: dict[str, int], stay: list[int], wrong_ms: int
) -> None:
    """Backups stay by count, by age or by both, whatever the clock of the machine says. The newest backup always
    stays."""
    clock.advance(wrong_ms)
    told = prune(Aged(place), clock=clock, **which)  # type: ignore[arg-type]
    assert [each.number for each in told.kept] == stay


def test_the_newest_backup_is_the_one_of_the_newest_cut(
    lived: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A backup that is made later as of an older cut is not the newest: a restore and a prune take the other one."""
    old = lived.cut()
    load(lived, "run-9", 9)
    newest = lived.backup(place)
    late = lived.backup(place, cut=old.number)
    assert (newest.cut > late.cut, newest.number < late.number) == (True, True)
    with restored(place, clock) as again:
        assert accounts_in(again) == [*EXPECTED[3], 9, 9]
    assert [each.number for each in prune(place, keep=1, clock=clock).kept] == [newest.number]
    assert check_backup(place).backup.number == newest.number


def test_the_way_around_a_damaged_manifest(lived: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """If the manifest of the newest backup is damaged, the error names a backup that can be restored."""
    place.put(manifest_key(3), b"garbage")
    with pytest.raises(CorruptObjectError, check=lambda error: "--number 2" in str(error.action)):
        restore(place, fresh_store(), clock=clock)
    with restored(place, clock, 2) as again:
        assert accounts_in(again) == EXPECTED[2]


def test_a_damaged_backup_that_may_be_the_newest(
    lived: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A damaged backup may be of a newer cut than a sound one with a higher number, if that is of an old cut. A
    backup at a fresh cut is newer than everything before."""
    old = lived.cut()
    load(lived, "run-9", 9)
    damaged = lived.backup(place)
    place.put(manifest_key(damaged.number), b"garbage")
    late = lived.backup(place, cut=old.number)
    with pytest.raises(
        CorruptObjectError, check=lambda error: f"--number {late.number}" in str(error.action)
    ):
        check_backup(place)
    fresh = lived.backup(place)
    assert (late.cut_after, fresh.cut_after, fresh.made_cut) == (None, fresh.number, True)
    assert check_backup(place).backup.number == fresh.number


@pytest.mark.parametrize("which", [{}, {"keep": 0}, {"keep": True}, {"older_than_ms": -1}, {"keep": "1"}])
@pytest.mark.usefixtures("lived")
def test_wrong_calls(place: MemoryStore, which: dict[str, int]) -> None:
    """A prune without a rule or with a rule of a wrong type is refused, and so is a prune of a place without
    backups."""
    with pytest.raises(InvalidRequestError):
        prune(place, execute=True, **which)  # type: ignore[arg-type]
    with refused(InvalidRequestError, Reason.NO_BACKUPS):
        prune(fresh_store(), keep=1)


def test_leftovers_of_an_interrupted_backup_are_removed(
    lived: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A prune removes objects that an interrupted backup left. Objects that do not belong to backups stay."""
    load(lived, "late", 7)
    failing = FaultyStore(place, decide=lambda operation, key, _: "before" if "backups/" in key else None)
    failing.decide = lambda operation, key, _: (
        "before" if operation == "put_if_absent" and "backups/" in key else None
    )
    with pytest.raises(TxnEngineError):
        lived.backup(failing)
    foreign = {
        "notes.txt": b"x",
        "topics/payments/0/0/data/notes": b"y",
        "generations/x/topics/a/0.json": b"z",
    }
    for key, data in foreign.items():
        place.put(key, data)
    done = keep(place, 4, clock)
    assert (done.removed, done.objects > 2) == ((), True)
    assert contents(place).keys() == needed_in(place) | foreign.keys() | {manifest_key(n) for n in range(5)}
    assert keep(place, 4, clock).objects == 0
    assert manifest_key(5) not in contents(place)
    check_all(place, clock, EXPECTED)


# --- killed, and beside others ----------------------------------------------------------------------------


def _each_call(
    fault: Fault, operations: tuple[Operation, ...], *, dies: bool, step: int,
    attempt: Callable[[FaultyStore], object], made: Callable[[], MemoryStore],
) -> Callable[[], list[MemoryStore]]:  # fmt: skip
    """The places that are left if this fault happens at the first call of the attempt, `step` calls later,
    and so on."""

    def places() -> list[MemoryStore]:
        left: list[MemoryStore] = []
        while True:
            place = made()
            blow: Blow = f"dies {fault}" if dies else fault  # type: ignore[assignment]
            death = Death(blow, step * len(left), operations=operations)
            try:
                attempt(death.of(place))
            except (ProcessDiedError, TxnEngineError):
                assert death.happened
            left.append(place)
            if not death.happened:
                return left

    return places


_ALL: tuple[Operation, ...] = ("get", "head", "list", "put_if_absent", "put", "delete")


@pytest.mark.parametrize(
    ("fault", "dies", "step"),
    in_shard(
        "kills", [("before", True, 27), ("before", True, 1), ("after", True, 1), ("after", False, 1)], keep=1
    ),
)
@pytest.mark.usefixtures("lived")
def test_cut_off_at_every_call(
    place: MemoryStore, clock: ManualClock, fault: Fault, dies: bool, step: int
) -> None:
    """A prune that is cut off has removed nothing, or only what it should. Each backup that is still listed
    restores, and the next prune leaves no unneeded object."""
    writes: tuple[Operation, ...] = ("put_if_absent", "put", "delete")
    places = _each_call(
        fault, _ALL if fault == "before" else writes, dies=dies, step=step, made=lambda: copy_of(place, fresh_store()),
        attempt=lambda faulty: keep(faulty, 2, clock),
    )()  # fmt: skip
    assert step * len(places) > 10
    stays = {number: EXPECTED[number] for number in (2, 3)}
    seen, before, unchanged = set(), contents(place), 0
    for left in places:
        unchanged += contents(left) == before
        if unchanged > 1 and contents(left) == before:
            continue
        found = [each.number for each in backups(left)[0]]
        seen.add(tuple(found))
        check_all(left, clock, {number: EXPECTED[number] for number in found})
        keep(left, 2, clock)
        check_all(left, clock, stays)
        manifests = {key for key in contents(left) if key.startswith("backups/")}
        assert contents(left).keys() == needed_in(left) | manifests
    assert seen == ({(0, 1, 2, 3), (2, 3)} if fault == "before" else {(2, 3)})


def _at_each_call(
    attempt: Callable[[FaultyStore], object],
    meanwhile: Callable[[MemoryStore], object],
    made: Callable[[], MemoryStore],
    *,
    step: int,
) -> list[MemoryStore]:
    """The places that are left if another call comes before the first call of the attempt, `step` calls
    later, and so on."""
    left: list[MemoryStore] = []
    while True:
        place, calls, has_happened = made(), 0, False

        def decide(
            _operation: Operation, _key: str, _number: int, place: MemoryStore = place
        ) -> Fault | None:
            nonlocal calls, has_happened
            calls += 1
            if not has_happened and calls > step * len(left):
                has_happened = True
                meanwhile(place)
            return None

        attempt(FaultyStore(place, decide=decide))
        left.append(place)
        if not has_happened:
            return left


STRIDES = in_shard("kills", [36, 12, 1], keep=1)
"""`make test` lets something else happen at every thirty-sixth of the calls at which the shard does."""


@pytest.mark.shard("kills")
@pytest.mark.parametrize("stride", STRIDES)
def test_a_backup_beside_a_prune(lived: Engine, place: MemoryStore, clock: ManualClock, stride: int) -> None:
    """A backup may run as a whole at some calls of a prune, and a prune at some calls of a backup, even if a
    backup was cut off before."""
    load(lived, "late", 7)

    def cut_off(operation: Operation, key: str, _: int) -> Fault | None:
        return "before" if operation == "put_if_absent" and key.startswith("backups/") else None

    with pytest.raises(TxnEngineError):
        lived.backup(FaultyStore(place, decide=cut_off))
    late = [*EXPECTED[3], 7, 7]
    made: set[tuple[str, int]] = set()

    def back_up(place: ObjectStore) -> None:
        made.add((place.url, lived.backup(place).number))

    def both(place: MemoryStore) -> None:
        back_up(place)
        keep(place, 1, clock)

    for attempt, meanwhile, step in (
        (back_up, lambda place: keep(place, 1, clock), 2),
        (lambda place: keep(place, 1, clock), back_up, 3),
        (lambda place: keep(place, 2, clock), both, 5),
    ):
        for left in _at_each_call(
            attempt, meanwhile, lambda: copy_of(place, fresh_store()), step=step * stride
        ):
            found = [each.number for each in backups(left)[0]]
            assert {number for url, number in made if url == left.url} <= set(found)
            check_all(left, clock, {number: late if number > 3 else EXPECTED[number] for number in found})


@pytest.mark.parametrize("stride", STRIDES)
def test_a_delete_that_comes_late(lived: Engine, place: MemoryStore, clock: ManualClock, stride: int) -> None:
    """A prune may pause before a delete while another one prunes and a backup copies the same file again."""
    old = lived.cut()
    load(lived, "late", 7)
    lived.maintenance.compact(policy=MERGE)
    for _ in range(2):  # of newer cuts, so that these stay at first
        lived.backup(place)
    made: dict[str, int] = {}

    def meanwhile(place: MemoryStore) -> None:
        keep(place, 1, clock)
        made[place.url] = lived.backup(place, cut=old.number).number

    at_each = _at_each_call(
        lambda place: keep(place, 2, clock), meanwhile, lambda: copy_of(place, fresh_store()), step=2 * stride
    )
    for left in at_each:
        number = made.get(left.url, -1)
        if number in [each.number for each in backups(left)[0]]:
            assert not check_backup(left, number).damaged
            with restored(left, clock, number) as again:
                assert accounts_in(again) == EXPECTED[3]
            made[left.url] = -1
    assert list(made.values()).count(-1) > 5 // stride


# --- damage, and programs of before -----------------------------------------------------------------------


def test_damage_stops_a_prune_before_it_removes_anything(
    lived: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A missing object of a kept backup, or a damaged manifest, stops the prune. A new backup and `keep=1`
    are the way out."""
    whole = contents(place)
    for key in sorted(needed_in(place)):
        if key == "backup.json":
            continue
        wrong = copy_of(place, fresh_store())
        wrong.delete(key)
        if not key.startswith("backups/"):
            with pytest.raises(CorruptObjectError) as error:
                keep(wrong, 4, clock)
            assert str(error.value.place).endswith(f"/{key}")
            assert contents(wrong).keys() == whole.keys() - {key}
    place.put(manifest_key(3), b"{}")
    with refused(CorruptObjectError, Reason.MANIFEST_DAMAGED):
        keep(place, 2, clock)
    made = lived.backup(place)
    assert made.counts.new_files == made.counts.files  # the damaged one may have been a removal
    assert made.generation == 3
    with refused(CorruptObjectError, Reason.MANIFEST_DAMAGED):
        keep(place, 2, clock)
    assert keep(place, 1, clock).removed == (0, 1, 2, 3)
    check_all(place, clock, {4: EXPECTED[3]})


def test_a_backup_by_an_older_program(lived: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """A backup by a program that does not know removals counts until there was a removal."""
    for number in range(4):
        manifest = next(each for each in backups(place)[0] if each.number == number)
        held = {**encoded_manifest(manifest), "write_id": "x"}
        assert held.pop("generation") == -1
        place.put(manifest_key(number), encode_json(held, "backup"))
    check_all(place, clock, EXPECTED)
    assert lived.backup(place).counts.new_files == 0
    assert keep(place, 2, clock).removed == (0, 1, 2)
    unaware = {**held, "number": 6}
    place.put(manifest_key(6), encode_json(unaware, "backup"))
    found, damaged = backups(place)
    assert ([each.number for each in found], len(damaged)) == ([3, 4], 1)
    assert damaged[0].reason is Reason.UNAWARE_OF_REMOVAL
    made = lived.backup(place)
    check = check_backup(place, made.number)
    assert (made.counts.new_files, check.damaged) == (made.counts.files, ())


def test_a_manifest_with_wrong_generations_is_refused(
    lived: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """The manifest has a right checksum and says what no writer writes."""
    keep(place, 1, clock)
    load(lived, "late", 7)
    made = lived.backup(place)
    held = encoded_manifest(made)
    log = next(each for each in held["logs"] if each["topic"] == "payments")
    others = [each for each in held["logs"] if each is not log]
    assert log["copies"] == [[[-1, 2], [4, 1]]] * 2
    for wrong in (
        {"copies": [[[-1, 2], [5, 1]]] * 2},
        {"copies": [[[-1, 2], [4, 2]]] * 2},
        {"copies": [[[-1, 2], [4, -1]]] * 2},
        {"copies": [[[-1, 2, 4]]] * 2},
        {"copies": [7, 7]},
        {"copies": [[]]},
        {"state_generations": [5, 5]},
        {"state_generations": [4]},
        {"state_generations": ["4", "4"]},
    ):
        place.put(manifest_key(5), encode_json({**held, "logs": [*others, {**log, **wrong}]}, "backup"))
        with pytest.raises(CorruptObjectError):
            restore(place, fresh_store(), clock=clock)
    for wrong in (
        {"generation": 5},
        {"generation": -2},
        {"objects": [{**held["objects"][0], "generation": 9}]},
    ):
        place.put(manifest_key(5), encode_json({**held, **wrong}, "backup"))
        with pytest.raises(CorruptObjectError):
            restore(place, fresh_store(), clock=clock)
    for wrong in ({"kept": [1, 1]}, {"kept": [9]}, {"kept": 3}, {"kept": [3], "created_ms": -1}):
        place.put(manifest_key(4), encode_json({"number": 4, "created_ms": 1, **wrong}, "backup"))
        place.put(
            manifest_key(5), encode_json({**held, "generation": -1, "logs": others, "objects": []}, "backup")
        )
        _, damaged = backups(place)
        assert damaged
    with opened(lived.store, clock) as again:
        assert accounts_in(again)[-1] == 7
