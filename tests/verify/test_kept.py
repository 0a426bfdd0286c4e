"""An audit that goes on from an earlier one reports the same as an audit of everything, and reads less."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from storage import open_store
from storage.memory import MemoryStore
from storage.store import ObjectInfo, ObjectStore
from tests.conftest import S3Bucket
from tests.simulator.runner import run as simulate
from tests.suite.tiers import in_shard
from tests.support.waiting import must_run, wait_for
from tests.verify import test_damage
from tests.verify.damage import KINDS, Damage, some_families
from tests.verify.raw_ledger import Ledger
from tests.verify.scale import build
from tests.verify.story import healthy, open_load
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.verify import VerifyReport, audit_folder, reading_workers, verify_store
from txn_engine.verify.findings import Place
from txn_engine.verify.partition_task import PartitionTask

assert test_damage.KINDS is KINDS


def _audit(store: ObjectStore, folder: Path, **asked: bool) -> VerifyReport:
    return verify_store(store, workers=0, kept_in=folder, **asked)


def _says_the_same(store: ObjectStore, folder: Path) -> VerifyReport:
    """Make both audits, check that they agree, and return the one that went on. It may have seen more of a
    log that was sealed since."""
    whole = verify_store(store, workers=0)
    on = _audit(store, folder)
    assert _told(on) == _told(whole)
    for ours, theirs in zip(on.stats.partitions, whole.stats.partitions, strict=True):
        assert ours.batches >= theirs.batches
        assert replace(ours, batches=theirs.batches) == theirs
    assert on.stats.records >= whole.stats.records
    assert Counter(on.stats.transactions) >= Counter(whole.stats.transactions)
    for name in ("entries", "foreign_objects", "orphan_files"):
        assert getattr(on.stats, name) == getattr(whole.stats, name), name
    return on


def _told(report: VerifyReport) -> list[str]:
    """The findings of a report. If two ids share a producer id, the id that is read later is reported, which
    may be either."""
    return sorted(
        f"{each.code} {each.producer_id}" if each.code == "producer-id-shared" else str(each)
        for each in report.findings
    )


def test_nothing_is_read_again(tmp_path: Path) -> None:
    """If nothing has changed, a second audit reads only the objects that say what the store has."""
    store = healthy().ledger.store
    first = _audit(store, tmp_path)
    assert (first.stats.unchanged, first.stats.whole_for) == (0, "there was no audit before")
    second = _says_the_same(store, tmp_path)
    assert second.stats.objects + second.stats.unchanged >= first.stats.objects
    assert second.stats.objects < 8
    assert second.stats.whole_for == ""
    third = _audit(store, tmp_path, whole=True)
    assert (third.stats.unchanged, third.stats.objects) == (0, first.stats.objects)
    assert third.stats.whole_for == "that was asked for"


def test_what_came_is_read(tmp_path: Path) -> None:
    """New entries are read and judged together with what was kept; here they leave a transaction open."""
    story = healthy()
    first = _audit(story.ledger.store, tmp_path)
    open_load(story)
    second = _says_the_same(story.ledger.store, tmp_path)
    assert second.stats.objects < first.stats.objects // 2
    assert second.stats.records > first.stats.records


@pytest.mark.parametrize(("do", "codes"), some_families())
def test_damage_since_the_last_audit_is_found(tmp_path: Path, do: Damage, codes: set[str]) -> None:
    """Damage since the last audit is found as by an audit of everything, and found again the next time."""
    story = healthy()
    assert _audit(story.ledger.store, tmp_path).ok
    do(story)
    for _ in range(2):
        assert codes <= {each.code for each in _says_the_same(story.ledger.store, tmp_path).findings}


@pytest.mark.parametrize(
    "workload",
    in_shard(
        "damage",
        ["bank", "compacted", "fork", "hanging", "lives", "pipeline", "remade", "resets", "seals", "upkeep"],
        keep=["bank"],
    ),
)
@pytest.mark.parametrize("seed", in_shard("damage", [3, 4], keep=[3]))
@pytest.mark.parametrize("moments", in_shard("damage", [4, 12], keep=1))
def test_at_any_time_of_a_run(tmp_path: Path, workload: str, seed: int, moments: int) -> None:
    """At several moments of a simulated run with faults, each audit goes on from the one before and agrees
    with a whole one. Where no earlier audit was sound, none was kept."""
    landed = simulate(workload, seed).landed
    store = MemoryStore()
    cuts = {len(landed) * number // moments for number in range(1, moments + 1)}
    went_on, was_sound = 0, False
    for number, (_, key, data, operation) in enumerate(landed, start=1):
        if operation == "delete":
            store.delete(key)
        else:
            store.put(key, data)
        if number in cuts:
            report = _says_the_same(store, tmp_path)
            assert report.stats.whole_for == ("" if was_sound else "there was no audit before")
            went_on += report.stats.unchanged
            was_sound = was_sound or report.ok
    assert went_on or moments < 12  # at a few moments of a short run no audit may have been sound


# --- saving ----------------------------------------------------------------------------------------------


class _Dying(MemoryStore):
    """A store that ends an audit at one of its calls, as a kill does."""

    def __init__(self, source: MemoryStore, calls: int) -> None:
        super().__init__()
        self._shelf = source._shelf
        self._left = calls

    def _call(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        self._call()
        return super().get(key, max_bytes=max_bytes)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._call()
        return super().list(prefix, start_after=start_after)


def _grown() -> Ledger:
    story = healthy()
    open_load(story)
    return story.ledger


@pytest.mark.parametrize("every", in_shard("damage", [1, 17], keep=[17]))
def test_an_audit_that_was_ended_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """After whichever call an audit is ended, the next audit reports what an audit of everything reports."""
    monkeypatch.setattr(audit_folder.AuditFolder, "is_time_to_save", lambda _: True)
    monkeypatch.setattr("txn_engine.verify.partition_audit.PROGRESS_EVERY", 1)
    store = _grown().store
    went_on = 0
    for calls in range(1, 400, every):
        folder = tmp_path / str(calls)
        dying = _Dying(store, calls)
        try:
            verify_store(dying, workers=0, kept_in=folder)
            ended = True
        except KeyboardInterrupt:
            ended = False
        went_on += _says_the_same(store, folder).stats.unchanged > 0
        if ended:
            break
    assert ended
    assert went_on > calls // every // 2


def test_what_was_kept_is_believed_only_whole(tmp_path: Path) -> None:
    """A kept audit that is damaged, cut short, of another version or of another store is ignored: everything
    is read, and the report says why."""
    store = healthy().ledger.store
    _audit(store, tmp_path)
    path = tmp_path / "verify.audit"
    kept = path.read_bytes()
    head, _, payload = kept.partition(b"\n")
    other = {**json.loads(head), "code": "another"}
    for changed, why in (
        (kept[:-9], "damaged"),
        (kept[:400] + bytes([kept[400] ^ 1]) + kept[401:], "damaged"),
        (b"", "damaged"),
        (b"[1, 2]\n", "damaged"),
        (json.dumps(other).encode() + b"\n" + payload, "another version"),
        (json.dumps({**other, "store_object": "x"}).encode() + b"\n" + payload, "made anew"),
    ):
        path.write_bytes(changed)
        report = _audit(store, tmp_path)
        assert (report.ok, report.stats.unchanged) == (True, 0)
        assert why in report.stats.whole_for


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, ("evil",))


def test_nothing_else_is_built_from_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle with a correct checksum that would call something is not called."""
    import xxhash

    monkeypatch.chdir(tmp_path)
    store = healthy().ledger.store
    folder = tmp_path / "kept"
    _audit(store, folder)
    path = folder / "verify.audit"
    head = json.loads(path.read_bytes().partition(b"\n")[0])
    payload = pickle.dumps(_Evil())
    head["checksum"] = xxhash.xxh3_128_hexdigest(payload)
    path.write_bytes(json.dumps(head).encode() + b"\n" + payload)
    report = _audit(store, folder)
    assert "none of an audit's classes" in report.stats.whole_for
    assert not (tmp_path / "evil").exists()


def test_a_folder_of_another_store_is_refused(tmp_path: Path) -> None:
    """The folder of another store's audit is refused, and its file stays as it is."""
    for name in ("a", "b"):
        build(tmp_path / name, 100, 100)
    stores = {name: open_store((tmp_path / name).as_uri(), create=False) for name in ("a", "b")}
    verify_store(stores["a"], kept_in=tmp_path / "kept")
    kept = (tmp_path / "kept" / "verify.audit").read_bytes()
    with pytest.raises(InvalidRequestError) as refused:
        verify_store(stores["b"], kept_in=tmp_path / "kept")
    assert refused.value.reason is Reason.AUDIT_OF_ANOTHER_STORE
    assert (tmp_path / "kept" / "verify.audit").read_bytes() == kept


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """A folder that others may write to is refused, because its content would be believed."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    with pytest.raises(InvalidRequestError) as refused:
        _audit(healthy().ledger.store, tmp_path / "kept")
    assert (refused.value.reason, refused.value.place) == (Reason.NOT_PRIVATE, str(tmp_path / "kept"))


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """The error names the path, and the file stays."""
    (tmp_path / "kept").write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidRequestError) as refused:
        _audit(healthy().ledger.store, tmp_path / "kept")
    assert (refused.value.reason, refused.value.place) == (Reason.FOLDER_UNUSABLE, str(tmp_path / "kept"))
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "mine"


def test_a_part_of_a_store_is_not_kept(tmp_path: Path) -> None:
    """An audit of one topic, or without data files, cannot be kept."""
    store = healthy().ledger.store
    with pytest.raises(InvalidRequestError) as one_topic:
        verify_store(store, kept_in=tmp_path, topics=["payments"])
    with pytest.raises(InvalidRequestError) as without_data:
        verify_store(store, kept_in=tmp_path, check_data=False)
    assert one_topic.value.reason is without_data.value.reason is Reason.CONFLICTING_ARGUMENTS


# --- processes --------------------------------------------------------------------------------------------


_EARLY = 0.02  # seconds of work before the first process: some hundred objects


class Many(NamedTuple):
    """A folder with a log of many small entries, and its number of records."""

    folder: Path
    records: int


@pytest.fixture(scope="module", params=in_shard("damage", [9_000, 30_000], keep=1))
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Many:
    """A log of many small entries, in a folder."""
    folder = tmp_path_factory.mktemp("many")
    build(folder, request.param, 10)
    return Many(folder, request.param)


def _tell(store: ObjectStore, processes: int) -> tuple[object, ...]:
    report = verify_store(store, processes=processes)
    return report.findings, report.stats.partitions, report.stats.objects, report.stats.bytes


@pytest.mark.parametrize(
    "damage", in_shard("damage", ["nothing", "entry", "file", "swapped"], keep=["entry"])
)
def test_processes_find_what_threads_find(
    tmp_path: Path, many: Many, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes find the same damage as threads, however far from the start of a log."""
    monkeypatch.setattr(reading_workers, "PROCESSES_FROM", _EARLY)
    folder = tmp_path / "copy"
    shutil.copytree(many.folder, folder)
    log = sorted((folder / "topics/payments/0/0/log").iterdir())
    data = sorted((folder / "topics/payments/0/0/data").iterdir())
    late = len(data) * 5 // 6
    if damage == "entry":
        log[late].write_bytes(log[late].read_bytes()[:-1])
    elif damage == "file":
        data[late].unlink()
    elif damage == "swapped":
        data[late].write_bytes(data[late + 1].read_bytes())
    store = open_store(folder.as_uri(), create=False)
    here, there = _tell(store, 0), _tell(store, 2)
    assert here == there
    assert bool(here[0]) == (damage != "nothing")


_RUN = """
import sys
from pathlib import Path
from storage import open_store
from txn_engine.verify import reading_workers, verify_store

def tell(what, done, total):
    print(what, done, total, flush=True)

if __name__ == "__main__":
    reading_workers.PROCESSES_FROM = float(sys.argv[2])
    report = verify_store(open_store(sys.argv[1], create=False), processes=2, progress=tell)
    print("ok", report.ok, report.stats.records, flush=True)
"""


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _in_processes(tmp_path: Path, many: Many, then: Callable[[int, list[int]], None]) -> tuple[int, str]:
    """Run an audit in a program of its own that starts processes, and do something to them."""
    program = tmp_path / "audit.py"
    program.write_text(_RUN)
    audit = subprocess.Popen(
        [sys.executable, str(program), many.folder.as_uri(), str(_EARLY)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert audit.stdout is not None
    wait_for(
        lambda: len(_children(audit.pid)) >= 3,  # the resource tracker is one
        what="the processes of the audit",
        every_s=0.002,
        meanwhile=must_run(audit),
    )
    then(audit.pid, _children(audit.pid))
    told, _ = audit.communicate(timeout=60)
    return audit.returncode, told.rstrip().rpartition("\n")[2]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are looked up in /proc")
def test_a_process_that_is_killed_costs_time_only(tmp_path: Path, many: Many) -> None:
    """If the processes of an audit are killed, the audit continues by itself with the same result."""

    def kill(_: int, children: list[int]) -> None:
        for child in children:
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, 9)

    assert _in_processes(tmp_path, many, kill) == (0, f"ok True {many.records}")


@pytest.mark.shard("damage")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are looked up in /proc")
def test_a_killed_audit_leaves_no_process(tmp_path: Path, many: Many) -> None:
    """If an audit is killed, its processes end too."""
    left: list[int] = []

    def kill(audit: int, children: list[int]) -> None:
        left.extend(children)
        os.kill(audit, 9)

    code, _ = _in_processes(tmp_path, many, kill)
    assert code == -9
    wait_for(
        lambda: not any(Path(f"/proc/{child}/cmdline").exists() and _is_alive(child) for child in left),
        what="the end of the audit's processes",
    )


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- elsewhere --------------------------------------------------------------------------------------------


def _here(task: PartitionTask, places: Sequence[Place]) -> list[bytes]:
    """Run the task as other processes do: it is sent as bytes, and answers in bytes."""
    sent: PartitionTask = pickle.loads(pickle.dumps(replace(task, store=_Sent(task.store))))
    return [sent(place) for place in places]


_SHELVES: dict[int, ObjectStore] = {}


class _Sent:
    """A memory store that is unpickled as the same store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        _SHELVES[id(store)] = store

    def __reduce__(self) -> tuple[object, ...]:
        return (_shelf, (id(self._store),))


def _shelf(number: int) -> ObjectStore:
    return _SHELVES[number]


@pytest.mark.parametrize(("do", "codes"), some_families())
def test_partitions_that_are_audited_elsewhere(do: Damage, codes: set[str]) -> None:
    """Partitions that are audited in other processes give the same findings and the same figures."""
    story = healthy()
    do(story)
    here = verify_store(story.ledger.store, workers=0)
    there = verify_store(story.ledger.store, workers=0, elsewhere=_here)
    assert [str(each) for each in there.findings] == [str(each) for each in here.findings]
    assert codes <= {each.code for each in there.findings}
    assert replace(there.stats, seconds=0) == replace(here.stats, seconds=0)
    assert there.replay.open == here.replay.open
    assert there.replay.pending == here.replay.pending


@pytest.mark.shard("damage")
@pytest.mark.parametrize("workload", ["bank", "compacted", "pipeline", "seals", "upkeep"])
def test_stores_of_runs_that_are_audited_elsewhere(workload: str) -> None:
    """The same holds for stores at several moments of a simulated run."""
    landed = simulate(workload, 5).landed
    store = MemoryStore()
    cuts = {len(landed) * number // 4 for number in range(1, 5)}
    for number, (_, key, data, operation) in enumerate(landed, start=1):
        if operation == "delete":
            store.delete(key)
        else:
            store.put(key, data)
        if number in cuts:
            here = verify_store(store, workers=0)
            there = verify_store(store, workers=0, elsewhere=_here)
            assert there.findings == here.findings
            assert replace(there.stats, seconds=0) == replace(here.stats, seconds=0)


@pytest.mark.shard("damage")
@pytest.mark.minio
@pytest.mark.parametrize("many", [2_000, 9_000], indirect=True)
def test_processes_and_what_is_kept_on_a_bucket(
    minio_bucket: S3Bucket, many: Many, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes open a bucket with the environment's credentials. The bucket's ETags show which objects
    were written again."""
    for name, value in minio_bucket.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"{minio_bucket.url}/ledger")
    keys = [str(path.relative_to(many.folder)) for path in many.folder.rglob("*.*")]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.put(key, (many.folder / key).read_bytes()), keys))
    monkeypatch.setattr(reading_workers, "PROCESSES_FROM", _EARLY)
    first = verify_store(store, processes=2, kept_in=tmp_path / "kept")
    assert (first.ok, first.stats.objects, first.stats.records) == (True, len(keys), many.records)
    second = verify_store(store, processes=2, kept_in=tmp_path / "kept")
    assert (second.ok, second.stats.unchanged) == (True, len(keys) - 3)
    key = max(key for key in keys if "/data/" in key)
    data = bytearray(store.get(key))
    data[len(data) // 2] ^= 1
    store.put(key, bytes(data))
    third = verify_store(store, processes=2, kept_in=tmp_path / "kept")
    assert [each.object for each in third.findings] == [key]
