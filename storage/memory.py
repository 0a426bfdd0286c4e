"""A store that lives with the process: for tests, examples and the simulator."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import xxhash

from storage.errors import ObjectNotFoundError, StorageError
from storage.keys import validate_key, validate_name, validate_prefix
from storage.ranges import check_size, short_range, validate_range
from storage.reasons import StoreReason
from storage.store import ObjectInfo


def _now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 -- the store's own clock, as a server has one


class _Shelf:
    """What is in one memory store: shared by all of its handles in this process."""

    __slots__ = ("lock", "objects")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, int]] = {}


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
            if key in self._shelf.objects:
                return False
            self._shelf.objects[key] = (held, self._clock())
            return True

    def put(self, key: str, data: bytes) -> None:
        """Create or overwrite the object."""
        validate_key(key)
        held = bytes(data)
        with self._shelf.lock:
            self._shelf.objects[key] = (held, self._clock())

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
            found = [
                _info(key, data, modified_ms)
                for key, (data, modified_ms) in self._shelf.objects.items()
                if key.startswith(folder) and (start_after is None or key > start_after)
            ]
        found.sort(key=lambda info: info.key)
        return iter(found)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders right below `prefix`, sorted."""
        folder = validate_prefix(prefix)
        with self._shelf.lock:
            below = [key[len(folder) :] for key in self._shelf.objects if key.startswith(folder)]
        return sorted({path.partition("/")[0] for path in below if "/" in path})

    def delete(self, key: str) -> None:
        """Remove the object if it is there."""
        validate_key(key)
        with self._shelf.lock:
            self._shelf.objects.pop(key, None)

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
            held = self._shelf.objects.get(key)
        if held is None:
            raise ObjectNotFoundError("there is no such object", actor="memory store", place=self.uri(key))
        return held


def _info(key: str, data: bytes, modified_ms: int) -> ObjectInfo:
    return ObjectInfo(key, len(data), modified_ms, xxhash.xxh3_64_hexdigest(data))
