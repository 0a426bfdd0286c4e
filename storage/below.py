"""A store in a folder of another one, with the same access."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import replace

from storage.bucket_store import BucketStore
from storage.keys import validate_key, validate_prefix
from storage.local import LocalStore
from storage.patience import JOB_PATIENCE, Patience
from storage.store import ObjectInfo, ObjectStore, PatientStore


def store_below(store: ObjectStore, folder: str) -> ObjectStore:
    """The store whose keys are those of `store` below this folder, without it. On a local disk the folder is made if it
    is not there.
    """
    if isinstance(store, LocalStore):
        return store.below(folder)
    if isinstance(store, BucketStore):
        outer = store.config.prefix
        inner = type(store)(replace(store.config, prefix=f"{outer}/{folder}" if outer else folder))
        inner.patience = store.patience
        return inner
    return FolderOfStore(store, folder)


class FolderOfStore:
    """An `ObjectStore` of the objects below a folder, for a store that has no way of its own."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = validate_prefix(folder).rstrip("/")

    @property
    def url(self) -> str:
        """The URL of the folder."""
        return f"{self._store.url}/{self._folder}"

    @property
    def patience(self) -> Patience:
        """That of the store."""
        return self._store.patience if isinstance(self._store, PatientStore) else JOB_PATIENCE

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """As the store does."""
        return self._store.put_if_absent(self._key(key), data)

    def put(self, key: str, data: bytes) -> None:
        """As the store does."""
        self._store.put(self._key(key), data)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """As the store does."""
        return self._store.get(self._key(key), max_bytes=max_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """As the store does."""
        return self._store.get_range(self._key(key), start, length)

    def head(self, key: str) -> ObjectInfo:
        """As the store does."""
        return self._told(self._store.head(self._key(key)))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """As the store does."""
        after = None if start_after is None else f"{self._folder}/{start_after}"
        for info in self._store.list(self._prefix(prefix), start_after=after):
            yield self._told(info)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """As the store does."""
        return self._store.list_folders(self._prefix(prefix))

    def delete(self, key: str) -> None:
        """As the store does."""
        self._store.delete(self._key(key))

    def uri(self, key: str) -> str:
        """As the store does."""
        return self._store.uri(f"{self._folder}/{key}")

    def close(self) -> None:
        """As the store does."""
        self._store.close()

    def _key(self, key: str) -> str:
        return f"{self._folder}/{validate_key(key)}"

    def _prefix(self, prefix: str) -> str:
        return f"{self._folder}/{prefix}" if prefix else self._folder

    def _told(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, key=info.key.removeprefix(f"{self._folder}/"))
