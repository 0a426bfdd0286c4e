"""When the power is cut, every object that the local store acknowledged is there afterwards, whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage import LocalStore, ObjectNotFoundError, ObjectStore
from tests.storage.power_lives import cut_random_lives, look_into
from tests.suite.tiers import in_shard
from tests.support.power import (
    MachineOffError,
    Recorder,
    Survey,
    disks_in_memory,
    promising,
    recording,
    survey,
)

_LONG = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def disks() -> Iterator[Path]:
    with disks_in_memory() as folder:
        yield folder


def story(store: ObjectStore) -> None:
    """Put objects at several depths, lose a race, overwrite an object, read one again, and remove one."""
    assert store.put_if_absent("topics/a/log/0", b"entry 0")
    assert store.put_if_absent("topics/a/log/1", _LONG)
    assert not store.put_if_absent("topics/a/log/1", b"too late")
    store.put("topics/a/log/0", b"a seal over entry 0")
    assert store.get("topics/a/log/1") == _LONG
    assert store.put_if_absent("store.json", b"{}")
    store.delete("topics/a/log/1")
    assert store.put_if_absent("topics/a/data/x", b"records")


def test_every_acknowledged_object_survives(
    tmp_path: Path, disks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The power is cut after any call of a store's life, and any choice of what was not synced is lost: what
    was put or read is there, whole. The store opens, is complete and can be written, and no key is empty or
    half there."""
    with recording(tmp_path) as recorder:
        story(promising(recorder, tmp_path))
    result = survey(recorder.tape, look_into(disks))
    assert result.broken == []
    assert result.cuts > 200
    assert result.disks > 50
    with capsys.disabled():
        print(f" [power cuts survived: {result.cuts}]", end="")


@pytest.mark.parametrize("lives", in_shard("kills", [2, 8], keep=1))
def test_random_lives(capsys: pytest.CaptureFixture[str], lives: int) -> None:
    """The same holds for random lives, in which three processes share a store, write, overwrite, read,
    remove, and stop anywhere."""
    result = cut_random_lives(lives, seed=0)
    assert result.broken == []
    assert result.disks > 300 * lives // 8
    with capsys.disabled():
        print(f" [power cuts survived: {result.cuts}]", end="")


def test_threads_that_share_a_store(tmp_path: Path, disks: Path) -> None:
    """Nothing is lost if eight threads write through one instance into folders that they make together."""
    with recording(tmp_path) as recorder:
        store = promising(recorder, tmp_path)
        with ThreadPoolExecutor(8) as pool:
            keys = [f"t/{number % 3}/{number}" for number in range(16)]
            assert all(pool.map(lambda key: store.put_if_absent(key, key.encode()), keys))
    result = survey(recorder.tape, look_into(disks))
    assert result.broken == []
    assert result.cuts > 100


def test_a_writer_that_is_gone_and_a_reader_that_saw_its_object(tmp_path: Path, disks: Path) -> None:
    """If a writer stops at any of its calls and another process then reads its object and puts one that
    depends on it, no cut takes the first object and leaves the second."""
    total = _calls_of_a_put(tmp_path / "count")
    cuts = 0
    for dies_at in range(total):
        base = tmp_path / f"died-{dies_at}"
        base.mkdir()
        with recording(base) as recorder:
            _orphaned_write(recorder, base, dies_at, LocalStore)
        result = survey(recorder.tape, look_into(disks))
        assert result.broken == []
        cuts += result.cuts
    assert cuts > 100


def test_a_root_that_its_maker_did_not_live_to_sync(tmp_path: Path, disks: Path) -> None:
    """If the process that makes the store's folder stops before the folder's name is on the disk, the puts of
    the next process survive."""
    with recording(tmp_path) as recorder:
        recorder.dies_at = 1  # between mkdir and the sync of the folder above
        with pytest.raises(MachineOffError):
            LocalStore(tmp_path / "store")
        recorder.dies_at = None
        assert promising(recorder, tmp_path).put_if_absent("log/0", b"first")
    assert survey(recorder.tape, look_into(disks)).broken == []


def _calls_of_a_put(base: Path) -> int:
    base.mkdir()
    with recording(base) as recorder:
        store = LocalStore(base / "store")
        before = recorder.calls
        store.put_if_absent("log/0", b"first")
        return recorder.calls - before


def _orphaned_write(recorder: Recorder, base: Path, dies_at: int, kind: type[LocalStore]) -> None:
    writer, reader = promising(recorder, base, kind), promising(recorder, base, kind)
    recorder.dies_at = recorder.calls + dies_at
    with pytest.raises(MachineOffError):
        writer.put_if_absent("log/0", b"first")
    recorder.dies_at = None
    try:
        assert reader.get("log/0") == b"first"
    except ObjectNotFoundError:
        assert reader.put_if_absent("log/0", b"mine")
    assert reader.put_if_absent("elsewhere/1", b"on the ground of log/0")


# -- the instrument itself: each of these stores loses something, and the survey says what


class TrustingReader(LocalStore):
    """A reader that takes a name for durable because it can see it."""

    def _open(self, key: str) -> tuple[int, int]:
        self._confirmed[key] = os.stat(self.uri(key)).st_ino if os.path.exists(self.uri(key)) else -1
        return super()._open(key)


def _survey_of(base: Path, run: Callable[[Recorder], None], drops: Callable[[str, str], bool]) -> Survey:
    with recording(base, drops=drops) as recorder:
        run(recorder)
    return survey(recorder.tape, lambda _tree, _promises: None)


@pytest.mark.parametrize(
    ("drops", "says"),
    [
        (lambda call, path: call == "fdatasync", "bytes that nobody put there"),
        (lambda call, path: call == "fsync", "gone, though it was promised"),
        (lambda call, path: call == "fsync" and path.endswith("/log"), "gone, though it was promised"),
        (lambda call, path: call == "fsync" and path in ("store", "store/topics"), "gone, though it was promised"),
        (lambda call, path: call == "fsync" and path == "", "gone, though it was promised"),
    ],
    ids=["no-fdatasync", "no-folder-sync", "not-the-object's-folder", "not-the-new-folders'", "not-the-root's"],
)  # fmt: skip
def test_a_store_without_a_sync_is_found_out(
    tmp_path: Path, drops: Callable[[str, str], bool], says: str
) -> None:
    """If any one of the syncs is left out, some cut loses an object, and the survey says which."""
    result = _survey_of(tmp_path, lambda recorder: story(promising(recorder, tmp_path)), drops)
    assert says in result.broken[0]


def test_a_reader_that_trusts_what_it_sees_is_found_out(tmp_path: Path) -> None:
    """Without the reader's sync, a cut can take an object that was read and leave one that depends on it."""
    breaks = []
    for dies_at in range(_calls_of_a_put(tmp_path / "count")):
        base = tmp_path / f"died-{dies_at}"
        base.mkdir()
        with recording(base) as recorder:
            _orphaned_write(recorder, base, dies_at, TrustingReader)
        breaks += survey(recorder.tape, lambda _tree, _promises: None).broken
    assert any("log/0: gone, though it was promised" in line for line in breaks)
