"""A store that lives with the process: for tests, examples and the simulator."""

from __future__ import annotations

import builtins
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import NoReturn

import xxhash

from storage.errors import ObjectNotFoundError, StorageError
from storage.keys import validate_key, validate_name, validate_prefix
from storage.ranges import check_size, short_range, validate_range
from storage.reasons import StoreReason
from storage.store import ObjectInfo

_BEHIND_SLASH = chr(ord("/") + 1)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 -- the store's own clock, as a server has one


class _Shelf:
    """What is in one memory store: shared by all of its handles in this process. Use it with `lock` held.

    The keys are kept in order beside the objects, so that a listing costs what it lists, however much else there is.
    """

    __slots__ = ("_keys", "_objects", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._keys: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def get(self, key: str) -> tuple[bytes, int] | None:
        return self._objects.get(key)

    def put(self, key: str, data: bytes, modified_ms: int) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = (data, modified_ms)

    def delete(self, key: str) -> None:
        if self._objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def below(self, folder: str, start_after: str | None) -> list[tuple[str, bytes, int]]:
        """What has a key that starts with `folder`, behind `start_after`, by ascending key."""
        first, end = self._range(folder)
        if start_after is not None:
            first = max(first, bisect_right(self._keys, start_after))
        return [(key, *self._objects[key]) for key in self._keys[first:end]]

    def folders(self, folder: str) -> set[str]:
        """The names of the folders right below `folder`; what one has in it is passed over."""
        at, end = self._range(folder)
        found = set()
        while at < end:
            name, slash, _ = self._keys[at][len(folder) :].partition("/")
            if slash:
                found.add(name)
            at = self._range(f"{folder}{name}/")[1] if slash else at + 1
        return found

    def _range(self, folder: str) -> tuple[int, int]:
        if not folder:
            return 0, len(self._keys)
        return bisect_left(self._keys, folder), bisect_left(self._keys, folder[:-1] + _BEHIND_SLASH)


_SHELVES: dict[str, _Shelf] = {}
_SHELVES_LOCK = threading.Lock()


class MemoryStore:
    """An ObjectStore in this process's memory.

    Two instances of one name show the same objects as long as the process lives; without a name it is a
    store of its own. A forked child has a copy that goes its own way, and pickling is refused, for the same
    reason. `clock` gives the time of the store, in milliseconds since the epoch.
    """

    def __init__(self, name: str | None = None, *, clock: Callable[[], int] = _now_ms) -> None:
        self._clock = clock
        if name is None:
            self._name, self._shelf = "anonymous", _Shelf()
        else:
            self._name = validate_name(name)
            with _SHELVES_LOCK:
                self._shelf = _SHELVES.setdefault(name, _Shelf())

    @property
    def url(self) -> str:
        """`memory://name`."""
        return f"memory://{self._name}"

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create the object unless there is one; the answer is always the truth here."""
        validate_key(key)
        held = bytes(data)
        with self._shelf.lock:
            if key in self._shelf:
                return False
            self._shelf.put(key, held, self._clock())
            return True

    def put(self, key: str, data: bytes) -> None:
        """Create or overwrite the object."""
        validate_key(key)
        held = bytes(data)
        with self._shelf.lock:
            self._shelf.put(key, held, self._clock())

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole object."""
        data = self._object(key)[0]
        check_size(self.uri(key), len(data), max_bytes)
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on."""
        validate_range(start, length)
        data = self.get(key)
        if start + length > len(data):
            raise short_range(self.uri(key), start, length, len(data))
        return data[start : start + length]

    def map(self, key: str) -> memoryview:
        """Return the object itself, which is never changed in place."""
        return memoryview(self.get(key))

    def head(self, key: str) -> ObjectInfo:
        """Return size and time of the object."""
        data, modified_ms = self._object(key)
        return _info(key, data, modified_ms)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield what is below `prefix` at the time of the call, by ascending key."""
        folder = validate_prefix(prefix)
        with self._shelf.lock:
            found = self._shelf.below(folder, start_after)
        return (_info(*each) for each in found)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders right below `prefix`, sorted."""
        folder = validate_prefix(prefix)
        with self._shelf.lock:
            return sorted(self._shelf.folders(folder))

    def delete(self, key: str) -> None:
        """Remove the object if it is there."""
        validate_key(key)
        with self._shelf.lock:
            self._shelf.delete(key)

    def uri(self, key: str) -> str:
        """A name for messages: no other engine can open it."""
        return f"{self.url}/{key}"

    def close(self) -> None:
        """Nothing to let go of: the objects stay for the next handle of this name."""

    def __repr__(self) -> str:
        return f"MemoryStore({self.url})"

    def __reduce__(self) -> NoReturn:
        raise StorageError(
            "a memory store cannot be pickled: it lives with this process only",
            actor="memory store",
            place=self.url,
            action="use a folder or a bucket where other processes take part",
            reason=StoreReason.NOT_PICKLABLE,
        )

    def _object(self, key: str) -> tuple[bytes, int]:
        validate_key(key)
        with self._shelf.lock:
            held = self._shelf.get(key)
        if held is None:
            raise ObjectNotFoundError("there is no such object", actor="memory store", place=self.uri(key))
        return held


def _info(key: str, data: bytes, modified_ms: int) -> ObjectInfo:
    return ObjectInfo(key, len(data), modified_ms, xxhash.xxh3_64_hexdigest(data))
