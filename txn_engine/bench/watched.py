"""A store that notes every call, and may take as long over each as a distant one does."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from storage import MappableStore, ObjectInfo, ObjectStore

_PAGE = 1_000
"""Objects that one call of a listing brings, as a bucket has it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a store: from when to when, in seconds of `time.perf_counter`; `stored`: it put an object there."""

    kind: str
    key: str
    began: float
    ended: float
    stored: bool = False


class WatchedStore:
    """An ObjectStore over another one that notes each call, and takes `call_ms` over it: half of that before the
    other store is asked, half behind. Calls of several threads overlap. A listing is a call for every 1,000 objects.

    It can do what every store can, and nothing that only some can (mapping, spooling): objects come by `get`.
    """

    def __init__(self, store: ObjectStore, *, call_ms: float = 0.0) -> None:
        self.watched = store
        self.call_ms = call_ms
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._under_way = 0
        self._quiet_since = time.perf_counter()

    def take(self) -> list[Call]:
        """The calls that ended since the last `take`, by their ends."""
        with self._lock:
            calls, self._calls = self._calls, []
        return calls

    def newest_put(self, prefix: str) -> Call | None:
        """Of the calls that `take` would return now, the last one that stored an object below `prefix`."""
        with self._lock:
            return next(
                (call for call in reversed(self._calls) if call.stored and call.key.startswith(prefix)), None
            )

    def wait_until_quiet(self, quiet_s: float) -> None:
        """Return once no call has been under way for so long: what works behind a caller's back is done."""
        while True:
            with self._lock:
                left = quiet_s if self._under_way else self._quiet_since + quiet_s - time.perf_counter()
            if left <= 0:
                return
            time.sleep(left)

    @contextmanager
    def _call(self, kind: str, key: str) -> Iterator[list[bool]]:
        """Around one call; what is put into the list says whether it stored an object."""
        stored: list[bool] = []
        began = time.perf_counter()
        with self._lock:
            self._under_way += 1
        try:
            self._pause()
            yield stored
        finally:
            self._pause()  # an answer that there is no such object takes as long
            ended = time.perf_counter()
            with self._lock:
                self._under_way -= 1
                self._quiet_since = ended
                self._calls.append(Call(kind, key, began, ended, any(stored)))

    def _pause(self) -> None:
        if self.call_ms:
            time.sleep(self.call_ms / 2_000)

    # --- the store ------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The other store's."""
        return self.watched.url

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """As the other store."""
        with self._call("put_if_absent", key) as stored:
            answer = self.watched.put_if_absent(key, data)
            stored.append(answer)
        return answer

    def put(self, key: str, data: bytes) -> None:
        """As the other store."""
        with self._call("put", key) as stored:
            self.watched.put(key, data)
            stored.append(True)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """As the other store."""
        with self._call("get", key):
            return self.watched.get(key, max_bytes=max_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """As the other store."""
        with self._call("get_range", key):
            return self.watched.get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        """As the other store."""
        with self._call("head", key):
            return self.watched.head(key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """As the other store, a page at a time."""
        found = self.watched.list(prefix, start_after=start_after)
        while True:
            with self._call("list", prefix):
                page = [info for _, info in zip(range(_PAGE), found, strict=False)]
            yield from page
            if len(page) < _PAGE:
                return

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """As the other store."""
        with self._call("list_folders", prefix):
            return self.watched.list_folders(prefix)

    def delete(self, key: str) -> None:
        """As the other store."""
        with self._call("delete", key):
            self.watched.delete(key)

    def uri(self, key: str) -> str:
        """As the other store."""
        return self.watched.uri(key)

    def close(self) -> None:
        """As the other store."""
        self.watched.close()


class _MappableWatchedStore(WatchedStore):
    """That of a store whose objects can be mapped, which an engine makes use of."""

    def __init__(self, store: MappableStore) -> None:
        super().__init__(store)
        self.map = store.map


def watching(store: ObjectStore) -> WatchedStore:
    """Each call noted and none delayed; the store can be mapped if it could before."""
    return _MappableWatchedStore(store) if isinstance(store, MappableStore) else WatchedStore(store)


def in_a_row(calls: Sequence[Call]) -> int:
    """The most calls of which each began after the one before had ended: the rounds that they took.

    No fewer than the longest chain of calls that wait for each other; more only where calls that do not wait for each
    other never overlap.
    """
    count, end = 0, float("-inf")
    for call in sorted(calls, key=lambda call: call.ended):
        if call.began >= end:
            count, end = count + 1, call.ended
    return count
