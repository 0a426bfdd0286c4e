"""Reading raw objects: whole, checked, several at a time and in order."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Final, Self, TypeVar

import xxhash

from storage.errors import DamagedObjectError, StorageError
from storage.store import ObjectInfo, ObjectStore
from txn_engine.verify.raw_object import WHOLE_BYTES_MAX, Damaged, Decode, Fetched, fetch
from txn_engine.verify.reading_workers import ReadingWorkers
from txn_engine.verify.report import Tally
from txn_engine.verify.store_keys import NO_ANSWER

_ALL_TOPICS: Final = ("", "topics")
_TASK_OBJECTS: Final = 8
_PROCESS_OBJECTS: Final = 256  # of a task for another process, where sending it costs more
_TASK_BYTES: Final = 1 << 20
_TASKS_AHEAD: Final = 16
_AHEAD_BYTES: Final = 32 << 20

T = TypeVar("T")


def mark_of(info: ObjectInfo) -> int:
    """An object as it was listed, in 64 bits: another number once it was written again. Never 0."""
    text = f"{info.key}/{info.size}/{info.modified_ms}/{info.tag}"
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) or 1


class Listing:
    """A folder's objects by name, kept in 16 bytes each where their names are offsets."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._offsets = array("q")
        self._sizes = array("q")

    def add(self, offset: int, size: int) -> None:
        """Add the object `<offset, 20 digits>.parquet`."""
        self._offsets.append(offset)
        self._sizes.append(size)

    def holding(self, start: int, end: int | None) -> Listing:
        """Those from the last one at or below `start` on, to the last one below `end`."""
        first = max(bisect_right(self._offsets, start) - 1, 0)
        last = len(self) if end is None else bisect_left(self._offsets, end)
        held = Listing(self._folder)
        held._offsets, held._sizes = self._offsets[first:last], self._sizes[first:last]
        return held

    def behind(self, count: int) -> Listing:
        """All but the first so many."""
        held = Listing(self._folder)
        held._offsets, held._sizes = self._offsets[count:], self._sizes[count:]
        return held

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[ObjectInfo]:
        for offset, size in zip(self._offsets, self._sizes, strict=True):
            yield ObjectInfo(f"{self._folder}{offset:020d}.parquet", size, 0)


class ObjectReader:
    """Reads objects of one store, `workers` at a time, the small ones whole and the large ones in parts.

    Memory: at most 32 MB of objects are under way or waiting, and 4 MB a worker of a large one; of processes each takes
    what Python with Arrow does. With 0 workers there
    is no thread: objects are read one by one, in order. Damage is an answer, not an error, and so is an object or a
    folder that the store does not give (access refused, a bad sector). A store that does not answer at all is an
    error, and one that does not give store.json, or the list of topics: nothing is known of any then.
    """

    def __init__(self, store: ObjectStore, tally: Tally, workers: int, processes: int = 0) -> None:
        self._store = store
        self._tally = tally
        self._workers = ReadingWorkers(store, workers, processes)
        self.not_folders: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.close()

    def listing(self, folder: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """What is in the folder, by name; nothing more where it cannot be listed, which `not_folders` notes."""
        try:
            yield from self._store.list(folder, start_after=start_after)
        except StorageError as error:
            self._note_folder(folder, error)

    def uri(self, key: str) -> str:
        """What other engines open the object by."""
        return self._store.uri(key)

    def folders(self, folder: str) -> list[str]:
        """The names of the folders right below; none where it cannot be listed, which `not_folders` notes."""
        try:
            return self._store.list_folders(folder)
        except StorageError as error:
            self._note_folder(folder, error)
            return []

    def _note_folder(self, folder: str, error: StorageError) -> None:
        is_refused = not isinstance(error, DamagedObjectError)
        if isinstance(error, NO_ANSWER) or (folder.rstrip("/") in _ALL_TOPICS and is_refused):
            raise error
        self.not_folders[folder] = error.seen

    def read(self, key: str, decode: Decode[T], *, size: int = 0) -> T | Damaged | None:
        """One object, decoded; None where there is none. `size`, where it is known: a large one is read in parts."""
        return self._counted(fetch(self._store, key, size, decode))

    def read_in_order(
        self, infos: Iterable[ObjectInfo], decode: Decode[T]
    ) -> Iterator[tuple[ObjectInfo, T | Damaged | None]]:
        """All of them in the order given, each decoded; None for one that has gone since it was listed."""
        if self._workers.is_serial:
            for info in infos:
                yield info, self.read(info.key, decode, size=info.size)
            return
        waiting: deque[tuple[list[ObjectInfo], int, Callable[[], list[Fetched[T]]]]] = deque()
        ahead = 0
        for task in self._tasks(infos):
            held = sum(min(info.size, WHOLE_BYTES_MAX) for info in task)
            while waiting and (len(waiting) >= _TASKS_AHEAD or ahead + held > _AHEAD_BYTES):
                ahead -= waiting[0][1]
                yield from self._finished(waiting.popleft())
            waiting.append((task, held, self._workers.submit(task, decode)))
            ahead += held
        while waiting:
            yield from self._finished(waiting.popleft())

    def _finished(
        self, task: tuple[list[ObjectInfo], int, Callable[[], list[Fetched[T]]]]
    ) -> Iterator[tuple[ObjectInfo, T | Damaged | None]]:
        infos, _, result = task
        for info, fetched in zip(infos, result(), strict=True):
            yield info, self._counted(fetched)

    def _tasks(self, infos: Iterable[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
        """What one worker reads in one go: some small objects, or a large one."""
        task: list[ObjectInfo] = []
        held = 0
        for info in infos:
            most = _PROCESS_OBJECTS if self._workers.is_parallel else _TASK_OBJECTS
            if task and (len(task) >= most or held + info.size > _TASK_BYTES):
                yield task
                task, held = [], 0
            task.append(info)
            held += info.size
        if task:
            yield task

    def _counted(self, fetched: Fetched[T]) -> T | Damaged | None:
        size, decoded = fetched
        if size >= 0:
            self._tally.objects += 1
            self._tally.bytes += size
        return decoded
