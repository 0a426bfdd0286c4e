"""The audit of a large store reads objects in parts and keeps little of each, with the same report with and
without threads."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from storage.memory import MemoryStore
from storage.store import ObjectInfo
from tests.verify import test_damage
from tests.verify.damage import KINDS, Damage, one_per_code
from tests.verify.raw_ledger import Ledger, marker
from tests.verify.story import Story, healthy
from txn_engine.verify import raw_object, verify_store
from txn_engine.verify.audited_partition import AbortedEntry, AbortedIndex
from txn_engine.verify.file_table import DataFile, FileTable
from txn_engine.verify.ranged_file import RangedFile

assert test_damage.KINDS is KINDS
FILES = [
    kind for kind in KINDS if any(code.startswith(("data-file", "snapshot", "entry")) for code in kind[2])
]


class Counting(MemoryStore):
    """A store that records its calls, their threads, and the largest number of bytes that it returned at
    once."""

    def __init__(self, source: MemoryStore) -> None:
        super().__init__()
        self._shelf = source._shelf
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.largest = 0

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.threads.add(threading.get_ident())

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        self._note(f"get {key}")
        data = super().get(key, max_bytes=max_bytes)
        self.largest = max(self.largest, len(data))
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._note(f"get {key} {start} {length}")
        self.largest = max(self.largest, length)
        return MemoryStore.get(self, key)[start : start + length]

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._note(f"list {prefix}")
        return super().list(prefix, start_after=start_after)


def test_without_workers_everything_is_asked_by_the_caller_in_one_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without workers the caller makes all calls itself, in the same order every time, as a simulator needs
    it. It starts no thread."""
    store = healthy().ledger.store
    first, second = Counting(store), Counting(store)
    started_by: list[int] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started_by.append(threading.get_ident())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    assert verify_store(first, workers=0).ok
    assert verify_store(second, workers=0).ok
    assert threading.get_ident() not in started_by  # what earlier tests have left may start some
    assert first.threads == {threading.get_ident()}
    assert first.calls == second.calls
    assert len(first.calls) > len(list(store.list("")))


@pytest.mark.parametrize("workers", [0, 1, 8])
def test_the_report_does_not_depend_on_the_workers(workers: int) -> None:
    """The findings and figures are the same with any number of workers."""
    story = healthy()
    story.ledger.flip(story.path("payments/0/first"), 40)
    story.ledger.store.delete(story.entry("payments", 1, 3))
    wanted = verify_store(story.ledger.store)
    found = verify_store(story.ledger.store, workers=workers)
    assert found.findings == wanted.findings
    assert len(found.findings) == 2
    assert found.stats.partitions == wanted.stats.partitions
    assert (found.stats.objects, found.stats.bytes) == (wanted.stats.objects, wanted.stats.bytes)


@pytest.fixture
def read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the audit read every object in parts, like a large one."""
    monkeypatch.setattr(raw_object, "WHOLE_BYTES_MAX", 0)
    monkeypatch.setattr(raw_object, "PART_BYTES", 100)


@pytest.mark.usefixtures("read_in_parts")
@pytest.mark.parametrize(("do", "codes"), one_per_code(FILES))
def test_damage_is_named_in_an_object_read_in_parts(do: Damage, codes: set[str]) -> None:
    """Damage in an object that is read in parts is named as in one that is read whole."""
    story = healthy()
    key = do(story)
    errors = [
        found for found in verify_store(story.ledger.store, workers=0).findings if found.severity == "error"
    ]
    assert {finding.code for finding in errors} == codes, [str(finding) for finding in errors]
    assert key in {finding.object for finding in errors}


def test_a_large_data_file_is_never_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large data file is never in memory as a whole: its checksum is computed part by part, and two columns
    of its records are read, one buffer at a time."""
    ledger = Ledger()
    ledger.create()
    ledger.topic("payments", 1)
    row = ledger.batch("payments", 0, 8, 0, 0, count=100_000)
    ledger.entry("payments", 0, row)
    size = row["data_bytes"]
    monkeypatch.setattr(raw_object, "WHOLE_BYTES_MAX", size // 4)
    monkeypatch.setattr(raw_object, "PART_BYTES", size // 10)
    monkeypatch.setattr(raw_object, "BUFFER_BYTES", size // 10)
    store = Counting(ledger.store)
    report = verify_store(store, workers=0)
    assert report.ok, [str(finding) for finding in report.findings]
    assert report.stats.records == 100_000
    assert len(store.calls) > 20
    assert store.largest <= size // 8


def test_progress_is_told() -> None:
    """Progress says what is read, how much of it is done and how much there is, and ends with all of it."""
    story = healthy()
    told: list[tuple[str, int, int]] = []
    verify_store(story.ledger.store, progress=lambda *what: told.append(what))
    assert ("payments-0 entries", 7, 7) in told
    assert ("payments-0 data files", 5, 5) in told
    assert all(0 < done <= total for _, done, total in told)


# --- what is kept -----------------------------------------------------------------------------------------


def file_of(number: int, status: str = "live", **changed: object) -> DataFile:
    """A data file of ten records."""
    values: dict[str, object] = {
        "status": status,
        "died_ms": -1,
        "producer_id": number % 7,
        "producer_epoch": 0,
        "base_offset": 10 * number,
        "last_offset": 10 * number + 9,
        "record_count": 10,
        "first_timestamp": number,
        "max_timestamp": number + 1,
        "data_path": f"data/{10 * number:020d}-p{number % 7}-e0-{number:032x}.parquet",
        "data_bytes": 1_000 + number,
        "checksum": f"{number * 3:032x}",
        **changed,
    }
    return DataFile(**values)  # type: ignore[arg-type]


def test_files_are_kept_in_little_room() -> None:
    """A log of many small entries names many files, so each may take no more than about 220 bytes."""
    count = 8_000
    table = FileTable()
    files = (file_of(number) for number in range(count))
    tracemalloc.start()
    try:
        for file in files:
            table.put(file)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / count < 300
    assert table.get(file_of(777).data_path) == file_of(777)


def test_files_come_back_as_they_were_put() -> None:
    """Files are returned in the order of their offsets, even if a name differs from its row, or two files
    begin at one offset."""
    odd = [
        file_of(1, data_path="data/strange.parquet"),
        file_of(2, producer_epoch=5),
        file_of(3, checksum="?"),
        file_of(4, data_path=f"data/{40:020d}-p004-e0-{4:032x}.parquet"),
        file_of(5, "aborted", died_ms=77),
        file_of(5, data_path=f"data/{0:020d}-p-1-e-1-{99:032x}.parquet", producer_id=-1, producer_epoch=-1),
    ]
    table = FileTable()
    for file in reversed(odd):
        table.put(file)
    wanted = sorted(odd, key=lambda file: (file.base_offset, file.data_path))
    assert list(table.in_order()) == wanted
    assert all(table.get(file.data_path) == file for file in odd)
    assert table.records() == {"live": 50, "aborted": 10}


def test_settling_and_forgetting_files() -> None:
    """Each file can get a status and a time of death. Forgotten files leave nothing behind, however many
    there were."""
    table = FileTable()
    for number in range(3_000):
        table.put(file_of(number))
    table.settle(file_of(5).data_path, "replaced", 42)
    table.settle("data/nothing.parquet", "replaced", 42)
    assert table.get(file_of(5).data_path) == file_of(5, "replaced", died_ms=42)
    assert [file.base_offset for file in table.dead_by(42)] == [50]
    assert table.dead_by(41) == []
    table.forget([file_of(number).data_path for number in range(2_990)])
    assert len(table) == 10
    assert [file.base_offset for file in table.in_order()] == [10 * number for number in range(2_990, 3_000)]
    assert file_of(5).data_path not in table
    assert table.mark_present(file_of(2_995).data_path) == file_of(2_995).last_offset
    assert table.mark_present(file_of(5).data_path) is None
    assert len(list(table.absent())) == 9
    assert [file.base_offset for file in table.between(29_910, 29_925)] == [29_910, 29_920]
    assert [file.base_offset for file in table.across(29_915)] == [29_910]
    assert table.across(29_910) == []
    assert len(table.ending_below(29_920)) == 2


def test_the_aborted_index() -> None:
    """The aborted index is in the order of the markers, and a trim drops the ranges that ended below it."""
    index = AbortedIndex()
    entries = [AbortedEntry(number, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(5)]
    for entry in entries:
        index.add(entry)
    assert list(index) == entries
    index.drop_below(25)
    assert list(index) == entries[2:]
    index.drop_below(1_000)
    assert len(index) == 0


def test_a_file_over_parts() -> None:
    """Arrow reads a ranged file like any other file."""
    data = bytes(range(256)) * 4
    file = RangedFile(lambda start, length: data[start : start + length], len(data))
    with pa.PythonFile(file, mode="r") as arrow:
        assert arrow.size() == len(data)
        arrow.seek(250)
        assert arrow.read(10) == data[250:260]
        assert arrow.tell() == 260
        assert arrow.read() == data[260:]
        assert arrow.read(5) == b""


def test_more_transactions_than_are_listed_of_a_kind() -> None:
    """A log that is bad everywhere gives twenty findings of a kind, and a count."""
    story: Story = healthy()
    for _ in range(25):
        story.ledger.entry("payments", 0, marker(0, 2, "abort", story.abort_row))
    report = verify_store(story.ledger.store, workers=0)
    assert [finding.code for finding in report.findings] == ["marker-repeated"] * 20
    assert report.stats.findings_not_listed == 5
