"""A local store inside a simulated run: the real backend, on a disk that forgets what was not synced.

All processes share one machine. Every call that changes the disk takes time in which others run, and a
process may die between any two of them. A power cut ends all processes and leaves one of the disks that POSIX
allows.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import storage.local
import storage.temporary
from storage import LocalStore, ObjectInfo, ObjectNotFoundError
from storage.keys import validate_key
from tests.simulator.kernel import MS, START_MS, Kernel, current_task, sleep
from tests.simulator.store import ClientStore, Shelf
from tests.support.power import (
    STORE,
    Disk,
    Recorder,
    WithoutFullSync,
    disks_in_memory,
    objects_of,
    write_tree,
)

if TYPE_CHECKING:
    from tests.simulator.process import Process
    from tests.simulator.world import World

_CALLS_OF_A_PUT = 10
_TICK_MS = 4  # files' times come from a clock that ticks this coarsely
_LITTER = f"{STORE}/{storage.local.TEMPORARY_FOLDER}/"


class _Wall(ModuleType):
    """`time` with the virtual clock of the machine."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__("time")
        self._kernel = kernel

    def time_ns(self) -> int:
        return START_MS * 1_000_000 + self._kernel.now * 1_000

    def monotonic_ns(self) -> int:
        return self._kernel.now * 1_000


class _Calls(Recorder):
    """The system calls of the local store. Each takes a moment, in which its process may end and others
    run."""

    def __init__(self, base: Path, world: World) -> None:
        super().__init__(base)
        self.landed: list[tuple[int, str, bytes, str]] = []
        self.changed_ms: dict[str, int] = {}
        self.stops: dict[Process, tuple[int, Callable[[], None]]] = {}
        self.stops_at_name: dict[Process, str] = {}
        self._syncs = 0
        self._world = world

    def _change(self) -> None:
        task = current_task()
        if task is None:
            return
        world, process = self._world, task.process
        self.calls += 1
        sleep(world.chance.spread(20, 2 * MS, "call", process.name, self.calls))
        if process in self.stops:
            left, stop = self.stops.pop(process)
            if left <= 0:
                stop()
            self.stops[process] = left - 1, stop

    def _stop_at_name(self, target: str) -> None:
        task = current_task()
        if task is not None and self.stops_at_name.get(task.process, "\0") in target:
            del self.stops_at_name[task.process]
            task.process.crash()

    def _sync(self, call: str, descriptor: int) -> None:
        task = current_task()
        if task is not None:
            self._syncs += 1
            sleep(self._world.chance.spread(MS, 300 * MS, "sync", task.process.name, self._syncs))
        super()._sync(call, descriptor)

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self._note(target, "put_if_absent")
        self._stop_at_name(target)

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self._note(target, "put")

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._note(path, "delete")

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        descriptor = super().open(path, flags, mode)
        if flags & os.O_CREAT:
            self._touch(path)
        return descriptor

    def fstat(self, descriptor: int) -> Any:
        return self._dated(os.fstat(descriptor), self._open[descriptor][0])

    def stat(self, path: str) -> Any:
        return self._dated(os.stat(path), self._short(path))

    def _dated(self, found: os.stat_result, short: str) -> Any:
        """The result of stat with the virtual time. The kernel's own time would make every run different."""
        at_ns = self.changed_ms.get(short, START_MS) * 1_000_000
        return SimpleNamespace(
            st_mode=found.st_mode,
            st_size=found.st_size,
            st_ino=found.st_ino,
            st_mtime_ns=at_ns,
            st_ctime_ns=at_ns,
        )

    def _touch(self, path: str) -> None:
        now_ms = self._world.kernel.now_ms
        self.changed_ms[self._short(path)] = now_ms - now_ms % _TICK_MS

    def _note(self, path: str, operation: str) -> None:
        short = self._short(path)
        if short.startswith(_LITTER):
            return
        self._touch(path)
        data = b"" if operation == "delete" else Path(path).read_bytes()
        self.landed.append((self._world.kernel.now, short.removeprefix(f"{STORE}/"), data, operation))


class Machine:
    """The one machine of a run: its folder, its disk, and what is left of them after a power cut.

    `shelf`: the store as the judges see it, like `Shelf` for a bucket.
    """

    def __init__(self, world: World, base: Path) -> None:
        self._world = world
        self._base = base
        self._disk = Disk()
        self.calls = _Calls(base, world)
        self.cuts = 0
        self.lost = 0  # changes of objects that cuts undid

    @property
    def root(self) -> Path:
        """The store's folder."""
        return self._base / STORE

    def stop_inside(self, process: Process, calls: int, stop: Callable[[], None]) -> None:
        """Let `stop` end the process after this many calls that change the disk."""
        self.calls.stops[process] = calls, stop

    def stop_at_name(self, process: Process, part: str) -> None:
        """End the process once it has given an object a name with this part, which it has not put on the disk."""
        self.calls.stops_at_name[process] = part

    def cut_power(self) -> None:
        """End all processes now. The disk keeps what was synced, and chance decides about the rest."""
        world = self._world
        self.cuts += 1
        for step in self.calls.tape:
            self._disk.apply(step)
        self.calls.tape.clear()
        tree = self._disk.cut(world.chance.random("cut", self.cuts))
        write_tree(tree, self._base)
        self._disk = Disk.of(tree)
        left = objects_of(tree)
        survivors = _survivors(self.calls.landed, left)
        self.lost += len(self.calls.landed) - len(survivors)
        self.calls.landed[:] = survivors
        self.calls.stops.clear()
        self.calls.stops_at_name.clear()
        for process in world.processes:
            if not process.dead:
                process.dead = True
                world.on_death(process)


def _survivors(
    landed: builtins.list[tuple[int, str, bytes, str]], left: dict[str, bytes]
) -> builtins.list[tuple[int, str, bytes, str]]:
    """The changes that landed and are still in effect: for each key, all up to the one that made it what it
    is now."""
    last: dict[str, int] = {}
    for number, (_, key, data, operation) in enumerate(landed):
        if left.get(key) == (None if operation == "delete" else data):
            last[key] = number
    return [change for number, change in enumerate(landed) if number <= last.get(change[1], -1)]


class DiskShelf(Shelf):
    """The folder as the judges see it, read through the backend at once."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        super().__init__(kernel)
        self._machine = machine
        self.landed = machine.calls.landed

    def _store(self) -> LocalStore:
        return LocalStore(self._machine.root)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._store().put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._store().put(key, data)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return self._store().get(key, max_bytes=max_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._store().get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        return self._store().head(key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._store().list(prefix, start_after=start_after)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return self._store().list_folders(prefix)

    def delete(self, key: str) -> None:
        self._store().delete(key)


class LocalClient(ClientStore):
    """The folder as one process reaches it."""

    def __init__(self, shelf: Shelf, process: Process, machine: Machine) -> None:
        super().__init__(shelf, process)
        self._machine = machine
        self._opened: LocalStore | None = None

    def put_if_absent(self, key: str, data: bytes) -> bool:
        held = bytes(data)
        return bool(self._call("put_if_absent", key, lambda store: store.put_if_absent(key, held)))

    def put(self, key: str, data: bytes) -> None:
        held = bytes(data)
        self._call("put", key, lambda store: store.put(key, held))

    def delete(self, key: str) -> None:
        validate_key(key)
        self._call("delete", key, lambda store: store.delete(key))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = self._call(
            "list", prefix, lambda store: builtins.list(store.list(prefix, start_after=start_after))
        )
        return iter(found)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return builtins.list(self._call("list_folders", prefix, lambda store: store.list_folders(prefix)))

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return bytes(self._call("get", key, lambda store: store.get(key, max_bytes=max_bytes)))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return bytes(self._call("get_range", key, lambda store: store.get_range(key, start, length)))

    def head(self, key: str) -> ObjectInfo:
        found: ObjectInfo = self._call("head", key, lambda store: store.head(key))
        return found

    def _call(self, operation: str, key: str, act: Callable[[LocalStore], Any]) -> Any:
        site, fault = self._begin(operation, key)
        kind, length = (fault.kind, fault.duration) if fault is not None else ("", 0)
        sleep(self._latency(site, "there") + (length if kind == "slow" else 0))
        if kind == "refused":
            self._note(operation, key, "failed", fault)
            raise self._error(kind, operation, key)
        if kind in ("crash-inside", "power-cut"):
            after = self._process.world.chance.between(0, _CALLS_OF_A_PUT, "inside", site)
            self._machine.stop_inside(self._process, after, lambda: self._stop(operation, key, fault))
        if self._opened is None:
            self._opened = LocalStore(self._machine.root)
        try:
            found = act(self._opened)
        except ObjectNotFoundError:
            self._note(operation, key, "absent", fault)
            self._finish(fault)
            raise
        said = "stored" if found is True else "taken" if found is False else "done"
        self._note(operation, key, said, fault)
        self._finish(fault)
        return found

    def _stop(self, operation: str, key: str, fault: Any) -> None:
        """End the process, or the machine with all its processes, between two system calls."""
        self._note(operation, key, "", fault)
        if fault.kind == "power-cut":
            self._machine.cut_power()
        self._process.crash()


@contextmanager
def machine_of(world: World) -> Iterator[Machine]:
    """A machine for one run. Meanwhile the local backend of this (real) process works on its disk."""
    with ExitStack() as stack:
        base = stack.enter_context(disks_in_memory()) / "disk"
        base.mkdir()
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        machine = Machine(world, base)
        for module in (storage.local, storage.temporary):
            patch.setattr(module, "os", machine.calls)
            patch.setattr(module, "time", _Wall(world.kernel))
        patch.setattr(storage.local, "fcntl", WithoutFullSync())
        yield machine


__all__ = ["DiskShelf", "LocalClient", "Machine", "machine_of"]
