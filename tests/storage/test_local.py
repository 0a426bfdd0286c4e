from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shutil
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import (
    AccessDeniedError,
    BucketNotFoundError,
    DamagedObjectError,
    InTheWayError,
    InvalidKeyError,
    LocalStore,
    NotAFolderError,
    ObjectNotFoundError,
    ObjectStore,
    PutOutcomeUnknownError,
    StorageError,
    StoreNotWritableError,
    settle_put_if_absent,
)
from storage.reasons import StoreReason
from storage.temporary import Swept, sweep_temporary, temporary_name
from tests.storage.conformance import StoreConformance, run_race_in_processes
from tests.storage.odd_server import error_of
from tests.support.damage import nested
from tests.support.faults import keys_of, no_pause
from tests.support.refusals import refused

REPOSITORY = Path(__file__).resolve().parents[2]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def path_of(store: ObjectStore, key: str) -> Path:
    return Path(store.uri(key))


class TestLocalStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "store")

    def raw_put(self, store: ObjectStore, key: str, data: bytes) -> None:
        path_of(store, key).parent.mkdir(parents=True, exist_ok=True)
        path_of(store, key).write_bytes(data)

    def raw_get(self, store: ObjectStore, key: str) -> bytes:
        return path_of(store, key).read_bytes()

    def raw_exists(self, store: ObjectStore, key: str) -> bool:
        return path_of(store, key).exists()

    def run_race(self, store: ObjectStore, writers: int) -> list[tuple[list[int], list[bytes]]]:
        return run_race_in_processes(store, writers)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


# -- durability


class Tape:
    """Records the calls that make a put durable, in order, and fails the calls that the test names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.calls: list[str] = []
        self.fail: Callable[[str], bool] = lambda _call: False
        self._root = str(root)
        self._names: dict[int, str] = {}
        real_open = os.open

        def open_(path: str, *args: object, **kwargs: object) -> int:
            descriptor = real_open(path, *args, **kwargs)  # type: ignore[arg-type]
            self._names[descriptor] = self._short(path)
            return descriptor

        monkeypatch.setattr(os, "open", open_)
        for name in ("fsync", "fdatasync"):
            self._wrap(monkeypatch, name, lambda descriptor: self._names[descriptor])
        for name in ("link", "replace"):
            self._wrap(monkeypatch, name, lambda _source, target: self._short(target))
        for name in ("unlink", "mkdir"):
            self._wrap(monkeypatch, name, lambda path, *_mode: self._short(path))

    def _short(self, path: str) -> str:
        relative = os.path.relpath(path, self._root)
        return "TEMP" if relative.startswith(".tmp/") else relative

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, name: str, what: Callable[..., str]) -> None:
        real = getattr(os, name)

        def call(*args: object) -> object:
            line = f"{name} {what(*args)}"
            self.calls.append(line)
            if self.fail(line):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args)

        monkeypatch.setattr(os, name, call)


@pytest.fixture
def tape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tape:
    return Tape(monkeypatch, tmp_path / "store")


def test_the_order_of_a_put(store: LocalStore, tape: Tape) -> None:
    """A put syncs the bytes before the name exists, syncs the name before it returns, and syncs the name of
    each new folder before anything is put into it."""
    assert store.put_if_absent("a/b/1", b"x")
    assert tape.calls == [
        "mkdir .tmp",
        "fdatasync TEMP",
        "mkdir a", "fsync .", "mkdir a/b", "fsync a",
        "link a/b/1",
        "unlink TEMP",
        "fsync a/b",
    ]  # fmt: skip
    tape.calls.clear()
    assert store.put_if_absent("a/b/2", b"x")
    assert tape.calls == ["fdatasync TEMP", "link a/b/2", "unlink TEMP", "fsync a/b"]
    tape.calls.clear()
    store.put("a/b/2", b"y")
    assert tape.calls == ["fdatasync TEMP", "replace a/b/2", "fsync a/b"]


def test_a_taken_name_costs_no_file(store: LocalStore, tape: Tape) -> None:
    """Nothing is written or synced for a put that is too late. The existing object is read back to settle it."""
    assert store.put_if_absent("a/b/1", b"first")
    tape.calls.clear()
    assert not store.put_if_absent("a/b/1", b"second")
    assert tape.calls == []
    assert store.get("a/b/1") == b"first"


def test_a_folder_made_by_another_process_is_synced_too(store: LocalStore, tape: Tape) -> None:
    """The name of a folder that another process made is synced once, because it may not be on the disk
    yet."""
    os.makedirs(path_of(store, "a/b"))
    tape.calls.clear()
    store.put_if_absent("a/b/1", b"x")
    assert [call for call in tape.calls if call.startswith("fsync")] == ["fsync .", "fsync a", "fsync a/b"]


def test_a_reader_makes_durable_what_it_saw(store: LocalStore, tape: Tape, tmp_path: Path) -> None:
    """A reader syncs an object's name before it returns the object, because a writer that stopped between
    link and sync leaves a name that a power cut takes back.

    One sync covers all older objects, so a reader of old objects pays nothing.
    """
    for number in range(3):
        path_of(store, f"a/{number}").parent.mkdir(exist_ok=True)
        path_of(store, f"a/{number}").write_bytes(b"x")
    time.sleep(0.05)
    reader = LocalStore(tmp_path / "store")
    tape.calls.clear()
    assert [reader.get(f"a/{number}") for number in range(3)] == [b"x"] * 3
    assert tape.calls == ["fsync a"]


@pytest.mark.parametrize("set_back_ns", [0, 3_600_000_000_000])
def test_a_clock_that_is_set_back_makes_nothing_older(
    store: LocalStore, tape: Tape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_back_ns: int
) -> None:
    """A file that was made after the folder's last sync is synced, even if the clock was set back and says
    that it is older."""
    reader, wall = LocalStore(tmp_path / "store"), time.time_ns
    with monkeypatch.context() as before:
        before.setattr(time, "time_ns", lambda: wall() + set_back_ns)
        reader.put_if_absent("a/1", b"x")
    path_of(store, "a/2").write_bytes(b"x")
    time.sleep(0.1)
    tape.calls.clear()
    assert [reader.get("a/2"), reader.get("a/2")] == [b"x", b"x"]
    assert tape.calls == ["fsync a"]


def test_a_reader_syncs_a_young_object_once(store: LocalStore, tape: Tape, tmp_path: Path) -> None:
    """An object that this store has put or read is not synced again. An object that another process put in
    its place is."""
    store.put_if_absent("a/1", b"x")
    tape.calls.clear()
    assert store.get("a/1") == b"x"
    assert tape.calls == []
    other = LocalStore(tmp_path / "store")
    assert [other.get("a/1"), other.get("a/1")] == [b"x", b"x"]
    assert tape.calls == ["fsync a"]
    tape.calls.clear()
    third = LocalStore(tmp_path / "store")
    assert [third.head("a/1").size, third.head("a/1").size] == [
        1,
        1,
    ]  # who hears that it is there goes on from it
    assert tape.calls == ["fsync a"]
    os.replace(_written(tmp_path / "seal"), path_of(store, "a/1"))
    tape.calls.clear()
    assert [store.get("a/1"), store.get("a/1")] == [b"seal", b"seal"]
    assert tape.calls == ["fsync a"]


def _written(path: Path) -> Path:
    path.write_bytes(b"seal")
    return path


@pytest.mark.parametrize(
    ("failing", "stored"),
    [("fdatasync", False), ("link", False), ("unlink", True)],
)
def test_an_error_on_the_way_is_settled_by_reading_back(
    store: LocalStore, tape: Tape, failing: str, stored: bool
) -> None:
    """An error before the link stored nothing. An error after the link stored the object, and is never
    reported as "not stored"."""
    store.put_if_absent("a/0", b"warm")
    tape.fail = lambda call: call.startswith(failing)
    if failing == "unlink":
        assert store.put_if_absent("a/1", b"x") is True
    else:
        with pytest.raises(StorageError):
            store.put_if_absent("a/1", b"x")
    tape.fail = lambda _call: False
    assert path_of(store, "a/1").exists() is stored
    assert settle_put_if_absent(store, "a/1", b"x", pause=no_pause).won


@pytest.mark.parametrize("ask", ["the same store", "another of this process"])
def test_a_sync_that_failed_is_not_made_good_by_one_that_succeeds(
    store: LocalStore, tape: Tape, tmp_path: Path, ask: str
) -> None:
    """Linux reports a failed sync once, drops what it could not write, and reports success the next time. So
    after a failed sync nothing in that folder is acknowledged any more; other folders go on."""
    store.put_if_absent("a/0", b"warm")
    tape.fail = lambda call: call == "fsync a"
    with refused(StorageError, StoreReason.NOT_CONFIRMED):
        store.put_if_absent("a/1", b"x")
    tape.fail = lambda _call: False
    asked = store if ask == "the same store" else LocalStore(tmp_path / "store")
    with pytest.raises(PutOutcomeUnknownError):
        settle_put_if_absent(asked, "a/1", b"x", pause=no_pause)
    with refused(StorageError, StoreReason.SYNC_FAILED_BEFORE):
        asked.put("a/2", b"x")
    with refused(StorageError, StoreReason.SYNC_FAILED_BEFORE):
        asked.get("a/1")
    assert store.get("a/0") == b"warm"
    assert asked.put_if_absent("b/1", b"x")


def test_a_new_folder_whose_sync_failed_is_not_made_good_either(store: LocalStore, tape: Tape) -> None:
    """If the sync of a new folder's name failed, a second put does not trust the folder that exists by
    then."""
    store.put_if_absent("a/0", b"warm")
    tape.fail = lambda call: call == "fsync a"
    with pytest.raises(StoreNotWritableError):
        store.put_if_absent("a/b/1", b"x")
    tape.fail = lambda _call: False
    with refused(StoreNotWritableError, StoreReason.SYNC_FAILED_BEFORE):
        store.put_if_absent("a/b/1", b"x")
    assert not path_of(store, "a/b/1").exists()


def test_a_name_that_the_disk_never_confirms_is_unknown(store: LocalStore, tape: Tape) -> None:
    """While the folder cannot be synced, reading back proves nothing, so the outcome is unknown."""
    store.put_if_absent("a/0", b"warm")
    tape.fail = lambda call: call == "fsync a"
    with pytest.raises(PutOutcomeUnknownError):
        settle_put_if_absent(store, "a/1", b"x", pause=no_pause)


def test_no_temporary_file_stays(store: LocalStore, tape: Tape) -> None:
    """After a put that won, lost or failed, the folder of temporary files is empty."""
    temporary = path_of(store, ".tmp")
    store.put_if_absent("a/1", b"x")
    store.put_if_absent("a/1", b"y")
    store.put("a/1", b"z")
    for failing in ("fdatasync", "link", "replace"):
        tape.fail = lambda call, failing=failing: call.startswith(failing)  # type: ignore[misc]
        for put in (store.put_if_absent, store.put):
            try:
                put("a/2", b"x")
            except StoreNotWritableError:
                continue
    assert os.listdir(temporary) == []


# -- folders behind the store's back


@pytest.mark.parametrize("put", ["put", "put_if_absent"])
def test_removed_folders_are_made_again(store: LocalStore, put: str) -> None:
    """If somebody removes folders that the store has cached, even its temporary folder, the next put makes
    them again."""
    getattr(store, put)("a/b/1", b"x")
    os.unlink(path_of(store, "a/b/1"))
    os.rmdir(path_of(store, "a/b"))
    os.rmdir(path_of(store, "a"))
    os.rmdir(path_of(store, ".tmp"))
    getattr(store, put)("a/b/1", b"y")
    assert store.get("a/b/1") == b"y"


def test_a_root_that_is_gone_is_not_an_empty_store(store: LocalStore, tmp_path: Path) -> None:
    """If the root disappears (an unmounted disk), reads say so instead of "no such object", and no new root
    appears."""
    store.put("a/1", b"x")
    (tmp_path / "store").rename(tmp_path / "moved")
    for call in (
        lambda: store.get("a/1"),
        lambda: store.head("a/1"),
        lambda: list(store.list("")),
        lambda: store.list_folders(""),
    ):
        with pytest.raises(BucketNotFoundError):
            call()
    for put in (store.put, store.put_if_absent):
        with pytest.raises(StoreNotWritableError):
            put("a/1", b"x")
    assert not (tmp_path / "store").exists()


def test_a_folder_where_an_object_should_be(store: LocalStore) -> None:
    """A put of `a/b` where `a` is an object is an error of its own, because a file system cannot hold both.
    It is neither stored nor taken."""
    store.put("a/b", b"x")
    store.put("file", b"x")
    for key in ("a", "file/below"):
        for put in (store.put, store.put_if_absent):
            with pytest.raises(InTheWayError):
                put(key, b"x")
        store.delete(key)
    assert keys_of(store.list("")) == ["a/b", "file"]


def test_an_empty_folder_in_an_object_s_place(store: LocalStore) -> None:
    """Puts name the folder and what to do, reads find no object, and the walk over all folders lists the folder."""
    store.put("a/1", b"x")
    path_of(store, "a/2").mkdir()
    for put in (store.put, store.put_if_absent):
        with refused(InTheWayError, StoreReason.FOLDER_IN_THE_WAY) as caught:
            put("a/2", b"y")
        assert caught.value.place == store.uri("a/2")
        assert "remove" in caught.value.action
    with pytest.raises(ObjectNotFoundError):
        store.get("a/2")
    assert keys_of(store.list("")) == ["a/1"]
    assert [*store.all_folders()] == ["a/", "a/2/"]


def test_folders_of_any_depth_are_walked(store: LocalStore) -> None:
    """Listings go through folders that are nested deeper than calls may be, in the order of keys, and go on
    after them."""
    for key in ("p/a-b", "p/b/1"):
        store.put(key, b"x")
    deep = "p/" + "a/" * 1_200
    with nested(path_of(store, "p"), "a", 1_200):
        assert keys_of(store.list("")) == ["p/a-b", f"{deep}file", "p/b/1"]
        assert keys_of(store.list("", start_after="p/a/b")) == ["p/b/1"]
        assert store.list_folders("p") == ["a", "b"]


@pytest.mark.parametrize("name", ["a", "a" * 255])
def test_a_folder_too_deep_to_be_opened_hides_nothing_beside_it(store: LocalStore, name: str) -> None:
    """A listing gives a folder that is too deep to be opened as one object, and lists everything next to
    it."""
    for key in ("p/0", "p/b/1"):
        store.put(key, b"x")
    with nested(path_of(store, "p"), name, 8_200 // (len(name) + 1)):
        first, deep, last = keys_of(store.list(""))
        assert (first, last) == ("p/0", "p/b/1")
        assert len(store.uri(deep)) > 3_800
        assert set(deep.removeprefix("p/").split("/")) == {name}
        assert store.list_folders("p") == [name, "b"]


def test_a_foreign_file_is_listed_by_the_name_it_has(store: LocalStore, tmp_path: Path) -> None:
    """A file whose name is not a valid key is listed, as S3 lists it, but cannot be read."""
    store.put("p/a", b"1")
    store.put("p/folder/z", b"2")
    (tmp_path / "store" / "p" / "a copy (2)").write_bytes(b"")
    (tmp_path / "store" / "p" / "a folder").mkdir()
    (tmp_path / "store" / "p" / "a folder" / "x").write_bytes(b"")
    assert [info.key for info in store.list("p")] == ["p/a", "p/a copy (2)", "p/a folder/x", "p/folder/z"]
    assert store.list_folders("p") == ["a folder", "folder"]
    with pytest.raises(InvalidKeyError):
        store.get("p/a copy (2)")


def test_a_file_cut_short_while_read(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that ends before its size said so is damaged. Short reads in between are no error."""
    store.put("a", b"0123456789")
    real = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: real(descriptor, min(size, 3)))
    assert store.get("a") == b"0123456789"
    assert store.get_range("a", 2, 7) == b"2345678"
    monkeypatch.setattr(os, "read", lambda _descriptor, _size: b"")
    with pytest.raises(DamagedObjectError):
        store.get("a")


# -- opening


def test_opening_makes_the_root_but_not_its_parent(tmp_path: Path) -> None:
    """A missing root is made, for its owner alone. If its parent is missing, the path is refused as a typing
    error."""
    LocalStore(tmp_path / "new")
    assert mode_of(tmp_path / "new") == 0o700
    assert os.listdir(tmp_path / "new") == []
    with pytest.raises(BucketNotFoundError) as caught:
        LocalStore(tmp_path / "no" / "new")
    assert "\n" not in str(caught.value)
    assert caught.value.place == str(tmp_path / "no" / "new")


def test_opening_without_create(tmp_path: Path) -> None:
    """A store that is opened with create=False is not created."""
    with pytest.raises(BucketNotFoundError):
        LocalStore(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()


def test_a_file_is_no_store(tmp_path: Path) -> None:
    """A root that is a file, or lies below a file, is refused in one line."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreNotWritableError) as caught:
            LocalStore(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("root", "umask", "file", "folder"),
    [
        (0o700, 0o022, 0o600, 0o700),
        (0o755, 0o022, 0o600, 0o700),
        (0o777, 0o000, 0o600, 0o700),
        (0o2770, 0o002, 0o660, 0o2770),
        (0o2770, 0o022, 0o640, 0o2750),
        (0o2750, 0o022, 0o640, 0o2750),
        (0o2755, 0o022, 0o644, 0o2755),
        (0o2777, 0o000, 0o664, 0o2775),
        (0o2770, 0o077, 0o600, 0o2700),
    ],
)
def test_who_may_read(tmp_path: Path, root: int, umask: int, file: int, folder: int) -> None:
    """Objects can be read by their owner alone, unless the root has the setgid bit. Then they have the root's
    mode without the umask, and others can never write them."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(root)
    mask = os.umask(umask)
    try:
        store = LocalStore(tmp_path / "store")
        store.put_if_absent("p/1", b"x")
        store.put("q/1", b"x")
    finally:
        os.umask(mask)
    assert {mode_of(path_of(store, key)) for key in ("p/1", "q/1")} == {file}
    assert {mode_of(path_of(store, key)) for key in ("p", "q", ".tmp")} == {folder}


def plant_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def plant_fifo(path: Path, _outside: Path) -> None:
    os.mkfifo(path)


def plant_socket(path: Path, _outside: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)


def not_a_file() -> pytest.RaisesExc[StorageError]:
    """Expect an error that refuses a link, a FIFO or a device."""
    return pytest.raises(StorageError, check=lambda error: error.reason is StoreReason.NOT_A_FILE)


@pytest.mark.parametrize("plant", [plant_link, plant_fifo, plant_socket])
def test_no_link_and_no_fifo_is_an_object(
    store: LocalStore, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    """A link, a FIFO or a socket is not an object: each call that would read it is an error, and none waits.
    It is listed and can be deleted."""
    (tmp_path / "outside").write_bytes(b"secret")
    store.put("a/1", b"x")
    plant(path_of(store, "a/2"), tmp_path / "outside")
    for call in (store.get, store.head, store.map, lambda key: store.get_range(key, 0, 1)):
        with not_a_file():
            call("a/2")
    assert not store.put_if_absent("a/2", b"y")
    assert keys_of(store.list("")) == ["a/1", "a/2"]
    store.delete("a/2")
    assert keys_of(store.list("")) == ["a/1"]
    assert (tmp_path / "outside").read_bytes() == b"secret"


def test_an_overwrite_takes_the_place_of_a_link(store: LocalStore, tmp_path: Path) -> None:
    """An overwrite replaces a link and does not write through it."""
    (tmp_path / "outside").write_bytes(b"secret")
    store.put("a/1", b"x")
    path_of(store, "a/2").symlink_to(tmp_path / "outside")
    store.put("a/2", b"y")
    assert (store.get("a/2"), (tmp_path / "outside").read_bytes()) == (b"y", b"secret")


def test_no_linked_folder_is_followed(store: LocalStore, tmp_path: Path) -> None:
    """A linked folder is not read, listed, written into or deleted from, at any depth."""
    (tmp_path / "outside" / "b").mkdir(parents=True)
    (tmp_path / "outside" / "b" / "1").write_bytes(b"secret")
    store.put("a/1", b"x")
    path_of(store, "link").symlink_to(tmp_path / "outside")
    refused: list[Callable[[], object]] = [
        lambda: store.get("link/b/1"),
        lambda: store.head("link/b/1"),
        lambda: store.put("link/b/2", b"y"),
        lambda: store.put_if_absent("link/b/2", b"y"),
        lambda: store.put_if_absent("link/c/1", b"y"),
        lambda: store.delete("link/b/1"),
        lambda: list(store.list("link/b")),
        lambda: store.list_folders("link/"),
    ]
    for call in refused:
        with not_a_file():
            call()
    assert keys_of(store.list("")) == ["a/1", "link"]
    assert store.list_folders("") == ["a", "link"]
    assert sorted(os.listdir(tmp_path / "outside" / "b")) == ["1"]


@pytest.mark.parametrize("plant", [plant_link, plant_fifo, plant_socket])
def test_what_may_have_been_a_folder_does_not_vanish(
    store: LocalStore, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    """A link, a FIFO or a socket in the place of a folder is listed among the folders, because it may have
    been one. Listing what is in it is damage."""
    (tmp_path / "outside").mkdir()
    for key in ("topics/a/1", "topics/z/1", "topics/file"):
        store.put(key, b"x")
    plant(path_of(store, "topics/t"), tmp_path / "outside")
    assert store.list_folders("topics") == ["a", "t", "z"]
    for call in (lambda: store.list_folders("topics/t"), lambda: [*store.list("topics/t")]):
        with pytest.raises(DamagedObjectError) as caught:
            call()
        assert caught.value.place.endswith("/topics/t")


@pytest.mark.parametrize("leads_to", ["a folder", "nothing"])
def test_a_linked_folder_of_temporary_files_is_refused(tmp_path: Path, leads_to: str) -> None:
    """If the folder of temporary files is a link, puts are refused, nothing outside is swept, and reading
    goes on."""
    LocalStore(tmp_path / "store").put("a/1", b"x")
    os.rmdir(tmp_path / "store" / ".tmp")
    outside, store = tmp_path / "outside", LocalStore(tmp_path / "store")
    (tmp_path / "store" / ".tmp").symlink_to(outside)
    if leads_to == "a folder":
        outside.mkdir()
        host, pid, started = temporary_name().removeprefix("put-").split("-")[:3]
        (outside / f"put-{host}-{pid}-{int(started) + 1}-0").write_bytes(b"of a dead process")
    before = sorted(os.listdir(outside)) if outside.exists() else None
    for each in (store, LocalStore(tmp_path / "store")):
        for put in (each.put, each.put_if_absent):
            with refused(StoreNotWritableError, StoreReason.NOT_A_FOLDER) as caught:
                put("a/2", b"y")
            assert caught.value.place == str(tmp_path / "store" / ".tmp")
            assert "remove it" in caught.value.action
        assert each.get("a/1") == b"x"
    assert (sorted(os.listdir(outside)) if outside.exists() else None) == before


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    """The root itself may be a link, because its place is the owner's choice."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    LocalStore(tmp_path / "store").put("a/1", b"x")
    assert LocalStore(tmp_path / "store").get("a/1") == b"x"


def test_pickled_as_a_path(store: LocalStore) -> None:
    """A pickled store opens the same folder again."""
    store.put("a", b"x")
    other = pickle.loads(pickle.dumps(store))
    assert (other.url, other.get("a")) == (store.url, b"x")


def test_a_path_with_odd_characters(tmp_path: Path) -> None:
    """The store's folder may have any name. `url` quotes it, and `uri` does not."""
    store = LocalStore(tmp_path / "my store #1 ü")
    store.put("a", b"x")
    assert store.url.endswith("/my%20store%20%231%20%C3%BC")
    assert store.uri("a").endswith("/my store #1 ü/a")


def as_nobody(script: str, *arguments: str) -> str:
    """Run a script as a user without the right to write our files. Root may write anywhere."""
    drop = "import os\nif os.geteuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n"
    source = f"import sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n{PRELOAD}{drop}{textwrap.dedent(script)}"
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PRELOAD = "import storage\nfrom storage import *\n"


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A folder that another user can reach. Pytest's own folders are private."""
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.owner() == Path.home().owner() and folder != Path(folder.anchor):
            try:
                folder.chmod(folder.stat().st_mode | 0o055)
            except PermissionError:
                break
    return tmp_path


def test_reading_a_folder_one_may_not_write(open_to_all: Path) -> None:
    """Reading needs no permission to write, and makes no folder. A write then says in one line which
    permission is missing."""
    root = open_to_all / "readonly"
    root.mkdir()
    root.chmod(0o2755)  # shared
    LocalStore(root).put("a/1", b"x")
    os.rmdir(root / ".tmp")
    for folder in (root / "a", root):
        folder.chmod(0o555)
    try:
        said = as_nobody(
            """
            store = LocalStore(sys.argv[1], create=False)
            print(store.get("a/1"), [i.key for i in store.list("")], store.list_folders(""), bytes(store.map("a/1")))
            for put in (store.put, store.put_if_absent):
                try:
                    put("a/2", b"x")
                except StoreNotWritableError as error:
                    print(error)
            """,
            str(root),
        )
    finally:
        root.chmod(0o755)
    first, *errors = said.splitlines()
    assert first == "b'x' ['a/1'] ['a'] b'x'"
    assert len(errors) == 2
    assert all("permission denied" in line for line in errors)
    assert sorted(os.listdir(root)) == ["a"]


def test_making_a_store_where_one_may_not(open_to_all: Path) -> None:
    """If the root cannot be made, opening is refused in one line."""
    (open_to_all / "closed").mkdir()
    (open_to_all / "closed").chmod(0o555)
    said = as_nobody(
        """
        try:
            LocalStore(sys.argv[1])
        except StoreNotWritableError as error:
            print(error)
        """,
        str(open_to_all / "closed" / "new"),
    )
    assert "permission denied" in said
    assert len(said.splitlines()) == 1


# -- leftovers


def test_a_killed_writer_s_file_is_swept(tmp_path: Path) -> None:
    """Opening a store removes the temporary files of killed processes, and not those of living ones."""
    root = tmp_path / "store"
    script = f"""
import os, sys
sys.path.insert(0, {str(REPOSITORY)!r})
from storage import LocalStore
store = LocalStore({str(root)!r})
os.link = lambda *a: os.kill(os.getpid(), 9)
store.put_if_absent("a/1", b"x")
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == -9
    assert len(os.listdir(root / ".tmp")) == 1
    mine = root / ".tmp" / temporary_name()
    mine.write_bytes(b"being written")
    LocalStore(root)
    assert os.listdir(root / ".tmp") == [mine.name]


def test_what_the_sweep_leaves_alone(tmp_path: Path) -> None:
    """The sweep keeps files of other machines or boots for a day, and foreign files for ever."""
    host, pid, started = temporary_name().removeprefix("put-").split("-")[:3]
    dead_here = f"put-{host}-{pid}-{int(started) + 1}-0"
    elsewhere, elsewhere_old = "put-0123456789ab-1-1-0", "put-0123456789ab-1-1-1"
    names = [dead_here, elsewhere, elsewhere_old, "somebody-s.txt", f"put-{host}-{pid}-{started}-9"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    two_days_ago = time.time() - 2 * 86_400
    for name in (elsewhere_old, "somebody-s.txt"):
        os.utime(tmp_path / name, (two_days_ago, two_days_ago))
    assert sweep_temporary(str(tmp_path)) == 2
    assert sorted(os.listdir(tmp_path)) == sorted(
        [elsewhere, "somebody-s.txt", f"put-{host}-{pid}-{started}-9"]
    )


def test_an_eager_sweep(tmp_path: Path) -> None:
    """A sweep on request removes files of dead processes, and files of unknown ones a minute after their last
    write. It reports younger and foreign files, and keeps those of living writers."""
    store = LocalStore(tmp_path)
    store.put("a", b"x")
    host, pid, started = temporary_name().removeprefix("put-").split("-")[:3]
    dead_here, alive = f"put-{host}-{pid}-{int(started) + 1}-0", f"put-{host}-{pid}-{started}-99"
    young, old = "put-0123456789ab-1-1-0", "put-0123456789ab-1-1-1"
    folder = tmp_path / ".tmp"
    for name in (dead_here, alive, young, old, "somebody-s.txt"):
        (folder / name).write_bytes(b"x")
    for name in (old, alive, "somebody-s.txt"):
        os.utime(folder / name, (time.time() - 61,) * 2)
    left = tuple(f"{folder}/{name}" for name in (young, "somebody-s.txt"))
    assert store.sweep(dry_run=True) == Swept(2, left)
    assert len(os.listdir(folder)) == 5
    assert store.sweep() == Swept(2, left)
    assert sorted(os.listdir(folder)) == sorted((alive, young, "somebody-s.txt"))


@pytest.mark.parametrize("call", ["put", "put_if_absent"])
def test_a_slow_writer_whose_file_was_swept_writes_anew(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A writer whose temporary file was swept writes it again, and its put succeeds."""
    name = "replace" if call == "put" else "link"
    real, swept = getattr(os, name), []

    def slow(source: str, target: str) -> None:
        if not swept:
            swept.append(source)
            os.unlink(source)
        real(source, target)

    monkeypatch.setattr(os, name, slow)
    assert getattr(store, call)("a/1", b"bytes") in (None, True)
    assert store.get("a/1") == b"bytes"
    assert len(swept) == 1


@pytest.mark.parametrize("call", ["put", "put_if_absent"])
def test_a_writer_whose_file_is_swept_each_time_says_so(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A writer whose temporary file is swept each time raises an error and has written nothing."""
    name = "replace" if call == "put" else "link"
    real = getattr(os, name)

    def slow(source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(source)
        real(source, target)

    monkeypatch.setattr(os, name, slow)
    with refused(StorageError, StoreReason.REMOVED_EACH_TIME):
        getattr(store, call)("a/1", b"bytes")
    assert list(store.list("")) == []


def test_temporary_files_are_no_objects(store: LocalStore) -> None:
    """Files in .tmp are neither listed nor reachable by a key."""
    store.put("a/1", b"x")
    (path_of(store, ".tmp") / "put-0123456789ab-1-1-0").write_bytes(b"half an object")
    assert keys_of(store.list("")) == ["a/1"]
    assert store.list_folders("") == ["a"]
    with pytest.raises(InvalidKeyError):
        store.get(".tmp/put-0123456789ab-1-1-0")


def test_a_swept_file_of_a_sleeping_writer_is_an_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a writer sleeps for more than a day and finds its temporary file swept, the put is an error and
    stores nothing."""
    real = os.link

    def link(source: str, target: str) -> None:
        os.unlink(source)
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StorageError):
        store.put_if_absent("a/1", b"x")
    with pytest.raises(ObjectNotFoundError):
        store.get("a/1")


def test_a_file_where_a_folder_should_be_is_damage(tmp_path: Path) -> None:
    """A file in the place of a folder is damage, not an empty folder, because nobody knows what was below
    it."""
    store = LocalStore(tmp_path / "store")
    store.put_if_absent("p/log/1", b"x")
    shutil.rmtree(tmp_path / "store/p/log")
    (tmp_path / "store/p/log").write_bytes(b"a file")
    for call in (
        lambda: [*store.list("p/log")],
        lambda: [*store.list("p/log/deeper")],
        lambda: store.list_folders("p/log"),
        lambda: store.list_folders("p/log/deeper"),
    ):
        with pytest.raises(DamagedObjectError) as caught:
            call()
        assert caught.value.place.endswith("/p/log")
    for read in (store.get, store.head, store.map):
        with pytest.raises(NotAFolderError):
            read("p/log/1")
    assert [info.key for info in store.list("p")] == ["p/log"]


def test_a_folder_that_may_not_be_read_hides_none_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that may not be read, like a disk's `lost+found`, is listed by name and hides no other folder.
    Listing what is in it is AccessDeniedError."""
    store = LocalStore(tmp_path / "store")
    for key in ("topics/a/1", "topics/lost+found/1", "topics/z/deep/1"):
        store.put_if_absent(key, b"x")
    scandir = os.scandir

    def refusing(path: str) -> object:
        if "lost+found" in path:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert store.list_folders("topics") == ["a", "lost+found", "z"]
    assert [*store.all_folders()] == ["topics/", "topics/a/", "topics/z/", "topics/z/deep/"]
    with pytest.raises(AccessDeniedError):
        store.list_folders("topics/lost+found")


def test_keys_are_those_of_a_listing(tmp_path: Path) -> None:
    """`keys` gives the keys of a listing, without a look at each file."""
    store = LocalStore(tmp_path)
    for key in ("b/2", "a/1", "b/1/x", "c"):
        store.put(key, b"x")
    for prefix in ("", "b"):
        assert [*store.keys(prefix)] == [info.key for info in store.list(prefix)]


def test_a_file_that_was_written_again_has_another_tag(tmp_path: Path) -> None:
    """A file that was written again has another tag, even with the same size and modification time."""
    store = LocalStore(tmp_path)
    store.put("a", b"one")
    first = store.head("a")
    assert store.head("a") == first
    assert [*store.list("")] == [first]
    with (tmp_path / "a").open("r+b") as file:
        file.write(b"two")
    os.utime(tmp_path / "a", ns=(first.modified_ms * 1_000_000,) * 2)
    assert store.head("a").tag != first.tag


FAULTS = pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, StoreReason.NO_ROOM),
        (errno.EDQUOT, StoreReason.NO_ROOM),
        (errno.EMFILE, StoreReason.TOO_MANY_OPEN_FILES),
        (errno.ENFILE, StoreReason.TOO_MANY_OPEN_FILES),
        (errno.EIO, StoreReason.DISK_FAILED),
        (errno.ENOMEM, StoreReason.DISK_FAILED),
        (errno.ESTALE, StoreReason.DISK_FAILED),
        (errno.EROFS, StoreReason.READ_ONLY),
    ],
    ids=lambda each: errno.errorcode.get(each, "") if isinstance(each, int) else str(each),
)


@FAULTS
def test_a_fault_of_the_machine_is_no_matter_of_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: StoreReason
) -> None:
    """If the disk is full or failing, or too many files are open, each call says so, and advises nothing about hard
    links or permissions.
    """
    store = LocalStore(tmp_path / "store")
    store.put("a", b"x")

    def failing(*arguments: object, **keywords: object) -> object:
        raise OSError(number, os.strerror(number))

    calls: list[Callable[[], object]] = [
        lambda: store.put_if_absent("b", b"x"),
        lambda: store.put("a", b"x"),
        lambda: store.get("a"),
        lambda: store.get_range("a", 0, 1),
        lambda: list(store.list("")),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        patch.setattr(os, "scandir", failing)
        errors = [error_of(call) for call in calls]
    for error in errors:
        assert error.reason is reason
        assert os.strerror(number).lower() in error.seen.lower()
        assert not any(word in f"{error.expected} {error.action}" for word in ("link", "permission"))


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "permission"),
        (errno.EOPNOTSUPP, "hard links"),
        (errno.EMLINK, "hard links"),
    ],
    ids=errno.errorcode.get,
)
def test_what_a_file_system_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    """A refused permission and a file system without hard links are named as what they are."""
    store = LocalStore(tmp_path / "store")

    def failing(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", failing)
    error = error_of(lambda: store.put_if_absent("a", b"x"))
    assert type(error) is StoreNotWritableError
    assert error.reason is None
    assert advice in error.expected
