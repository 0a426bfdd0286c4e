"""What the store's clock says: the time of an object that was put just now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage.errors import StorageError
from storage.reasons import StoreReason
from storage.store import DatingStore, ObjectStore

_WHOLE_SECONDS_MS = 1_000


@dataclass(frozen=True, slots=True)
class StoreClockReading:
    """`store_ms`: the store's time of the probe. `skew_ms`: how far this machine's clock is ahead of the store's at the
    least, negative where it is behind. `not_removed`: why the probe was left on the store.
    """

    store_ms: int
    skew_ms: int
    not_removed: StorageError | None = None


def read_store_clock(store: ObjectStore, clock: Callable[[], int], key: str) -> StoreClockReading:
    """Put a probe at this fresh key, ask for its time, and remove it again. A local disk that is full is asked for its
    time without one: what makes room must not need any.

    Raises the store's error where the probe cannot be put, or its time not be had.
    """
    before_ms = clock()
    try:
        store.put_if_absent(key, b"what time is it")
    except StorageError as error:
        if error.reason is not StoreReason.NO_ROOM or not isinstance(store, DatingStore):
            raise
        return _reading(before_ms, store.time_ms(), clock())
    after_ms = clock()
    store_ms = store.head(key).modified_ms
    not_removed = None
    try:
        store.delete(key)
    except StorageError as error:
        not_removed = error
    return _reading(before_ms, store_ms, after_ms, not_removed)


def _reading(
    before_ms: int, store_ms: int, after_ms: int, not_removed: StorageError | None = None
) -> StoreClockReading:
    # Buckets tell whole seconds: a time within one of the put says nothing against the clock.
    ahead_ms = max(before_ms - _WHOLE_SECONDS_MS - store_ms, 0)
    behind_ms = max(store_ms - after_ms, 0)
    return StoreClockReading(store_ms, ahead_ms or -behind_ms, not_removed)
