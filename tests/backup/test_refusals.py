"""A backup or a restore that is refused raises one clear error and leaves nothing half done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from storage import LocalStore, MemoryStore, ObjectStore, encode_json
from storage.reasons import StoreReason
from tests.backup.conftest import SCHEMA, begun, fresh_store, load, opened, restored, set_up, write
from tests.support.faults import no_pause
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import Engine
from txn_engine.backup import backups, check_backup, look_at_backups, prune, restore
from txn_engine.backup.manifest import encoded_manifest
from txn_engine.backup.place import PLACE_KEY, BackupPlace, manifest_key
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.cut_format import Part, cut_key, encoded_cut
from txn_engine.log.erasures import erasure_key
from txn_engine.log.objects import Objects
from txn_engine.log.store_config import RESTORED_KEY, root_of
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock


def keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list("")]


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_only_new_files_are_copied(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """A backup copies the files that no earlier backup has."""
    load(engine, "one", 1)
    first = engine.backup(place)
    assert (first.counts.new_files, first.counts.files) == (2, 2)
    again = engine.backup(place)
    assert (again.number, again.counts.new_files, again.counts.new_bytes) == (1, 0, 0)
    before = set(keys(place))
    for number in range(3):
        load(engine, f"more-{number}", number)
    third = engine.backup(place)
    assert (third.counts.new_files, third.counts.files) == (6, 8)
    added = set(keys(place)) - before
    assert sum("/data/" in key for key in added) == 6
    policy = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)
    assert engine.maintenance.compact(policy=policy).partitions
    fourth = engine.backup(place)
    assert (fourth.counts.new_files, fourth.counts.files) == (2, 2)
    for number, expected in ((0, [1, 1]), (2, [0, 0, 1, 1, 1, 1, 2, 2]), (3, [0, 0, 1, 1, 1, 1, 2, 2])):
        with restored(place, clock, number) as later:
            assert accounts_in(later) == expected


def test_every_damaged_object_is_named_and_refuses_the_restore(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """If an object has a changed byte, is cut short or is missing, the restore fails and a check names it."""
    load(engine, "one", 1)
    consumer = engine.consumer(group_id="sums")
    consumer.subscribe(["payments"])
    consumer.poll()
    consumer.commit()
    engine.backup(place)
    whole = {key: place.get(key) for key in keys(place)}
    assert len(whole) > 6
    for key, data in whole.items():
        for wrong in (flipped(data), data[:-7], None):
            place.delete(key)
            if wrong is not None:
                place.put(key, wrong)
            target = fresh_store()
            if (key, wrong) == (PLACE_KEY, None):
                restore(place, target, clock=clock)  # tests/backup/test_gone.py
                place.put(key, data)
                continue
            with pytest.raises((CorruptObjectError, InvalidRequestError)) as error:
                restore(place, target, clock=clock)
            if key not in (PLACE_KEY, manifest_key(0)):
                assert str(error.value.place).endswith(key)
                (found,) = check_backup(place).damaged
                assert str(found.place).endswith(key)
            if keys(target):
                with refused(InvalidRequestError, Reason.RESTORE_UNFINISHED):
                    opened(target, clock)
            place.put(key, data)
    assert not check_backup(place).damaged
    with restored(place, clock) as again:
        assert accounts_in(again) == [1, 1]


def test_a_restore_needs_an_empty_place(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """A restore writes nothing if anything is in the place: a store, a part of one, or a file of somebody else. What a
    proof of put-if-absent has left does not matter."""
    load(engine, "one", 1)
    engine.backup(place)
    load(engine, "two", 2)
    engine.backup(place)
    other = fresh_store()
    set_up(other)
    for key in (
        "topics/payments/0.json",
        "cuts/x",
        "producer_ids/0.json",
        "proofs/p/0/0.json",
        "restored.json",
        ".DS_Store",
        "reports/2026/sales.csv",
        "inner/store.json",
    ):
        full = fresh_store()
        full.put(key, b"something")
        with refused(InvalidRequestError, Reason.PLACE_NOT_EMPTY):
            restore(place, full, clock=clock)
        assert keys(full) == [key]
    before = keys(other)
    for store in (engine.store, other):
        with refused(InvalidRequestError, Reason.PLACE_NOT_EMPTY):
            restore(place, store, clock=clock)
    assert keys(other) == before
    foreign = fresh_store()
    foreign.put("probes/0123456789abcdef0123456789abcdef/taken", b"first writer")
    restore(place, foreign, clock=clock)
    with refused(InvalidRequestError, Reason.PLACE_NOT_EMPTY):
        restore(place, foreign, clock=clock)


def test_an_interrupted_restore_goes_on_with_its_own_backup(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """Another backup of the same place, and backups of another place, are refused there."""
    load(engine, "one", 1)
    engine.backup(place)
    load(engine, "two", 2)
    engine.backup(place)
    target = fresh_store()
    made = restore(place, target, number=0, clock=clock)
    target.delete(f"{root_of(made.store_id)}/{RESTORED_KEY}")
    with refused(InvalidRequestError, Reason.OTHER_RESTORE_BEGUN):
        restore(place, target, number=1, clock=clock)
    elsewhere = fresh_store()
    engine.backup(elsewhere)
    with refused(InvalidRequestError, Reason.OTHER_RESTORE_BEGUN):
        restore(elsewhere, target, clock=clock)
    assert restore(place, target, clock=clock).backup.number == 0
    with opened(target, clock) as again:
        assert accounts_in(again) == [1, 1]


def test_a_restore_that_goes_on_checks_what_is_there(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A strange snapshot or entry in the restored log is damage."""
    load(engine, "one", 1)
    engine.backup(place)
    target = fresh_store()
    made = restore(place, target, clock=clock)
    target.delete(f"{root_of(made.store_id)}/{RESTORED_KEY}")
    (snapshot, *_) = [key for key in keys(target) if "/snapshots/" in key]
    other = fresh_store()
    restore(place, other, clock=clock)
    (entry, *_) = [key for key in keys(target) if key.endswith("/log/00000000000000000002.parquet")]
    for key, strange in ((snapshot, "/snapshots/"), (entry, "/log/")):
        held = target.get(key)
        (wrong, *_) = [each for each in keys(other) if strange in each and other.get(each) != held][-1:]
        target.put(key, other.get(wrong))
        with pytest.raises(CorruptObjectError):
            restore(place, target, clock=clock)
        target.put(key, held)
    restore(place, target, clock=clock)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda engine, place: engine.backup(engine.store), Reason.PLACES_OVERLAP),
        (lambda engine, place: engine.backup(place, cut=7), Reason.CUT_NOT_FOUND),
        (lambda engine, place: engine.backup(place, cut=engine.cut(["payments"]).number), Reason.PARTIAL_CUT),
        (lambda engine, place: restore(engine.store, place), Reason.NO_BACKUPS),
        (lambda engine, place: check_backup(place), Reason.NO_BACKUPS),
        (lambda engine, place: backups(place), Reason.NO_BACKUPS),
    ],
)
def test_wrong_calls(
    engine: Engine, place: MemoryStore, make: Callable[[Engine, MemoryStore], object], reason: Reason
) -> None:
    """Each wrong call has its reason, and no backup begins."""
    with refused(InvalidRequestError, reason):
        make(engine, place)
    assert not set(keys(place)) - {PLACE_KEY}


def test_a_place_belongs_to_one_store(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """Another store's backup into this place, or into a store, is refused."""
    engine.backup(place)
    with refused(InvalidRequestError, Reason.BACKUP_NOT_FOUND):
        restore(place, fresh_store(), number=3, clock=clock)
    other = fresh_store()
    set_up(other)
    with opened(other, clock) as another:
        with refused(InvalidRequestError, Reason.PLACE_OF_ANOTHER_STORE):
            another.backup(place)
        with refused(InvalidRequestError, Reason.PLACE_HOLDS_A_STORE):
            another.backup(engine.store)
        another.cut()
        with refused(InvalidRequestError, Reason.CUT_NOT_FOUND):
            another.backup(fresh_store(), cut=5)


def test_an_interrupted_backup_cannot_be_restored(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A backup without a manifest is not a backup."""
    engine.backup(place)
    place.delete(manifest_key(0))
    with refused(InvalidRequestError, Reason.BACKUP_NOT_FOUND):
        restore(place, fresh_store(), clock=clock)


def test_a_cut_that_is_too_old(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """The entries that tell which runs are inside are sealed. The backup is refused, because a run could be lost or
    repeated.
    """
    hanging = begun(engine)
    write(hanging, 7, partition=0)
    load(engine, "outside", 1)
    cut = engine.cut()
    hanging.abort_transaction()
    engine.coordinator.write_pending_markers()
    policy = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)
    for day in range(3):
        clock.advance(DAY_MS)
        load(engine, f"day-{day}", day)
        engine.admin.snapshot()
        engine.maintenance.retain(policy=policy)
        engine.maintenance.seal()
    with refused(InvalidRequestError, Reason.CUT_TOO_OLD):
        engine.backup(place, cut=cut.number)
    engine.backup(place)
    with restored(place, clock) as again:
        assert accounts_in(again) == [0, 0, 1, 1, 1, 1, 2, 2]


def test_a_manifest_that_no_writer_writes_is_refused(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """The manifest has a right checksum. A restore from it writes nothing."""
    load(engine, "one", 1)
    manifest = engine.backup(place)
    held = encoded_manifest(manifest)
    log = next(each for each in held["logs"] if each["topic"] == "payments")
    strange: list[dict[str, object]] = [
        {"objects": [{"key": "store.json", "bytes": 1, "checksum": "0" * 32}]},
        {"objects": [{"key": "topics/../x/0.json", "bytes": 1, "checksum": "0" * 32}]},
        {"objects": [{"key": "topics/__transaction_state/0.json", "bytes": 1, "checksum": "0" * 32}]},
        {"objects": "none"},
        {"logs": []},
        {"logs": [*held["logs"], {**log, "topic": "../../etc"}]},
        {"logs": [*held["logs"], {**log, "states": ["../store", ""]}]},
        {"logs": [*held["logs"], {**log, "offsets": [0]}]},
        {"logs": [*held["logs"], {**log, "incarnation": -1}]},
        {"number": 1},
        {"store_id": "another"},
        {"next_block": 1 << 62},
        {"counts": {}},
        {"limits": {}},
    ]
    for change in strange:
        place.put(manifest_key(0), encode_json({**held, **change}, "backup"))
        target = fresh_store()
        with pytest.raises(CorruptObjectError):
            restore(place, target, clock=clock)
        assert keys(target) == []
    wrong_state = {**log, "states": log["states"][::-1], "bytes": log["bytes"][::-1]}
    others = [each for each in held["logs"] if each is not log]
    moved = {**wrong_state, "offsets": [log["offsets"][0] + 1, log["offsets"][1]]}
    place.put(manifest_key(0), encode_json({**held, "logs": [*others, moved]}, "backup"))
    with refused(CorruptObjectError, Reason.OTHER_STATE):
        restore(place, fresh_store(), clock=clock)


def test_a_topic_that_was_created_again_after_the_cut(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """The topic is backed up as it was at the cut, as long as its files exist. After that the cut is
    refused."""
    load(engine, "one", 1)
    cut = engine.cut()
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
    engine.backup(place, cut=cut.number)
    with restored(place, clock) as again:
        assert accounts_in(again) == [1, 1]
    clock.advance(2 * DAY_MS)
    engine.maintenance.remove_deleted_topics()
    elsewhere = fresh_store()
    with refused(InvalidRequestError, Reason.TOPIC_DELETED_SINCE_CUT):
        engine.backup(elsewhere, cut=cut.number)
    engine.admin.delete_topic("payments")
    with refused(InvalidRequestError, Reason.TOPIC_DELETED_SINCE_CUT):
        engine.backup(elsewhere, cut=cut.number)
    assert backups(elsewhere) == ([], [])


def test_damage_in_a_deleted_topic_is_reported_as_damage(engine: Engine, place: MemoryStore) -> None:
    """A deleted topic's files exist for 24 hours. A damaged one is not reported as deleted."""
    load(engine, "one", 1)
    cut = engine.cut()
    key = next(key for key in keys(engine.store) if "/data/" in key)
    data = engine.store.get(key)
    engine.admin.delete_topic("payments")
    engine.store.put(key, flipped(data))
    with refused(CorruptObjectError, StoreReason.CHECKSUM):
        engine.backup(place, cut=cut.number)
    engine.store.put(key, data)
    place.put(key, flipped(data))
    with refused(CorruptObjectError, StoreReason.CHECKSUM):
        engine.backup(place, cut=cut.number)


def test_a_missing_erasure_does_not_loop(engine: Engine, place: MemoryStore) -> None:
    """If the erasure is gone from the store, the log lists the erased file again. The backup fails, and does not retry
    for ever.
    """
    load(engine, "one", 1, 2)
    cut = engine.cut()
    engine.erase("payments", "account_id = 1", execute=True)
    engine.store.delete(erasure_key("payments", 0, 0))
    with refused(CorruptObjectError, Reason.OBJECT_GONE):
        engine.backup(place, cut=cut.number)
    assert backups(place) == ([], [])


def test_damage_in_an_earlier_backup_does_not_stop_the_next_one(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """The next backup does not rely on the damaged one, and copies what it needs."""
    load(engine, "one", 1)
    first = engine.backup(place)
    load(engine, "two", 2)
    second = engine.backup(place)
    place.put(manifest_key(1), b"{}")
    load(engine, "three", 3)
    third = engine.backup(place)
    assert (first.number, second.number, third.number) == (0, 1, 2)
    assert third.counts.new_files == 6, "the damaged one may be a removal: nothing of before is gone by"
    for log in (each for each in third.logs if each.state.checksum and not each.is_internal):
        place.put(log.state.key, b"x")
    load(engine, "four", 4)
    fourth = engine.backup(place)
    assert not check_backup(place).damaged
    assert [each.number for each in backups(place)[0]] == [0, 2, 3]
    assert len(backups(place)[1]) == 1
    with restored(place, clock, fourth.number) as again:
        assert accounts_in(again) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_cut_of_other_internal_partitions(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """The cut has a right checksum and says what no writer writes. A store restored from it would lack logs."""
    cut = engine.cut()
    held = encoded_cut(cut, cut.number, cut.store_id)
    engine.store.put(cut_key(cut.number, Part.CUT), encode_json({**held, "coordinator_ends": [0]}, "cut"))
    because = refused(CorruptObjectError, Reason.OTHER_INTERNAL_PARTITIONS)
    with opened(engine.store, clock) as another, because:
        another.backup(place, cut=cut.number)


def test_a_place_inside_another_store(tmp_path: Path, clock: ManualClock) -> None:
    """A store is neither set up nor restored inside another one, at any depth, nor around it. Beside it there is
    room."""
    outer = LocalStore(tmp_path / "ledger")
    set_up(outer)
    place = LocalStore(tmp_path / "backups")
    with opened(outer, clock) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        engine.backup(place)
    (tmp_path / "ledger" / "a").mkdir()
    around = LocalStore(tmp_path)
    with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
        Engine(around)
    with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
        restore(place, around, clock=clock)
    (tmp_path / "store.json").write_text('{"shop": "of somebody else"}')
    for folder in ("ledger/inner", "ledger/a/inner"):
        inner = LocalStore(tmp_path / folder)
        with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
            Engine(inner)
        with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
            restore(place, inner, clock=clock)
        assert keys(inner) == []
    restore(place, LocalStore(tmp_path / "ledger-2"), clock=clock)


@pytest.mark.parametrize("number", [5_000, (1 << 63) - 1])
def test_a_number_far_above_all_others_is_named_and_hides_no_backup(
    engine: Engine, place: MemoryStore, clock: ManualClock, number: int
) -> None:
    """An object that is no backup, under a number far above all others, is named, and everything else works on."""
    load(engine, "one", 1)
    engine.backup(place)
    place.put(manifest_key(number), b"nothing of ours")
    load(engine, "two", 2)
    assert engine.backup(place).number == 1
    found, damaged = backups(place)
    assert [each.number for each in found] == [0, 1]
    assert [each.place for each in damaged] == [f"{place.url}/{manifest_key(number)}"]
    seen = look_at_backups(place)
    assert seen is not None
    assert seen.newest is not None
    assert (seen.newest.number, len(seen.damaged), seen.missing) == (1, 1, None)
    assert not check_backup(place).damaged
    with pytest.raises(CorruptObjectError):
        check_backup(place, number)
    with restored(place, clock) as later:
        assert accounts_in(later) == [1, 1, 2, 2]
    assert prune(place, keep=1, clock=clock, execute=True, pause=no_pause).removed == (0,)
    assert engine.backup(place).number == 3


def test_backups_whose_earlier_numbers_were_taken_away_are_found(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """If somebody removed thousands of earlier backups by hand, the others are found, and the next number is theirs."""
    load(engine, "one", 1)
    made = engine.backup(place)
    at = BackupPlace.open(Objects(place, no_pause))
    assert at.put_manifest(replace(made, number=7_000), "w" * 32)
    place.delete(manifest_key(0))
    assert engine.backup(place).number == 7_001
    assert [each.number for each in backups(place)[0]] == [7_000, 7_001]
    with restored(place, clock) as later:
        assert accounts_in(later) == [1, 1]
