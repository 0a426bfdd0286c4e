"""The object store as everything above it sees it: one primitive, put-if-absent, and plain reads."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from storage.patience import Patience
from storage.temporary import Swept


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as the store lists it: `key` relative to the store, `size` in bytes, `modified_ms` by the
    store's clock; `tag` is another one whenever the object was written again (an ETag, a file's inode and change
    time), and empty where the store has none.
    """

    key: str
    size: int
    modified_ms: int
    tag: str = ""


@runtime_checkable
class ObjectStore(Protocol):
    """A flat set of immutable-by-convention objects with an atomic put-if-absent.

    Guarantees, on every backend: of any number of `put_if_absent` calls for one key, at any time and from
    any process, at most one stores its bytes; an object is seen whole or not at all; a put that returned
    survives a crash of the writer, on the local backend a power cut too; a read that follows a returned put
    sees it. No key may be a folder of another (`a` beside `a/b`): a file system cannot hold both, MinIO
    hides one of them in lists. Instances may be shared by threads. A key is checked by `validate_key`
    before a backend is touched. Everything but the answer asked for is a StorageError.
    """

    @property
    def url(self) -> str:
        """The store's URL, without secrets."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Try once to create the object, and report what the store said.

        True: the store says that it stored `data` now. False: it says that the key is taken. Neither False
        nor an error proves that `data` was not stored: never decide by this alone, use
        `settle_put_if_absent`.
        """
        ...

    def put(self, key: str, data: bytes) -> None:
        """Create or overwrite the object, atomically: for seals and probes, which need no race to be won."""
        ...

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole object. ObjectNotFoundError: the store answered that there is none.

        OversizedObjectError: it has more than `max_bytes`; nothing of it was read into memory.
        """
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from byte `start` on; DamagedObjectError for an object that ends
        before.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Return size and time of the object, or raise ObjectNotFoundError."""
        ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below the folder `prefix`, at any depth, by ascending key (byte order).

        `prefix` names whole segments ("a/b" and "a/b/" are the same, and do not reach "a/bc"); "" is
        everything. `start_after` is a whole key, exclusive; it need not exist. Objects that come or go
        meanwhile may be missed. Some S3 servers (SeaweedFS) keep this order only within a folder: what must run on
        them lists folders that hold no folders.
        """
        ...

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders right below `prefix` that hold an object at any depth, sorted.

        On a local disk also of what may have been one: a folder that may not be read, a link, a FIFO, a device.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object; an absent one is fine. A power cut may bring a deleted object back."""
        ...

    def uri(self, key: str) -> str:
        """Return what another engine opens it by: an absolute path, or the URL of the object."""
        ...

    def close(self) -> None:
        """Let go of connections and caches; a later call may open them again."""
        ...


@runtime_checkable
class MappableStore(ObjectStore, Protocol):
    """A store that can show an object without copying it: an optional capability, asked for by isinstance."""

    def map(self, key: str) -> memoryview:
        """Return the whole object read-only and without a copy; it stays valid while the view lives."""
        ...


@runtime_checkable
class PatientStore(ObjectStore, Protocol):
    """A store that may be busy, and says how long its calls wait for it: an optional capability, as mapping is."""

    @property
    def patience(self) -> Patience:
        """Of all its calls."""
        ...


@runtime_checkable
class SpoolingStore(ObjectStore, Protocol):
    """A store that can put a large object on the local disk while it comes: an optional capability, as mapping is."""

    def spool(self, key: str, *, max_bytes: int) -> memoryview:
        """Return the whole object read-only: in memory, or, where it is large, mapped from a file without a name, so
        that only what is looked at takes memory. OversizedObjectError for more than `max_bytes`.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """That a bucket keeps the bytes of objects that are deleted, or has kept some. status: "Enabled" or "Suspended";
    until: how long such a version stays, in words.
    """

    status: str
    until: str


@runtime_checkable
class VersionedStore(ObjectStore, Protocol):
    """A store that may keep what is deleted: an optional capability, as mapping is."""

    def kept_versions(self) -> KeptVersions | None:
        """What becomes of the bytes of a deleted object; None where they are gone."""
        ...

    def old_versions(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield what is kept below the folder of objects that were deleted or overwritten, by ascending key, with the
        version's id as `tag`.
        """
        ...


@runtime_checkable
class StagingStore(ObjectStore, Protocol):
    """A store where bytes are somewhere before they are an object: an optional capability, as mapping is."""

    def sweep(self, *, dry_run: bool = False) -> Swept:
        """Remove what writes that came to no end have left, and tell what cannot be. A writer that was slow, and not
        dead, writes anew: no put that returned is undone.
        """
        ...


@runtime_checkable
class DatingStore(ObjectStore, Protocol):
    """A store that tells the time by which it dates objects also where there is no room for one."""

    def time_ms(self) -> int:
        """The time that an object would get now."""
        ...


@runtime_checkable
class FolderStore(ObjectStore, Protocol):
    """A store whose folders are there by themselves, and where no object can have the name of one."""

    def all_folders(self) -> Iterator[str]:
        """Yield the folders below the root that may be read, empty ones too, each with its slash, by ascending key."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that `list` gives, from the folders alone; one that has gone since may be among them."""
        ...
