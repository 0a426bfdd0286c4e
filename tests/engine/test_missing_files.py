"""Data files that readers need and that are gone are found by listing. A file that no reader needs is not missed."""

from __future__ import annotations

import pytest

from storage.errors import ArchivedObjectError
from storage.reasons import StoreReason
from tests.engine.conftest import payments
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError, UnknownTopicOrPartitionError
from txn_engine.log.missing_files import missing_entries, refused_files
from txn_engine.maintain import MaintenancePolicy
from txn_engine.producer import Producer
from txn_engine.reasons import Reason


def files_of(engine: Engine, partition: int = 0) -> list[str]:
    return [info.key for info in engine.store.list(f"topics/payments/0/{partition}/data/")]


def written(engine: Engine, *, undecided_in: int) -> Producer:
    """Two committed files in partition 0, and one of a transaction that the producer has open."""
    log = engine.partition("payments", 0)
    for account in (1, 2):
        log.append(payments(account))
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(3), partition=undecided_in).result()
    return producer


def test_a_store_with_all_of_its_files(engine: Engine) -> None:
    assert engine.admin.find_missing_files() == []
    engine.partition("payments", 0).append(payments(1, 2))
    assert engine.admin.find_missing_files() == []
    with pytest.raises(UnknownTopicOrPartitionError):
        engine.admin.find_missing_files("nowhere")


def test_files_that_readers_need(engine: Engine) -> None:
    """A committed file and one of an open transaction are missed. One error for each partition names the first object
    and counts the others."""
    written(engine, undecided_in=1)
    committed, (undecided,) = files_of(engine), files_of(engine, 1)
    for key in (*committed, undecided):
        engine.store.delete(key)
    found = {(each.topic, each.partition): each.error for each in engine.admin.find_missing_files("payments")}
    assert set(found) == {("payments", 0), ("payments", 1)}
    for error in found.values():
        assert isinstance(error, CorruptObjectError)
        assert error.reason is Reason.DATA_FILE_MISSING
    assert found["payments", 0].place in committed
    assert "1 more" in found["payments", 0].seen
    assert found["payments", 1].place == undecided


@pytest.mark.parametrize("lost", [0, 2])
def test_entries_that_a_snapshot_spares_readers(engine: Engine, lost: int) -> None:
    """The first entry of a log, and one behind a snapshot, are missed by listing, though nobody reads them."""
    log = engine.partition("payments", 0)
    for account in range(4):
        log.append(payments(account))
        if account in (1, 3):
            assert engine.admin.snapshot("payments")
    states = engine.look_at_everything()[1].states
    assert missing_entries(engine.logs, states) == []
    key = f"topics/payments/0/0/log/{lost:020d}.parquet"
    engine.store.delete(key)
    (found,) = missing_entries(engine.logs, states)
    assert isinstance(found.error, CorruptObjectError)
    assert (found.error.place, found.error.reason) == (key, Reason.ENTRY_MISSING)


def test_a_file_of_another_size(engine: Engine) -> None:
    engine.partition("payments", 0).append(payments(1))
    (key,) = files_of(engine)
    engine.store.put(key, engine.store.get(key) + b"more")
    (found,) = engine.admin.find_missing_files()
    assert (found.partition, found.error.place) == (0, key)


def test_a_file_that_the_store_does_not_give(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data file that is there and cannot be read is named with the store's answer, unless nobody needs it."""
    for account in (1, 2):
        engine.partition("payments", 0).append(payments(account))
    looked = engine.look_at_everything()[1]
    assert refused_files(engine.logs, looked.states) == []

    def archived(*_: object) -> bytes:
        raise ArchivedObjectError("403 InvalidObjectState", reason=StoreReason.ARCHIVED)

    monkeypatch.setattr(type(engine.store), "get_range", archived)
    (found,) = refused_files(engine.logs, looked.states)
    assert (found.topic, found.partition, found.error.reason) == ("payments", 0, StoreReason.ARCHIVED)
    monkeypatch.undo()
    engine.maintenance.compact("payments", policy=MaintenancePolicy(min_files=2))
    for key in files_of(engine)[:2]:
        engine.store.delete(key)
    assert refused_files(engine.logs, looked.states) == []


def test_files_that_nobody_needs(engine: Engine) -> None:
    """A file that was merged into another one, and a file of an aborted transaction, may be gone."""
    producer = written(engine, undecided_in=0)
    producer.abort_transaction()
    producer.close()
    before = files_of(engine)
    engine.maintenance.compact("payments", policy=MaintenancePolicy(min_files=2))
    for key in before:
        engine.store.delete(key)
    assert len(files_of(engine)) == 1
    assert engine.admin.find_missing_files() == []
