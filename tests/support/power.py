"""Power cuts for the durable local store.

The store's real code runs on a real folder, and every call that changes the disk is recorded on a tape. After
each of them the disk is cut in every way that POSIX allows.

POSIX promises little: the bytes of a file are on the disk once the file was synced, and a name once its
folder was synced. Until then each may be there or not, whichever came first, and unsynced bytes may be there
in part or as zeros.
"""

from __future__ import annotations

import builtins
import itertools
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pytest

import storage.local
import storage.temporary
from storage import LocalStore, ObjectInfo, ObjectStore
from storage.keys import TEMPORARY_FOLDER

Kind = Literal[
    "create", "write", "sync_file", "sync_folder", "link", "replace", "unlink", "mkdir",
    "begin_put", "begin_create", "promise", "drop", "note",
]  # fmt: skip
Tree = Mapping[str, bytes | None]
"""A disk after a cut: path to bytes, None for a folder."""

STORE: Final = "store"
_LITTER: Final = f"{STORE}/{TEMPORARY_FOLDER}"
ALL_SUBSETS_MAX: Final = 6
_RANDOM_SUBSETS: Final = 4
_FOLDER: Final = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One call that changed the disk, or one promise made to the caller. Paths are relative to the store's parent."""

    kind: Kind
    path: str = ""
    file: int = _FOLDER
    data: bytes = b""
    said: object = None


class MachineOffError(BaseException):
    """The error that ends a process whose machine is off."""


class Recorder:
    """A replacement for the module `os` in the local store. It makes each call, and records it on the tape.

    `drops(call, path)` selects syncs that are left out, as a mutant store would do. `dies_at` is the number
    of the disk-changing call (0, 1, ...) from which on the process is gone.
    """

    def __init__(self, base: Path, *, drops: Callable[[str, str], bool] = lambda _call, _path: False) -> None:
        self.tape: list[Step] = []
        self.dies_at: int | None = None
        self.calls = 0
        self._base = f"{base}/"
        self._drops = drops
        self._lock = threading.RLock()
        self._open: dict[int, tuple[str, int]] = {}
        self._names: dict[str, int] = {}
        self._ids = itertools.count()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def say(self, kind: Kind, path: str = "", data: bytes = b"", said: object = None) -> None:
        """Record on the tape what the store or its user said."""
        with self._lock:
            self.tape.append(Step(kind, path, data=data, said=said))

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        with self._lock:
            if flags & os.O_CREAT:
                self._change()
            descriptor = os.open(path, flags, mode)
            short = self._short(path)
            if flags & os.O_CREAT:
                self._names[short] = next(self._ids)
                self.tape.append(Step("create", short, self._names[short]))
            self._open[descriptor] = (short, self._names.get(short, _FOLDER))
            return descriptor

    def close(self, descriptor: int) -> None:
        with self._lock:
            self._open.pop(descriptor, None)
            os.close(descriptor)

    def write(self, descriptor: int, data: memoryview) -> int:
        with self._lock:
            self._change()
            written = os.write(descriptor, data)
            path, file = self._open[descriptor]
            self.tape.append(Step("write", path, file, bytes(data[:written])))
            return written

    def fdatasync(self, descriptor: int) -> None:
        self._sync("fdatasync", descriptor)

    def fsync(self, descriptor: int) -> None:
        self._sync("fsync", descriptor)

    def link(self, source: str, target: str) -> None:
        with self._lock:
            self._change()
            os.link(source, target)
            self._name("link", self._short(target), self._names[self._short(source)])

    def replace(self, source: str, target: str) -> None:
        with self._lock:
            self._change()
            os.replace(source, target)
            file = self._names.pop(self._short(source))
            self._name("replace", self._short(target), file)
            self.tape.append(Step("unlink", self._short(source)))  # either name may survive alone

    def unlink(self, path: str) -> None:
        with self._lock:
            self._change()
            os.unlink(path)
            self._names.pop(self._short(path), None)
            self.tape.append(Step("unlink", self._short(path)))

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        with self._lock:
            self._change()
            os.mkdir(path, mode)
            self.tape.append(Step("mkdir", self._short(path)))

    def _name(self, kind: Kind, path: str, file: int) -> None:
        self._names[path] = file
        self.tape.append(Step(kind, path, file))

    def _sync(self, call: str, descriptor: int) -> None:
        with self._lock:
            path, file = self._open[descriptor]
            if self._drops(call, path):
                return
            self._change()
            self.tape.append(Step("sync_folder" if file == _FOLDER else "sync_file", path, file))

    def _change(self) -> None:
        if self.dies_at is not None and self.calls >= self.dies_at:
            raise MachineOffError
        self.calls += 1

    def _short(self, path: str) -> str:
        return f"{path}/".removeprefix(self._base).rstrip("/")


class WithoutFullSync:
    """A replacement for `fcntl`. The sync is fdatasync, on macOS too, so that the tape has it."""


@contextmanager
def recording(base: Path, **settings: Any) -> Iterator[Recorder]:
    """Record what local stores below `base` do to the disk."""
    recorder = Recorder(base, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.local, "os", recorder)
        patch.setattr(storage.temporary, "os", recorder)
        patch.setattr(storage.local, "fcntl", WithoutFullSync())
        yield recorder


@dataclass(slots=True)
class PromisingStore:
    """A local store whose answers are recorded as promises: an object that was put or read exists from then
    on."""

    inner: LocalStore
    recorder: Recorder

    @property
    def url(self) -> str:
        return self.inner.url

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.recorder.say("begin_create", key, bytes(data))
        won = self.inner.put_if_absent(key, data)
        if won:
            self.recorder.say("promise", key, bytes(data))
        return won

    def put(self, key: str, data: bytes) -> None:
        self.recorder.say("begin_put", key, bytes(data))
        self.inner.put(key, data)
        self.recorder.say("promise", key, bytes(data))

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        data = self.inner.get(key, max_bytes=max_bytes)
        self.recorder.say("promise", key, data)
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        part = self.inner.get_range(key, start, length)
        self.recorder.say("promise", key, Path(self.inner.uri(key)).read_bytes())
        return part

    def map(self, key: str) -> memoryview:
        view = self.inner.map(key)
        self.recorder.say("promise", key, bytes(view))
        return view

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after=start_after)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return self.inner.list_folders(prefix)

    def delete(self, key: str) -> None:
        self.recorder.say("drop", key)
        self.inner.delete(key)

    def uri(self, key: str) -> str:
        return self.inner.uri(key)

    def close(self) -> None:
        self.inner.close()


@dataclass(slots=True)
class _File:
    written: bytes = b""
    durable: bytes = b""


@dataclass(slots=True)
class _Folder:
    """Names that are on the disk, and changes of names that are not: (when, name, file or folder, None for an
    unlink)."""

    durable: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[int, str, int | None]] = field(default_factory=list)


class Disk:
    """What is certainly on the disk, and what may be."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {"": _Folder()}
        self._files: dict[int, _File] = {}
        self._times = itertools.count()

    def apply(self, step: Step) -> bool:
        """Apply one step. Returns whether it changed the disk."""
        match step.kind:
            case "create":
                self._files[step.file] = _File()
                self._change_name(step.path, step.file)
            case "write":
                self._files[step.file].written += step.data
            case "sync_file":
                self._files[step.file].durable = self._files[step.file].written
            case "sync_folder":
                folder = self._folders[step.path]
                folder.durable = _applied(folder, {when for when, _, _ in folder.pending})
                folder.pending.clear()
            case "link" | "replace":
                self._change_name(step.path, step.file)
            case "unlink":
                self._change_name(step.path, None)
            case "mkdir":
                self._folders[step.path] = _Folder()
                self._change_name(step.path, _FOLDER)
            case _:
                return False
        return True

    def cuts(self, chance: random.Random) -> Iterator[Tree]:
        """The disks that a power cut may leave now. Either all names in the litter folder are there or
        none."""
        changes = sorted(
            (when, path) for path, folder in self._folders.items() for when, _, _ in folder.pending
        )
        litter = {when for when, path in changes if path == _LITTER}
        others = [when for when, path in changes if path != _LITTER]
        unsynced = any(file.written != file.durable for file in self._files.values())
        for kept in _subsets(others, chance):
            for with_litter in (kept, kept | litter) if litter else (kept,):
                for torn in (_lost, _half, _zeros, _whole) if unsynced else (_lost,):
                    tree: dict[str, bytes | None] = {}
                    self._build("", with_litter, torn, tree)
                    yield tree

    def cut(self, chance: random.Random) -> Tree:
        """One of these disks, chosen at random. Its unsynced files are all torn in the same way."""
        changes = sorted(when for folder in self._folders.values() for when, _, _ in folder.pending)
        share = chance.choice((0.0, 0.5, 0.9, 1.0))
        kept = {when for when in changes if chance.random() < share}
        tree: dict[str, bytes | None] = {}
        self._build("", kept, chance.choice((_lost, _half, _zeros, _whole)), tree)
        return tree

    @classmethod
    def of(cls, tree: Tree) -> Disk:
        """A disk after a restart. Everything on it is durable."""
        disk = cls()
        for file, (path, data) in enumerate(tree.items()):  # a folder comes before what is in it
            folder, _, name = path.rpartition("/")
            if data is None:
                disk._folders[path] = _Folder()
                disk._folders[folder].durable[name] = _FOLDER
            else:
                disk._files[-2 - file] = _File(data, data)
                disk._folders[folder].durable[name] = -2 - file
        return disk

    def _build(
        self, path: str, kept: set[int], torn: Callable[[_File], bytes], tree: dict[str, bytes | None]
    ) -> None:
        for name, node in _applied(self._folders[path], kept).items():
            below = f"{path}/{name}" if path else name
            if node == _FOLDER:
                tree[below] = None
                self._build(below, kept, torn, tree)
            else:
                file = self._files[node]
                tree[below] = file.durable if file.written == file.durable else torn(file)

    def _change_name(self, path: str, node: int | None) -> None:
        folder, _, name = path.rpartition("/")
        self._folders[folder].pending.append((next(self._times), name, node))


def _applied(folder: _Folder, kept: set[int]) -> dict[str, int]:
    names = dict(folder.durable)
    for when, name, node in folder.pending:
        if when in kept:
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
    return names


def _subsets(changes: list[int], chance: random.Random) -> Iterator[set[int]]:
    """All subsets of a few changes. Of many changes: none, all, each prefix, all but each one, and some
    random ones."""
    if len(changes) <= ALL_SUBSETS_MAX:
        for size in range(len(changes) + 1):
            yield from map(set, itertools.combinations(changes, size))
        return
    for count in range(len(changes) + 1):
        yield set(changes[:count])
    for change in changes:
        yield set(changes) - {change}
    for _ in range(_RANDOM_SUBSETS):
        yield {change for change in changes if chance.random() < 0.5}


def _lost(file: _File) -> bytes:
    return file.durable


def _half(file: _File) -> bytes:
    return file.written[: (len(file.durable) + len(file.written)) // 2]


def _zeros(file: _File) -> bytes:
    return file.durable + bytes(len(file.written) - len(file.durable))


def _whole(file: _File) -> bytes:
    return file.written


class Promises:
    """The promises so far: which bytes may be at a key, and which must be there."""

    def __init__(self, tape: list[Step], start: Tree) -> None:
        self.said: list[object] = []
        self._proposed: dict[str, set[bytes]] = {key: {data} for key, data in objects_of(start).items()}
        self._must: dict[str, set[bytes]] = {key: {data} for key, data in objects_of(start).items()}
        for step in tape:
            if step.kind in ("begin_put", "begin_create"):
                self._proposed.setdefault(step.path, set()).add(step.data)

    def note(self, step: Step) -> bool:
        """Take in one step. Returns whether it promised something."""
        match step.kind:
            case "promise":
                self._must[step.path] = {step.data}
            case "begin_put":  # an overwrite under way: old or new, and nothing else
                if step.path in self._must:
                    self._must[step.path].add(step.data)
            case "drop":
                self._must.pop(step.path, None)
            case "note":
                self.said.append(step.said)
            case _:
                return False
        return True

    def broken(self, tree: Tree) -> list[str]:
        """The promises that a disk breaks: objects that nobody put there, or that are empty or partial, and
        promised ones that are gone or different."""
        found = [
            f"{path}: {len(data)} bytes that nobody put there"
            for path, data in tree.items()
            if data is not None and _is_object(path) and data not in self._proposed.get(_key(path), ())
        ]
        for key, allowed in self._must.items():
            if (at := tree.get(f"{STORE}/{key}")) not in allowed:
                found.append(f"{key}: {'gone' if at is None else 'other bytes'}, though it was promised")
        return found


def _key(path: str) -> str:
    return path.removeprefix(f"{STORE}/")


def _is_object(path: str) -> bool:
    return path.startswith(f"{STORE}/") and not path.startswith(f"{_LITTER}/")


def objects_of(tree: Tree) -> dict[str, bytes]:
    """Key to bytes, without folders and litter."""
    return {_key(path): data for path, data in tree.items() if data is not None and _is_object(path)}


def litter_of(tree: Tree) -> list[str]:
    """The names of temporary files that the cut left."""
    return [path.rpartition("/")[2] for path in tree if path.startswith(f"{_LITTER}/")]


@contextmanager
def disks_in_memory() -> Iterator[Path]:
    """A folder for the disks, in memory if possible, because nobody syncs it for its own sake."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def write_tree(tree: Tree, base: Path) -> Path:
    """Write this disk below `base`, in place of the disk before, and return the store's folder."""
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    for path, data in tree.items():  # a folder comes before what is in it
        if data is None:
            (base / path).mkdir()
        else:
            (base / path).write_bytes(data)
    return base / STORE


@dataclass(slots=True)
class Survey:
    """The result of all cuts of a tape: the number of `cuts`, the number of different disks, and the `broken`
    promises."""

    cuts: int = 0
    disks: int = 0
    broken: list[str] = field(default_factory=list)


def survey(
    tape: list[Step],
    inspect: Callable[[Tree, Promises], None],
    *,
    objects_only: bool = False,
    every: int = 1,
    seed: int = 0,
    broken_max: int = 1,
    start: Tree | None = None,
) -> Survey:
    """Cut the power after every step of the tape, in every way, and stop at `broken_max` broken promises.

    Every disk is judged by the promises made until then, and each different one is also given to `inspect`.
    With `objects_only`, disks that differ only in temporary files and empty folders count as one. With
    `every`, only each n-th of the different disks is given to `inspect`, but promises are judged on all.
    `start` is the disk at the beginning of the tape.
    """
    result, disk, promises = Survey(), Disk.of(start or {}), Promises(tape, start or {})
    chance = random.Random(seed)
    looked_into: set[tuple[int, frozenset[tuple[str, bytes | None]]]] = set()
    for number, step in enumerate(tape):
        if not (disk.apply(step) | promises.note(step)):
            continue
        for tree in disk.cuts(chance):
            result.cuts += 1
            if broken := promises.broken(tree):
                result.broken.append(f"after step {number} ({step.kind} {step.path}): {broken[0]}")
                if len(result.broken) >= broken_max:
                    return result
            things: Tree = objects_of(tree) if objects_only else tree
            mark = (len(promises.said), frozenset(things.items()))
            if mark not in looked_into:
                looked_into.add(mark)
                if len(looked_into) % every == 0:
                    result.disks += 1
                    inspect(tree, promises)
    return result


def promising(recorder: Recorder, base: Path, kind: type[LocalStore] = LocalStore) -> ObjectStore:
    """A store below `base` whose promises are recorded on the tape."""
    return PromisingStore(kind(base / STORE), recorder)
