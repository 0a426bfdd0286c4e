"""Restoring a backup into an empty place, as a store of its own (docs/FORMAT.md, "Restored stores").

`store.json` comes first, put if absent: from then on nobody sets up another store there, and nobody opens this one.
`restored.json` comes last. What a run that was cut off has left, the next one reads and goes on from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from storage import JSON_BYTES_MAX, LogKeys, ObjectStore, overlap, would_overlap
from storage.patience import jittered_pause
from txn_engine.backup.copying import (
    Copier,
    Progress,
    Side,
    check_arrived,
    data_files,
    in_parts,
    listed,
    silent,
)
from txn_engine.backup.manifest import LogRef, Manifest, ObjectRef
from txn_engine.backup.place import BackupPlace
from txn_engine.backup.restored_log import RestoredLog
from txn_engine.clock import Clock, system_clock
from txn_engine.errors import InvalidRequestError
from txn_engine.ids import IdSource, new_write_id
from txn_engine.log.logs import ForkSafeExecutor
from txn_engine.log.objects import Objects, encode_json, store_errors
from txn_engine.log.store_config import (
    CONSUMER_OFFSETS_TOPIC,
    RESTORED_KEY,
    TRANSACTION_STATE_TOPIC,
    Restoring,
    StoreConfig,
    create_store_config,
    is_restored,
    prove,
    read_store_config,
    refuse_inside,
    root_of,
    store_at,
)
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason

_PROBES: Final = "probes/"
_NEAR, _FAR = 16, 32


@dataclass(frozen=True, slots=True)
class Restored:
    """A store that was restored: its identity, and the backup that it is."""

    url: str
    store_id: str
    backup: Manifest


def check_target(source: ObjectStore, url: str) -> None:
    """Raise where a local place, which may not be there yet, lies in the backups, or around them: nothing is made."""
    with store_errors():
        is_apart = not would_overlap(source, url)
    if not is_apart:
        raise _not_apart(source, url)


def _not_apart(source: ObjectStore, url: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"a restore of {source.url} into {url}",
        actor="restore",
        expected="a place that is neither inside the backups nor around them",
        action="name another place",
        reason=Reason.PLACES_OVERLAP,
    )


def restore(
    source: ObjectStore,
    target: ObjectStore,
    *,
    number: int | None = None,
    progress: Progress = silent,
    clock: Clock = system_clock,
    new_id: IdSource = new_write_id,
    pause: Callable[[int], None] = jittered_pause,
    executors: Callable[[int, str], Executor] = ForkSafeExecutor,
) -> Restored:
    """Restore the backup of this number, or the newest, into an empty place.

    Guarantee: once this returns the store is there, whole: the records below the cut at their offsets, groups at their
    positions as of it, runs committed that are inside and no others. It has an identity of its own; its transactional
    ids have expired, so that whoever held one begins anew, and gives out no producer id that was given out before.
    Until then nobody can open what is there, and the same call goes on where it was cut off.
    Raises `InvalidRequestError` where the place is not empty, `CorruptObjectError` for a backup that is damaged.
    `pause` and `executors` are as an engine's.
    """
    if overlap(source, target):
        raise _not_apart(source, target.url)
    place, objects = BackupPlace.open(Objects(source, pause)), Objects(target, pause)
    begun = _begun(objects, place)
    manifest = place.manifest(begun.number if begun is not None and number is None else number)
    if begun is not None and begun.number != manifest.number:
        raise InvalidRequestError(
            f"a restore of backup {begun.number} was begun here",
            actor="restore",
            place=target.url,
            expected=f"an empty place for backup {manifest.number}",
            action=f"finish it by --number {begun.number}, or empty the place",
            reason=Reason.OTHER_RESTORE_BEGUN,
        )
    with ExitStack() as stack:
        executor = executors(_NEAR if objects.is_near else _FAR, "txn-restore")
        stack.callback(executor.shutdown)
        run = _Run(place, manifest, executor, progress, new_id)
        run.check_all_there()
        config = _begin(objects, place, manifest, clock, new_id)
        anew = objects.of_store(store_at(target, config))
        create_store_config(anew, replace(config, root=""))
        run.fill(config, anew)
        _end(anew, clock, new_id)
    return Restored(target.url, config.store_id, manifest)


# --- beginning and end ------------------------------------------------------------------------------------


def _begun(objects: Objects, place: BackupPlace) -> Restoring | None:
    """The restore from this place that was begun here; None for an empty place. Else raises."""
    config = read_store_config(objects)
    if config is None:
        refuse_inside(objects)
        _check_empty(objects)
        return None
    restored = config.restored
    if restored is None or is_restored(objects, config):
        raise _not_empty(objects, f"store {config.store_id} is here")
    if restored.backup_id != place.backup_id:
        raise _not_empty(objects, "a restore from other backups was begun here", Reason.OTHER_RESTORE_BEGUN)
    return restored


def _check_empty(objects: Objects) -> None:
    """Raise where anything is there, whatever it is: a part of a store, a store in a folder, files of somebody else.
    What a proof of put-if-absent leaves that may not delete is nobody's.
    """
    found = next((info.key for info in objects.infos("") if not info.key.startswith(_PROBES)), None)
    if found is not None:
        raise _not_empty(objects, f"something is there: {found}")


def _not_empty(objects: Objects, seen: str, reason: Reason = Reason.PLACE_NOT_EMPTY) -> InvalidRequestError:
    return InvalidRequestError(
        seen,
        actor="restore",
        place=objects.store.url,
        expected="an empty place, or one where a restore of this backup was cut off",
        action="name another place, or remove everything here if it is only what is left of a lost store; nothing was "
        "written",
        reason=reason,
    )


def _begin(
    objects: Objects, place: BackupPlace, manifest: Manifest, clock: Clock, new_id: IdSource
) -> StoreConfig:
    """Take the place, which is empty: from here on it is this restore's."""
    config = read_store_config(objects)
    if config is None:
        now_ms, store_id = clock(), new_id()
        wanted = StoreConfig(
            store_id,
            now_ms,
            prove(objects.store),
            manifest.limits,
            {
                topic: manifest.internal_partitions(topic)
                for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)
            },
            Restoring(
                place.backup_id,
                manifest.number,
                manifest.store_id,
                manifest.cut,
                now_ms,
                max(now_ms, manifest.next_block),
            ),
            root_of(store_id),
        )
        config = create_store_config(objects, wanted)
    restored = config.restored
    if restored is None or (restored.backup_id, restored.number) != (place.backup_id, manifest.number):
        raise _not_empty(objects, f"somebody else has begun store {config.store_id} here just now")
    return config


def _end(objects: Objects, clock: Clock, new_id: IdSource) -> None:
    data = encode_json({"finished_ms": clock(), "write_id": new_id()}, "restored")
    objects.create(RESTORED_KEY, data, max_bytes=JSON_BYTES_MAX)


# --- what is between --------------------------------------------------------------------------------------


class _Run:
    """One restore under way."""

    def __init__(
        self,
        place: BackupPlace,
        manifest: Manifest,
        executor: Executor,
        progress: Progress,
        new_id: IdSource,
    ) -> None:
        self._place = place
        self._source = Side(place.objects, is_place=True)
        self._manifest = manifest
        self._executor = executor
        self._progress = progress
        self._new_id = new_id
        self._done = 0
        self._total = 0

    def check_all_there(self) -> None:
        """Raise `CorruptObjectError` for an object of the backup that is missing or cut short, before anything is
        written; a state that is damaged is found here too.
        """
        for some in in_parts(self._manifest.logs):
            for size in self._executor.map(self._check_log, some):
                self._total += size
        for each in self._manifest.objects:
            self._check_sizes([each])

    def _check_log(self, log: LogRef) -> int:
        files = _files_of(log, self._place.state(log))
        self._check_sizes(files)
        return sum(each.bytes for each in files)

    def _check_sizes(self, wanted: Sequence[ObjectRef]) -> None:
        found = listed(self._source, wanted)
        for each in wanted:
            size = found.get(each.key)
            if size != each.bytes:
                seen = "no such object" if size is None else f"{size} bytes"
                raise self._place.damaged(each.place_key, seen, f"{each.bytes} bytes")

    def fill(self, config: StoreConfig, objects: Objects) -> None:
        """Put all that the store has but its first and last object."""
        target = Side(objects, is_place=False)
        copier = Copier(self._source, target, self._executor, self._advanced)
        copier.copy(self._manifest.objects, {})
        for logs in in_parts(self._manifest.logs):
            states = list(self._executor.map(self._place.state, logs))
            wanted = [_files_of(log, state) for log, state in zip(logs, states, strict=True)]
            there: dict[str, int] = {}
            for sizes in self._executor.map(partial(listed, target), wanted):
                there |= sizes
            copier.copy(chain.from_iterable(wanted), there)
            list(self._executor.map(partial(check_arrived, target), wanted))
            list(self._executor.map(partial(self._begin_log, objects, config), logs, states))

    def _begin_log(self, objects: Objects, config: StoreConfig, log: LogRef, state: PartitionState) -> None:
        anew = RestoredLog(objects, LogKeys(log.prefix), log.kind, self._new_id)
        if log.is_internal:
            anew.begin_internal(state, config.created_ms, config.store_id)
        else:
            anew.begin_partition(state, config.created_ms)

    def _advanced(self, size: int) -> None:
        self._done += size
        self._progress("data files", self._done, self._total)


def _files_of(log: LogRef, state: PartitionState) -> list[ObjectRef]:
    return [] if log.is_internal else data_files(log, state)
