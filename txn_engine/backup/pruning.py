"""Removing backups from a place, and what no other backup there needs (docs/decisions/0025).

That some are removed is put first, under the next number; from then on they are none. A backup that is being made and
meets that number begins anew: so it goes by nothing that is deleted here. Then the removed ones' manifests go, and last
the objects. Whoever prunes next deletes what one that was cut off has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import islice

from storage import ObjectInfo, ObjectStore
from storage.patience import jittered_pause
from txn_engine.arguments import check_flags
from txn_engine.backup.copying import Progress, Side, data_files, listed, silent
from txn_engine.backup.held import Held
from txn_engine.backup.manifest import LogRef, Manifest, ObjectRef, Removal
from txn_engine.backup.place import BackupPlace
from txn_engine.clock import Clock, system_clock
from txn_engine.errors import CorruptObjectError, InvalidRequestError, OutcomeUnknownError
from txn_engine.ids import IdSource, new_write_id
from txn_engine.log.logs import ForkSafeExecutor
from txn_engine.log.objects import Objects
from txn_engine.reasons import Reason
from txn_engine.unreadable import DAMAGE

_NEAR, _FAR = 16, 32
_OBJECTS_AT_ONCE = 256
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a place keeps, and what it lost, or would lose where `executed` is False.

    removed: the numbers of backups, damaged ones too. objects, bytes: that no backup which is kept needs: of the
    removed ones, and of backups that were cut off or are under way.
    """

    executed: bool
    kept: tuple[Manifest, ...]
    removed: tuple[int, ...]
    objects: int
    bytes: int


def prune(
    store: ObjectStore,
    *,
    keep: int | None = None,
    older_than_ms: int | None = None,
    execute: bool = False,
    progress: Progress = silent,
    clock: Clock = system_clock,
    new_id: IdSource = new_write_id,
    pause: Callable[[int], None] = jittered_pause,
    executors: Callable[[int, str], Executor] = ForkSafeExecutor,
) -> Pruned:
    """Remove backups from a place, with all that no other backup there needs; without `execute` only say which.

    keep: how many backups stay. Those with the newest cuts do. older_than_ms: backups stay if they were put within this
    time before the last one. Only the store's clock counts, never a host's. With both, a backup stays if either keeps
    it; the newest always stays.
    Guarantee: a backup that is kept, or is being made meanwhile, stays whole, wherever this is cut off. Before anything
    is removed every object that the kept ones need was seen, in its size. Raises `CorruptObjectError` where one is
    missing, or where a damaged manifest is newer than what is to be kept: nobody can tell what that needs.
    """
    check_flags("prune", execute=execute)
    if keep is None and older_than_ms is None:
        raise InvalidRequestError(
            "no word of which backups stay", actor="prune", expected="keep, older_than_ms"
        )
    for name, value, low in (("keep", keep, 1), ("older_than_ms", older_than_ms, 0)):
        if value is not None and (type(value) is not int or value < low):
            raise InvalidRequestError(f"{name} {value!r:.40}", actor="prune", expected=f"{low} or more")
    place = BackupPlace.open(Objects(store, pause))
    executor = executors(_NEAR if place.objects.is_near else _FAR, "txn-prune")
    try:
        return _Run(place, executor, progress, clock, new_id).run(keep, older_than_ms, execute=execute)
    finally:
        executor.shutdown()


def _chosen(
    held: Held, modified: Mapping[int, int], keep: int | None, older_than_ms: int | None
) -> list[Manifest]:
    """The backups that stay, oldest first. modified: when each was put."""
    sound = sorted(held.backups.values(), key=Manifest.recency)
    if not sound:
        raise InvalidRequestError(
            "there is no finished backup",
            actor="prune",
            expected="one at least that stays",
            action="run `txn-engine backup`, then prune",
            reason=Reason.BACKUP_NOT_FOUND,
        )
    many = max(keep or 0, 1)
    last_ms = max(modified.get(each.number, 0) for each in sound)
    kept = [
        each
        for place, each in enumerate(reversed(sound))
        if place < many
        or (older_than_ms is not None and modified.get(each.number, last_ms) >= last_ms - older_than_ms)
    ][::-1]
    first = min(each.number for each in kept)
    newer = [error for number, error in sorted(held.damaged.items()) if number > first]
    if newer:
        raise CorruptObjectError(
            f"damaged, so nobody can tell what it needs: {newer[-1]}",
            actor="prune",
            expected="nothing damaged that is newer than what is to stay",
            action="make a new backup, then prune so that only what is newer than the damaged one stays: --keep 1",
            reason=Reason.MANIFEST_DAMAGED,
        )
    return kept


class _Run:
    """One prune under way."""

    def __init__(
        self, place: BackupPlace, executor: Executor, progress: Progress, clock: Clock, new_id: IdSource
    ) -> None:
        self._place = place
        self._executor = executor
        self._progress = progress
        self._clock = clock
        self._new_id = new_id
        self._removed: set[int] = set()
        self._objects = self._bytes = 0

    def run(self, keep: int | None, older_than_ms: int | None, *, execute: bool) -> Pruned:
        """Again where somebody else removed something meanwhile."""
        for _ in range(_TRIES):
            held = self._place.look()
            end = held.end
            try:
                needed = Needed(self._place, _chosen(held, self._place.modified(), keep, older_than_ms))
                removed = (held.backups.keys() | held.damaged.keys()) - needed.numbers
                told = self._judged(needed, removed, held.end)
                if not execute or not (told.removed or told.objects):
                    return replace(told, executed=execute)
                removal = Removal(held.end, self._clock(), tuple(sorted(needed.numbers)))
                if not self._place.put_removal(removal, self._new_id()):
                    continue
                end += 1
                self._removed |= removed
                self._place.seal_others(removal)
                self._delete(needed, removal.number)
            except DAMAGE:
                if self._place.end() == end:
                    raise
                continue
            return Pruned(True, told.kept, tuple(sorted(self._removed)), self._objects, self._bytes)
        raise OutcomeUnknownError(
            f"others have made or removed backups {_TRIES} times meanwhile",
            actor="prune",
            place=self._place.url,
            action="prune again when they have come to their end",
        )

    def _judged(self, needed: Needed, removed: set[int], end: int) -> Pruned:
        needed.check_all_there(self._executor, self._progress)
        objects = size = 0
        for info in needed.others(end):
            objects += 1
            size += info.size
        return Pruned(False, tuple(needed.manifests), tuple(sorted(removed | self._removed)), objects, size)

    def _delete(self, needed: Needed, end: int) -> None:
        others = needed.others(end)
        while some := list(islice(others, _OBJECTS_AT_ONCE)):
            list(self._executor.map(lambda info: self._place.objects.remove(info.key), some))
            self._objects += len(some)
            self._bytes += sum(info.size for info in some)
            self._progress("deleting", self._objects, 0)


class Needed:
    """What some backups need, by its key in the place. In memory: the names of one log's files at a time."""

    def __init__(self, place: BackupPlace, manifests: Iterable[Manifest]) -> None:
        self.manifests = list(manifests)
        self.numbers = {each.number for each in self.manifests}
        self._place = place
        self._logs: dict[str, dict[object, LogRef]] = {}  # by folder in the store, each state once
        self._objects: dict[str, ObjectRef] = {}
        for manifest in self.manifests:
            self._objects |= {each.place_key: each for each in manifest.objects}
            for log in manifest.logs:
                if log.state.checksum:
                    self._logs.setdefault(log.prefix, {})[log.state.key, log.copies] = log
        states = {log.state.key for logs in self._logs.values() for log in logs.values()}
        self._fixed = {*self._objects, *states}
        self._last: tuple[str, frozenset[str]] = ("", frozenset())

    def check_all_there(self, executor: Executor, progress: Progress, *, reads_one: bool = False) -> None:
        """Raise `CorruptObjectError` for a state that cannot be read, and for what is missing or cut short. reads_one:
        also for a log of which the store does not give one byte of one data file, as of one in an archive.
        """
        side = Side(self._place.objects, is_place=True)
        sizes = executor.map(self._place.objects.size_of, self._objects)
        found = dict(zip(self._objects, sizes, strict=True))
        for key, each in self._objects.items():
            self._check(key, each, found[key])
        for number, prefix in enumerate(self._logs, start=1):
            files = self._files(prefix)
            for generation in {each.generation for each in files}:
                some = [each for each in files if each.generation == generation]
                sizes_there = listed(side, some)
                for each in some:
                    self._check(each.place_key, each, sizes_there.get(each.key, 0))
            if reads_one and files:
                self._place.objects.read_range(files[0].place_key, 0, 1)
            progress("looking", number, len(self._logs))

    def _check(self, key: str, wanted: ObjectRef, size: int) -> None:
        if size != wanted.bytes:
            seen = f"{size} bytes" if size else "no such object"
            raise self._place.damaged(key, seen, f"{wanted.bytes} bytes, which a backup that stays needs")

    def others(self, end: int) -> Iterator[ObjectInfo]:
        """What is in the place of generations before `end`, and none of these backups needs."""
        for info, generation, key in self._place.copies():
            if generation < end and not self._is_needed(info.key, key):
                yield info

    def _is_needed(self, key: str, store_key: str) -> bool:
        prefix, is_data, _ = store_key.rpartition("/data/")
        if not is_data:
            return key in self._fixed
        if self._last[0] != prefix:
            self._last = prefix, frozenset(each.place_key for each in self._files(prefix))
        return key in self._last[1]

    def _files(self, prefix: str) -> list[ObjectRef]:
        """Each once that these backups have of a log; the same file in two generations is two. Reads every state."""
        files: dict[str, ObjectRef] = {}
        for log in self._logs.get(prefix, {}).values():
            state = self._place.state(log)
            found = [] if log.is_internal else data_files(log, state)
            files |= {each.place_key: each for each in found}
        return list(files.values())
