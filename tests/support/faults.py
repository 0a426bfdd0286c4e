"""A store that fails where a test wants it to, for every suite that asks what an error may break."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from storage import ObjectInfo, ObjectStore, StorageError

Operation = Literal["put_if_absent", "put", "get", "get_range", "head", "list", "list_folders", "delete"]
Fault = Literal["before", "after", "lost", "taken_after"]
"""before: an error, nothing done. after: done, then an error. lost: "stored", nothing done (a store that
lies). taken_after: done, then "already there", as a client tells that resent a request by itself (puts
only).
"""


@dataclass
class FaultyStore:
    """An ObjectStore around a real one that fails by plan, and remembers every call.

    `plan` holds one item for each call of `operation` in order, and None lets a call through. Every call
    after the plan and every other operation goes through. `decide` is asked instead of a plan: (operation,
    key, call number from 0) -> fault or None. `error` makes the error that is raised. `calls` lists
    (operation, key, fault).
    """

    inner: ObjectStore
    plan: dict[Operation, list[Fault | None]] = field(default_factory=dict)
    decide: Callable[[Operation, str, int], Fault | None] | None = None
    error: Callable[[Operation, str], StorageError] = lambda operation, key: StorageError(
        f"injected: {operation}", actor="faulty store", place=key
    )
    calls: list[tuple[Operation, str, Fault | None]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.inner.url

    def count(self, operation: Operation) -> int:
        """How often the operation was called."""
        return sum(1 for called, _, _ in self.calls if called == operation)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        fault = self._next("put_if_absent", key)
        if fault == "lost":
            return True
        stored = self.inner.put_if_absent(key, data)
        if fault == "after":
            raise self.error("put_if_absent", key)
        return False if fault == "taken_after" else stored

    def put(self, key: str, data: bytes) -> None:
        fault = self._next("put", key)
        if fault == "lost":
            return
        self.inner.put(key, data)
        self._after("put", key, fault)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        self._after("get", key, self._next("get", key))
        return self.inner.get(key, max_bytes=max_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._after("get_range", key, self._next("get_range", key))
        return self.inner.get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        self._after("head", key, self._next("head", key))
        return self.inner.head(key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._after("list", prefix, self._next("list", prefix))
        return self.inner.list(prefix, start_after=start_after)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        self._after("list_folders", prefix, self._next("list_folders", prefix))
        return self.inner.list_folders(prefix)

    def delete(self, key: str) -> None:
        fault = self._next("delete", key)
        if fault == "lost":
            return
        self.inner.delete(key)
        self._after("delete", key, fault)

    def uri(self, key: str) -> str:
        return self.inner.uri(key)

    def close(self) -> None:
        self.inner.close()

    def _next(self, operation: Operation, key: str) -> Fault | None:
        fault: Fault | None = None
        if self.decide is not None:
            fault = self.decide(operation, key, len(self.calls))
        elif self.plan.get(operation):
            fault = self.plan[operation].pop(0)
        self.calls.append((operation, key, fault))
        if fault == "before":
            raise self.error(operation, key)
        return fault

    def _after(self, operation: Operation, key: str, fault: Fault | None) -> None:
        if fault == "after":
            raise self.error(operation, key)


class OverwritingStore(FaultyStore):
    """A store that ignores `If-None-Match`: it overwrites and says that it created."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._next("put_if_absent", key)
        self.inner.put(key, data)
        return True


def raising(kind: type[StorageError], seen: str = "refused") -> Callable[[Operation, str], StorageError]:
    """Make a FaultyStore raise errors of this kind."""
    return lambda operation, key: kind(f"{seen}: {operation}", actor="faulty store", place=key)


def faults(*plan: Fault | None) -> builtins.list[Fault | None]:
    """A typed plan for one operation."""
    return [*plan]


def no_pause(attempt: int) -> None:
    """Do not sleep between tries."""


def keys_of(infos: Iterable[ObjectInfo]) -> builtins.list[str]:
    """The keys of a listing in its order."""
    return [info.key for info in infos]
