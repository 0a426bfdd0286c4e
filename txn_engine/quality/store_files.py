"""The store's objects as files, for readers that take a file system: DuckDB, PyArrow."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Mapping
from typing import Any, Final

import fsspec

from storage.store import ObjectStore

PROTOCOL: Final = "txn-store"
_NEVER: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # a data file does not change


class ObjectFile(io.RawIOBase):
    """An object of a known size, each read a request for just these bytes."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move there."""
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes, fewer at the end."""
        left = max(self._size - self._at, 0)
        length = left if size is None or size < 0 else min(size, left)
        data = self._store.get_range(self._key, self._at, length) if length else b""
        self._at += len(data)
        return data


class StoreFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A read-only file system of the objects that it was told of, by key and size; nothing else is there."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(skip_instance_cache=True)
        self._store = store
        self._sizes: dict[str, int] = {}

    def add(self, sizes: Mapping[str, int]) -> None:
        """Let these objects be read."""
        self._sizes.update(sizes)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type; FileNotFoundError for an object that was not added."""
        key = self._key(path)
        return {"name": key, "size": self._sizes[key], "type": "file"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """The object itself: there are no folders."""
        found = self.info(path)
        return [found] if detail else [found["name"]]

    def modified(self, path: str) -> dt.datetime:
        """Always the same."""
        self._key(path)
        return _NEVER

    def _open(self, path: str, mode: str = "rb", **_: Any) -> ObjectFile:
        if mode != "rb":
            raise PermissionError(path)
        key = self._key(path)
        return ObjectFile(self._store, key, self._sizes[key])

    def _key(self, path: str) -> str:
        key = str(self._strip_protocol(path))
        if key not in self._sizes:
            raise FileNotFoundError(path)
        return key
