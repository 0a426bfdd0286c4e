"""What a bucket keeps of data files that were deleted: its old versions hold records, and no erasure reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage import KeptVersions, ObjectStore, StorageError, VersionedStore
from txn_engine.erasing.report import SOME, StillHeld

_DATA: Final = "/data/"


def held_by_versions(store: ObjectStore, topic: str, *, would_delete: int = 0) -> list[StillHeld]:
    """The old versions of the topic's data files in a store, or in a place of backups, and until when they are there.

    would_delete: how many records an erasure would take, which would be kept there. A bucket that cannot be asked is
    named, too: it may keep some, and what was erased by then is told all the same.
    """
    if not isinstance(store, VersionedStore):
        return []
    try:
        kept = store.kept_versions()
        return [] if kept is None else list(_held(store, kept, topic, would_delete))
    except StorageError as error:
        seen = f"old versions in {store.url}, which could not be asked for ({error.seen}), may hold some"
        return [StillHeld(seen, SOME, f"somebody looks there: {error.action}")]


def _held(store: VersionedStore, kept: KeptVersions, topic: str, would_delete: int) -> Iterator[StillHeld]:
    versioning = f"which the bucket keeps (its versioning is {kept.status})"
    folders = [f"topics/{topic}"]
    folders += [f"generations/{each}/topics/{topic}" for each in store.list_folders("generations")]
    sizes = [info.size for folder in folders for info in store.old_versions(folder) if _DATA in info.key]
    if sizes:
        size = f"{sum(sizes):,} bytes"
        seen = (
            f"{len(sizes):,} old versions of data files in {store.url}, {size}, {versioning}, may hold some"
        )
        yield StillHeld(seen, SOME, kept.until)
    if would_delete and kept.status == "Enabled":
        seen = f"old versions in {store.url} of the files that it deletes, {versioning}"
        yield StillHeld(seen, would_delete, kept.until)
