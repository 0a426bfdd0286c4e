"""The simulated object store: one shelf of objects, and a handle to it for each simulated process."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit

from storage import (
    AccessDeniedError,
    NotConnectedError,
    ObjectInfo,
    ObjectNotFoundError,
    StorageError,
    StoreUnreachableError,
    validate_key,
)
from storage.keys import validate_prefix
from storage.ranges import check_size, short_range, validate_range
from tests.simulator.faults import Fault
from tests.simulator.kernel import MINUTE, MS, Kernel, current_task, sleep

if TYPE_CHECKING:
    from tests.simulator.process import Process

URL = "sim://store"
_CONNECTION_LIVES = MINUTE


class Shelf:
    """The objects, and everything that ever landed, like a store with S3's API.

    It answers truthfully and at once. The checkers look at `landed` (time, key, bytes, operation) afterwards.
    It is an ObjectStore of its own, for the auditor.
    """

    def __init__(self, kernel: Kernel, url: str = URL) -> None:
        self._kernel = kernel
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.landed: list[tuple[int, str, bytes, str]] = []
        self.url = url

    def put_if_absent(self, key: str, data: bytes) -> bool:
        validate_key(key)
        if key in self.objects:
            return False
        self._keep(key, data, "put_if_absent")
        return True

    def put(self, key: str, data: bytes) -> None:
        validate_key(key)
        self._keep(key, data, "put")

    def _keep(self, key: str, data: bytes, operation: str) -> None:
        held = bytes(data)
        self.objects[key] = (held, self._kernel.now)
        self.landed.append((self._kernel.now, key, held, operation))

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        validate_key(key)
        held = self.objects.get(key)
        if held is None:
            raise ObjectNotFoundError("there is no such object", actor="simulated store", place=self.uri(key))
        check_size(self.uri(key), len(held[0]), max_bytes)
        return held[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        validate_range(start, length)
        data = self.get(key)
        if start + length > len(data):
            raise short_range(self.uri(key), start, length, len(data))
        return data[start : start + length]

    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self.get(key)), self._modified_ms(key))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(self.listing(prefix, start_after, newer_than=None))

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return self.folders(prefix, newer_than=None)

    def delete(self, key: str) -> None:
        validate_key(key)
        if self.objects.pop(key, None) is not None:
            self.landed.append((self._kernel.now, key, b"", "delete"))

    def damage(self, key: str) -> bytes:
        """Change one byte in the middle of an object, like a bad disk. Returns the bytes as they were."""
        held, at = self.objects[key]
        middle = len(held) // 2
        self.objects[key] = (held[:middle] + bytes([held[middle] ^ 0xFF]) + held[middle + 1 :], at)
        return held

    def uri(self, key: str) -> str:
        return f"{self.url}/{key}"

    def close(self) -> None:
        """Close nothing."""

    def listing(
        self, prefix: str, start_after: str | None, newer_than: int | None
    ) -> builtins.list[ObjectInfo]:
        """The objects below a prefix, without those put after `newer_than`."""
        folder = validate_prefix(prefix)
        keys = sorted(
            key
            for key, (_, at) in self.objects.items()
            if key.startswith(folder)
            and (start_after is None or key > start_after)
            and (newer_than is None or at <= newer_than)
        )
        return [ObjectInfo(key, len(self.objects[key][0]), self._modified_ms(key)) for key in keys]

    def folders(self, prefix: str, newer_than: int | None) -> builtins.list[str]:
        """The names of the folders right below a prefix, without what was put after `newer_than`."""
        folder = validate_prefix(prefix)
        below = [
            key[len(folder) :]
            for key, (_, at) in self.objects.items()
            if key.startswith(folder) and (newer_than is None or at <= newer_than)
        ]
        return sorted({path.partition("/")[0] for path in below if "/" in path})

    def _modified_ms(self, key: str) -> int:
        return self._kernel.now_ms - (self._kernel.now - self.objects[key][1]) // 1_000


class ClientStore:
    """The store as one process reaches it: every operation takes time, and may fail in every way in which a
    store can.

    A write is an event of its own: it takes effect or not, whatever happens to the process that asked for it.
    """

    def __init__(self, shelf: Shelf, process: Process) -> None:
        self._shelf = shelf
        self._process = process
        self.url = shelf.url

    # --- the operations -------------------------------------------------------------------------------------

    def put_if_absent(self, key: str, data: bytes) -> bool:
        validate_key(key)
        held = bytes(data)
        return bool(self._write("put_if_absent", key, lambda: self._shelf.put_if_absent(key, held)))

    def put(self, key: str, data: bytes) -> None:
        validate_key(key)
        held = bytes(data)
        self._write("put", key, lambda: self._shelf.put(key, held))

    def delete(self, key: str) -> None:
        validate_key(key)
        self._write("delete", key, lambda: self._shelf.delete(key))

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return self._read("get", key, lambda _: self._shelf.get(key, max_bytes=max_bytes))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._read("get_range", key, lambda _: self._shelf.get_range(key, start, length))

    def head(self, key: str) -> ObjectInfo:
        return self._read("head", key, lambda _: self._shelf.head(key))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(
            self._read("list", prefix, lambda newest: self._shelf.listing(prefix, start_after, newest))
        )

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return self._read("list_folders", prefix, lambda newest: self._shelf.folders(prefix, newest))

    def uri(self, key: str) -> str:
        return self._shelf.uri(key)

    def close(self) -> None:
        """Close nothing."""

    # --- how they go ----------------------------------------------------------------------------------------

    def _begin(self, operation: str, key: str) -> tuple[str, Fault | None]:
        """The site of this operation and its fault. A process fault before the operation happens here."""
        process = self._process
        if process.dead:
            raise GreenletExit
        site = process.next_site(operation, key)
        fault = process.world.plan.at(site, operation)
        if fault is not None:
            if fault.kind == "crash-before":
                self._note(operation, key, "", fault)
                process.crash()
            if fault.kind in ("pause-before", "clock-jump"):
                self._note(operation, key, "", fault)
                self._disturb(fault)
        return site, fault

    def _finish(self, fault: Fault | None) -> None:
        if fault is None:
            return
        if fault.kind == "crash-after":
            self._process.crash()
        if fault.kind == "pause-after":
            self._disturb(fault)

    def _disturb(self, fault: Fault) -> None:
        if fault.kind == "clock-jump":
            self._process.skew_ms += fault.duration // 1_000
        else:
            self._process.pause(fault.duration)
            sleep(0)

    def _overslept(self, site: str, due: int) -> bool:
        """Whether the machine slept for so long while it waited for this answer that its connection is
        gone."""
        world = self._process.world
        return world.kernel.now - due > _CONNECTION_LIVES and world.chance.at("gone", site) < 0.7

    def _latency(self, site: str, leg: str) -> int:
        chance = self._process.world.chance
        return chance.spread(200, 20 * MS, leg, site)

    def _read(self, operation: str, key: str, look: Callable[[int | None], Any]) -> Any:
        site, fault = self._begin(operation, key)
        kernel = self._process.world.kernel
        kind = fault.kind if fault is not None else ""
        length = fault.duration if fault is not None else 0
        due = kernel.now + self._latency(site, "there") + (length if kind == "slow" else 0)
        sleep(due - kernel.now)
        if kind in ("refused", "unconnected"):
            self._note(operation, key, "failed", fault)
            raise self._error(kind, operation, key)
        try:
            found = look(kernel.now - length if kind == "lagging" else None)
            outcome = _describe(found)
        except ObjectNotFoundError as absent:
            found, outcome = absent, "absent"
        if kind == "lost-reply":
            sleep(length)
        if kind == "lost-reply" or self._overslept(site, due):
            self._note(operation, key, "timed out", fault)
            raise self._error("lost-reply", operation, key)
        if self._process.world.chance.at("split", site) < 0.3:
            sleep(self._latency(site, "back"))
        self._note(operation, key, outcome, fault)
        self._finish(fault)
        if isinstance(found, ObjectNotFoundError):
            raise found
        return found

    def _write(self, operation: str, key: str, act: Callable[[], Any]) -> Any:
        site, fault = self._begin(operation, key)
        world = self._process.world
        kind = fault.kind if fault is not None else ""
        length = fault.duration if fault is not None else 0
        there, back = self._latency(site, "there"), self._latency(site, "back")
        if kind in ("refused", "unconnected", "denied", "conflict"):
            sleep(there + back)
            self._note(operation, key, "failed", fault)
            if kind == "conflict":
                return False
            raise self._error(kind, operation, key)
        answer: list[Any] = []
        lost_with_client = world.chance.at("lands", site) < 0.5
        at = world.kernel.now + there + (length if kind in ("slow", "late") else 0)

        def land() -> None:
            if lost_with_client and (kind == "late" or self._process.dead):
                return
            answer.append(act())
            said = {True: "stored", False: "taken", None: "done"}[answer[0]]
            self._note(operation, key, f"{said} (late)" if kind == "late" else said, fault)

        world.kernel.at(at, land)
        due = at + back + (length if kind == "lost-reply" else 0)
        if kind == "late":
            due = world.kernel.now + min(length, world.chance.spread(500 * MS, 20_000 * MS, "gives up", site))
        sleep(due - world.kernel.now)
        if kind not in ("late", "error-after") and self._overslept(site, due):
            kind = "lost-reply"
        if kind in ("late", "lost-reply", "error-after"):
            self._note(operation, key, "timed out" if kind != "error-after" else "500", fault)
            raise self._error(kind, operation, key)
        self._finish(fault)
        if kind == "taken-after":
            return False
        return answer[0]

    def _error(self, kind: str, operation: str, key: str) -> StorageError:
        classes = {"unconnected": NotConnectedError, "denied": AccessDeniedError}
        made = classes.get(kind, StoreUnreachableError)
        return made(f"{operation} failed: {kind}", actor="simulated store", place=self.uri(key))

    def _note(self, operation: str, key: str, outcome: str, fault: Fault | None) -> None:
        task = current_task()
        who = task.name if task is not None else "store"
        process = self._process
        process.world.kernel.note(
            process.name, who, operation, key, outcome, "" if fault is None else fault.kind
        )
        process.world.operations += 1


def _describe(found: Any) -> str:
    if isinstance(found, ObjectInfo):
        return f"{found.size} bytes"
    return f"{len(found)} {'bytes' if isinstance(found, bytes) else 'found'}"
