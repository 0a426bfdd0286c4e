"""What a kept cut reads and is gone: found by listings, and named by every tool that looks at cuts."""

from __future__ import annotations

import pytest

from tests.engine.conftest import SCHEMA, payments
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError
from txn_engine.log.cut_format import Cut
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.verify import VerifyReport, verify_store

HOUR_MS = 3_600_000
FOLDER = "topics/keyed/0/0"


def errors_of(report: VerifyReport) -> set[tuple[str, str]]:
    return {(found.code, found.object) for found in report.findings if found.severity == "error"}


def replaced(engine: Engine, clock: ManualClock, *, days: int = 0) -> tuple[Cut, list[str]]:
    """A cut, and the data files that only it reads since the topic was compacted. After two days the log has forgotten
    them."""
    engine.admin.create_topic("keyed", schema=SCHEMA, key="account_id", cleanup_policy="compact")
    log = engine.partition("keyed", 0)
    for account in (1, 2, 1):
        log.append(payments(7, account))
    cut = engine.cut()
    files = [info.key for info in engine.store.list(f"{FOLDER}/data/")]
    assert engine.maintenance.compact("keyed").partitions
    for _ in range(days):
        clock.advance(26 * HOUR_MS)
        engine.maintenance.clean()
        log.append(payments(50))
    return cut, files


@pytest.mark.parametrize("days", [0, 3])
def test_a_file_that_only_a_cut_reads(engine: Engine, clock: ManualClock, days: int) -> None:
    """A file that was replaced since is missed as long as the cut is kept, by the audit and by listing."""
    cut, files = replaced(engine, clock, days=days)
    assert engine.missing_of_cuts() == []
    assert engine.admin.verify().ok
    lost = files[0]
    engine.store.delete(lost)
    assert errors_of(engine.admin.verify()) == {("data-file-missing", lost)}
    assert errors_of(verify_store(engine.store, check_data=False)) == {("data-file-missing", lost)}
    (found,) = engine.missing_of_cuts()
    assert (found.topic, found.partition) == ("keyed", 0)
    assert isinstance(found.error, CorruptObjectError)
    assert (found.error.reason, found.error.place) == (Reason.DATA_FILE_MISSING, lost)
    assert engine.missing_of_cuts(with_files=False) == []
    engine.delete_cut(cut)
    assert engine.missing_of_cuts() == []
    assert not errors_of(engine.admin.verify())


@pytest.mark.parametrize("days", [0, 3])
def test_a_damaged_file_that_only_a_cut_reads(engine: Engine, clock: ManualClock, days: int) -> None:
    _, files = replaced(engine, clock, days=days)
    data = bytearray(engine.store.get(files[1]))
    data[60] ^= 0x55
    engine.store.delete(files[1])
    engine.store.put(files[1], bytes(data))
    assert errors_of(engine.admin.verify()) == {("data-file-damaged", files[1])}


def test_a_snapshot_that_a_cut_reads(engine: Engine, clock: ManualClock) -> None:
    """A missing snapshot is found by listing alone."""
    cut, _ = replaced(engine, clock)
    (log,) = (topic.partitions[0] for topic in cut.topics if topic.topic == "keyed")
    key = f"{FOLDER}/snapshots/{log.snapshot:020d}.parquet"
    engine.store.delete(key)
    (found,) = engine.missing_of_cuts(with_files=False)
    assert found.error.place == key
    assert ("cut-unreadable", f"cuts/{cut.number:020d}/cut.json") in errors_of(engine.admin.verify())


def test_a_file_that_only_a_table_reads(engine: Engine, clock: ManualClock) -> None:
    """The contents of a file that a published version lists are read as well."""
    pytest.importorskip("deltalake", reason="publishing needs the extra")
    cut, files = replaced(engine, clock)
    engine.tables.publish("keyed", ("delta",), cut=cut)
    engine.delete_cut(cut)
    for _ in range(2):
        clock.advance(26 * HOUR_MS)
        engine.maintenance.clean()
        engine.partition("keyed", 0).append(payments(51))
    assert engine.admin.verify().ok
    data = bytearray(engine.store.get(files[0]))
    data[60] ^= 0x55
    engine.store.delete(files[0])
    engine.store.put(files[0], bytes(data))
    assert errors_of(engine.admin.verify()) == {("data-file-damaged", files[0])}


def test_a_cut_whose_object_is_lost(engine: Engine, clock: ManualClock) -> None:
    """Only the claim to its number is left, as if the cut were being made. The audit warns after an hour."""
    engine.partition("payments", 0).append(payments(1))
    cut = engine.cut()
    key = f"cuts/{cut.number:020d}/cut.json"
    engine.store.delete(key)
    for hours, warned in ((0.5, set()), (0.6, {("cut-lost", key)})):
        clock.advance(int(hours * HOUR_MS))
        engine.partition("payments", 0).append(payments(2))
        report = engine.admin.verify()
        assert report.ok
        assert {(found.code, found.object) for found in report.findings} == warned
