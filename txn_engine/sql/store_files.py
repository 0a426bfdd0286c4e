"""The store's objects as files, for readers that take a file system: DuckDB, PyArrow."""

from __future__ import annotations

import datetime as dt
import io
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import fsspec

from storage.errors import StorageError
from storage.store import ObjectStore

PROTOCOL: Final = "txn-store"
_NEVER: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # a data file does not change


class PositionedFile(io.RawIOBase):
    """A file of a known size that is read by ranges, each thread from a place of its own.

    DuckDB's threads share a file, and each moves and reads by two calls: another one's may come in between.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._here = threading.local()

    def read_at(self, start: int, length: int) -> bytes:
        """Just these bytes."""
        raise NotImplementedError

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Where this thread's next read begins."""
        return int(getattr(self._here, "at", 0))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move there."""
        from_where = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._here.at = from_where + offset
        return self.tell()

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes, fewer at the end."""
        at = self.tell()
        left = max(self._size - at, 0)
        length = left if size is None or size < 0 else min(size, left)
        data = self.read_at(at, length) if length else b""
        self._here.at = at + len(data)
        return data


class ObjectFile(PositionedFile):
    """An object of a known size, each read a request for just these bytes.

    failures: where it is told why the object could not be read, for readers make a text of that.
    """

    def __init__(
        self, store: ObjectStore, key: str, size: int, failures: dict[str, StorageError] | None = None
    ) -> None:
        super().__init__(size)
        self._store = store
        self._key = key
        self._failures = failures

    def read_at(self, start: int, length: int) -> bytes:
        """Just these bytes."""
        try:
            return self._store.get_range(self._key, start, length)
        except StorageError as error:
            if self._failures is not None:
                self._failures[self._key] = error
            raise


class StoreFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A read-only file system of the objects that it is told of, by key and size; nothing else is there.

    `failures`: of objects that are offered and could not be read, what the store said. Threads may share it.
    """

    protocol = PROTOCOL
    cachable = False

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(skip_instance_cache=True)
        self._store = store
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._asked: dict[str, int] = {}  # how many blocks offer it
        self.failures: dict[str, StorageError] = {}

    @contextmanager
    def offered(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """Let these objects be read for the length of the block."""
        with self._lock:
            self._sizes.update(sizes)
            for key in sizes:
                self._asked[key] = self._asked.get(key, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                for key in sizes:
                    self._asked[key] -= 1
                    if not self._asked[key]:
                        del self._asked[key], self._sizes[key]
                        self.failures.pop(key, None)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type; FileNotFoundError for an object that is not offered."""
        key, size = self._find(path)
        return {"name": key, "size": size, "type": "file"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """The object itself: there are no folders."""
        found = self.info(path)
        return [found] if detail else [found["name"]]

    def modified(self, path: str) -> dt.datetime:
        """Always the same."""
        self._find(path)
        return _NEVER

    def _open(self, path: str, mode: str = "rb", **_: Any) -> ObjectFile:
        if mode != "rb":
            raise PermissionError(path)
        return ObjectFile(self._store, *self._find(path), self.failures)

    def _find(self, path: str) -> tuple[str, int]:
        key = str(self._strip_protocol(path))
        size = self._sizes.get(key)
        if size is None:
            raise FileNotFoundError(path)
        return key, size
