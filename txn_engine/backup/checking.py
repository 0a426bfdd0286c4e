"""Whether a backup is what it was: every object that it needs is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from storage import ObjectStore
from txn_engine.backup.copying import Progress, Side, data_files, for_each, read_checked, silent
from txn_engine.backup.manifest import LogRef, Manifest, ObjectRef
from txn_engine.backup.place import PLACE_KEY, BackupPlace
from txn_engine.backup.pruning import Needed
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    StoreAccessError,
    TxnEngineError,
    UnsupportedFormatError,
)
from txn_engine.log.logs import ForkSafeExecutor
from txn_engine.log.objects import Objects
from txn_engine.reasons import Reason

_DAMAGE = (CorruptObjectError, UnsupportedFormatError, StoreAccessError)
_NEAR, _FAR = 16, 32
_LOGS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class BackupCheck:
    """What was read of a backup: how many objects and bytes, and an error for each that is damaged or gone."""

    backup: Manifest
    objects: int
    bytes: int
    damaged: tuple[TxnEngineError, ...]


def backups(store: ObjectStore) -> tuple[list[Manifest], list[TxnEngineError]]:
    """The backups that there are in a place, oldest first; and what is wrong with those that are damaged."""
    place = BackupPlace.open(Objects(store))
    held = place.look()
    lost: list[TxnEngineError] = [] if place.lost is None else [place.lost]
    damaged = [*lost, *place.lost_manifests(held), *held.unreadable]
    return [each for _, each in sorted(held.backups.items())], damaged


@dataclass(frozen=True, slots=True)
class BackupsSeen:
    """What a look at a place tells: which store's backups are there, what is wrong with damaged ones, the newest, and
    the first object that it lacks.
    """

    store_id: str
    count: int
    damaged: tuple[TxnEngineError, ...]
    newest: Manifest | None
    missing: TxnEngineError | None


def look_at_backups(store: ObjectStore) -> BackupsSeen | None:
    """A look by listings, which reads one byte of one data file of each log: whether the newest backup has all its
    objects, in their sizes. None where there are no backups, and none were begun.
    """
    objects = Objects(store)
    try:
        place = BackupPlace.open(objects)
    except InvalidRequestError as error:
        if error.reason is not Reason.NO_BACKUPS:
            raise
        return None
    held = place.look()
    newest = max(held.backups.values(), key=Manifest.recency, default=None)
    missing: TxnEngineError | None = place.lost
    executor = ForkSafeExecutor(_NEAR if objects.is_near else _FAR, "txn-backup")
    try:
        if newest is not None:
            Needed(place, [newest]).check_all_there(executor, silent, reads_one=True)
    except _DAMAGE as error:
        missing = missing or error
    finally:
        executor.shutdown()
    damaged = (*place.lost_manifests(held), *held.unreadable)
    return BackupsSeen(place.store_id, len(held.backups), damaged, newest, missing)


def check_backup(store: ObjectStore, number: int | None = None, progress: Progress = silent) -> BackupCheck:
    """Read every object of the backup of this number, or of the newest. One that is damaged hides no other.

    Raises `InvalidRequestError` where there is no such backup, `CorruptObjectError` where its manifest is damaged.
    """
    place = BackupPlace.open(Objects(store))
    manifest = place.manifest(number)
    executor = ForkSafeExecutor(_NEAR if place.objects.is_near else _FAR, "txn-backup")
    try:
        return _Check(place, manifest, executor, progress).run()
    finally:
        executor.shutdown()


class _Check:
    def __init__(
        self, place: BackupPlace, manifest: Manifest, executor: ForkSafeExecutor, progress: Progress
    ) -> None:
        self._place = place
        self._manifest = manifest
        self._executor = executor
        self._progress = progress
        self._damaged: dict[str, TxnEngineError] = {}  # by key; several threads note some
        self._lock = threading.Lock()
        self._objects = self._bytes = 0

    def run(self) -> BackupCheck:
        if self._place.lost is not None:
            self._damaged[PLACE_KEY] = self._place.lost
        for_each(self._manifest.objects, self._executor, self._check_object)
        for log in self._manifest.logs:
            if log.state.checksum:
                self._check_log(log)
        damaged = tuple(error for _, error in sorted(self._damaged.items()))
        return BackupCheck(self._manifest, self._objects, self._bytes, damaged)

    def _check_log(self, log: LogRef) -> None:
        files: list[ObjectRef] = []

        def state() -> None:
            found = self._place.state(log)
            files.extend([] if log.is_internal else data_files(log, found))

        self._note(log.state.key, log.state.bytes, state)
        for_each(files, self._executor, self._check_object)

    def _check_object(self, wanted: ObjectRef) -> None:
        side = Side(self._place.objects, is_place=True)
        self._note(wanted.place_key, wanted.bytes, lambda: read_checked(side, wanted))

    def _note(self, key: str, size: int, read: Callable[[], object]) -> None:
        try:
            read()
        except _DAMAGE as error:
            self._damaged[key] = error
        with self._lock:
            self._objects += 1
            self._bytes += size
        self._progress("objects", self._bytes, self._manifest.counts.file_bytes)
