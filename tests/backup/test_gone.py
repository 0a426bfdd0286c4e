"""Objects of earlier backups that are gone: the next backup finds that out, and is whole again."""

from __future__ import annotations

import pytest

from storage import AccessDeniedError, MemoryStore, StorageError
from storage.errors import ArchivedObjectError
from storage.reasons import StoreReason
from tests.backup.conftest import fresh_store, load, opened, places_in, restored
from tests.suite.tiers import in_shard
from tests.support.faults import FaultyStore
from tests.support.refusals import damaged_at, refused
from txn_engine import Engine
from txn_engine.backup import backups, check_backup, look_at_backups, prune, restore
from txn_engine.backup.copying import COPY_AGAIN
from txn_engine.backup.place import PLACE_KEY
from txn_engine.errors import CorruptObjectError, InvalidRequestError, StoreAccessError, TxnEngineError
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock


def shared(place: MemoryStore) -> list[str]:
    """The objects that a later backup goes by: all but what says that there are backups."""
    return [
        info.key for info in place.list("") if info.key != PLACE_KEY and not info.key.startswith("backups/")
    ]


def with_a_group(engine: Engine) -> None:
    consumer = engine.consumer(group_id="sums")
    consumer.subscribe(["payments"])
    consumer.poll()
    consumer.commit()


@pytest.mark.parametrize(
    ("is_pruned", "grows"),
    in_shard("kills", [(True, True), (True, False), (False, True), (False, False)], keep=1),
)
def test_what_is_gone_is_copied_again(
    engine: Engine, place: MemoryStore, clock: ManualClock, is_pruned: bool, grows: bool
) -> None:
    """If any object of the backup before is gone, or all of them are, the next backup copies it again."""
    load(engine, "one", 1, 2)
    with_a_group(engine)
    engine.backup(place)
    if is_pruned:
        load(engine, "two", 3)
        engine.backup(place)
        prune(place, keep=1, execute=True)
    keys = shared(place)
    assert {name for name in ("states", "data", "topics") if any(f"{name}/" in key for key in keys)} == {
        "states",
        "data",
        "topics",
    }
    for number, gone in enumerate([*([key] for key in keys), keys]):
        for key in gone:
            place.delete(key)
        if grows:
            load(engine, f"more-{number}", 10 + number)
        engine.backup(place)
        assert not check_backup(place).damaged
    with restored(place, clock) as again:
        assert places_in(again) == places_in(engine)


def test_what_was_cut_short_is_named(engine: Engine, place: MemoryStore) -> None:
    """If an object of the backup before has another size, the next backup fails and names it. Once somebody has
    moved it away, it is copied again."""
    load(engine, "one", 1, 2)
    with_a_group(engine)
    engine.backup(place)
    load(engine, "two", 3)
    for key in shared(place):
        whole = place.get(key)
        place.put(key, whole[:-3])
        if not key.startswith("states/"):  # a state is read by its log alone, and may be another one by now
            with damaged_at(key):
                engine.backup(place)
        place.delete(key)
        engine.backup(place)
        assert not check_backup(place).damaged


def test_a_check_says_what_helps(engine: Engine, place: MemoryStore) -> None:
    """A check names an object that is gone, and the backup that it advises makes the place whole."""
    load(engine, "one", 1)
    engine.backup(place)
    (gone, *_) = [key for key in shared(place) if "/data/" in key]
    place.delete(gone)
    (found,) = check_backup(place).damaged
    assert str(found.place).endswith(gone)
    assert found.action == COPY_AGAIN
    engine.backup(place)
    assert not check_backup(place).damaged


def test_a_look_finds_archived_files(
    engine: Engine, place: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data file of the newest backup that is listed, and that the store does not give, is named by a mere look."""
    load(engine, "one", 1)
    engine.backup(place)
    seen = look_at_backups(place)
    assert seen is not None
    assert seen.missing is None

    def archived(*_: object) -> bytes:
        raise ArchivedObjectError("403 InvalidObjectState", reason=StoreReason.ARCHIVED)

    monkeypatch.setattr(MemoryStore, "get_range", archived)
    seen = look_at_backups(place)
    assert seen is not None
    assert isinstance(seen.missing, CorruptObjectError)
    assert seen.missing.reason is StoreReason.ARCHIVED


@pytest.mark.parametrize("kind", [AccessDeniedError, ArchivedObjectError])
def test_a_refused_read_is_told_in_the_stores_words(
    engine: Engine, place: MemoryStore, clock: ManualClock, kind: type[StorageError]
) -> None:
    """If the store refuses to give a data file, the backup ends with the store's own answer and its advice."""
    load(engine, "one", 1)

    def refuses(operation: str, key: str) -> StorageError:
        return kind(
            f"{operation} failed: 403 Code",
            place=f"s3://b/{key} (http://h:9000)",
            action="the advice",
            reason=StoreReason.ARCHIVED if kind is ArchivedObjectError else None,
        )

    store = FaultyStore(
        engine.store,
        decide=lambda operation, key, _: "before" if operation == "get" and "/data/" in key else None,
        error=refuses,
    )
    with opened(store, clock) as limited, pytest.raises((StoreAccessError, CorruptObjectError)) as refusal:
        limited.backup(place)
    assert "403 Code" in refusal.value.seen
    assert refusal.value.action == "the advice"


def test_what_says_that_there_are_backups(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """If backup.json is gone, every look names it, the backups can be restored, a restore that was cut off goes on, and
    the next backup of the store puts it again. One of another store is refused.
    """
    load(engine, "one", 1, 2)
    engine.backup(place)
    cut_off = FaultyStore(
        fresh_store(), decide=lambda operation, key, _: "before" if "/data/" in key else None
    )
    place.delete(PLACE_KEY)
    _, (listed,) = backups(place)
    seen, checked = look_at_backups(place), check_backup(place)
    assert seen is not None
    assert {listed.reason, getattr(seen.missing, "reason", None)} == {Reason.BACKUP_PLACE_LOST}
    assert [error.reason for error in checked.damaged] == [Reason.BACKUP_PLACE_LOST]
    with pytest.raises(TxnEngineError):
        restore(place, cut_off, clock=clock)
    with opened(fresh_store(), clock) as other, refused(InvalidRequestError, Reason.PLACE_OF_ANOTHER_STORE):
        other.backup(place)
    load(engine, "two", 3)
    engine.backup(place)
    assert backups(place)[1] == []
    assert not check_backup(place).damaged
    restore(place, cut_off.inner, number=0, clock=clock)  # the one that was begun
    with restored(place, clock) as again:
        assert places_in(again) == places_in(engine)


def test_a_manifest_that_is_gone(engine: Engine, place: MemoryStore) -> None:
    """Numbers of backups stay taken, also of removed ones: a gap is a lost manifest, and is named."""
    for account in range(4):
        load(engine, f"run-{account}", account)
        engine.backup(place)
    prune(place, keep=3, execute=True)
    assert backups(place)[1] == []
    key = f"backups/{2:020d}.json"
    place.delete(key)
    found, damaged = backups(place)
    assert [each.number for each in found] == [1, 3]
    assert [str(each.place).endswith(key) for each in damaged] == [True]
    seen = look_at_backups(place)
    assert seen is not None
    assert len(seen.damaged) == 1
