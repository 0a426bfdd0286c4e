"""Reading raw objects: whole, checked, several at a time and in order."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import (
    DamagedObjectError,
    ObjectNotFoundError,
    OversizedObjectError,
    StorageError,
    UnknownFormatError,
)
from storage.parquet_footer import read_footer
from storage.parquet_limits import DATA_LIMITS, LimitError, ParquetLimits, check_claims
from storage.store import ObjectInfo, ObjectStore
from txn_engine.verify.checksums import FORMAT, JSON_BYTES_MAX, check_json, check_parquet
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.ranged_file import RangedFile
from txn_engine.verify.report import Tally
from txn_engine.verify.store_keys import NO_ANSWER

_PREFIX: Final = b"txn_engine."
_STORE_KEY: Final = "store.json"
_ALL_TOPICS: Final = ("", "topics")
WHOLE_BYTES_MAX: Final = 8 << 20  # a larger object is read in parts and is never in memory as a whole
_PART_BYTES: Final = 4 << 20
_BUFFER_BYTES: Final = 1 << 20  # of a large object's column
_WINDOW_BYTES: Final = 64 << 10  # of a large object, about a page's header
_BATCH_ROWS: Final = 8_192
_TASK_OBJECTS: Final = 8
_TASK_BYTES: Final = 1 << 20
_TASKS_AHEAD: Final = 16
_AHEAD_BYTES: Final = 32 << 20

UNREADABLE: Final = (
    pa.ArrowException,
    json.JSONDecodeError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    RecursionError,
)
"""What bytes that are not what they claim to be raise where they are read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damaged:
    """An object that is there and cannot be used: what is wrong with it."""

    reason: str
    size: int
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class RawObject:
    """One object as the store gave it: in memory, or, a large one, still on the store."""

    key: str
    size: int
    data: bytes | None
    store: ObjectStore

    def json(self, kind: str) -> dict[str, Any]:
        """The JSON object's fields; DamagedObjectError unless checksum, format and kind are right."""
        data = self.store.get(self.key, max_bytes=JSON_BYTES_MAX) if self.data is None else self.data
        return check_json(data, self.key, kind)

    def parquet(
        self, limits: ParquetLimits = DATA_LIMITS, columns: Collection[str] | None = None
    ) -> ParquetObject:
        """The Parquet object, for these columns of it to be read (None: all); DamagedObjectError where its checksum is
        wrong, LimitError where it is larger than it may be, or would be in memory.
        """
        checksum = check_parquet(self._part, self.size, self.key, part_bytes=_PART_BYTES)
        footer_bytes = int.from_bytes(self._part(self.size - 8, 4), "little")
        limits.check_footer_bytes(footer_bytes, self.size)
        footer = read_footer(bytes(self._part(self.size - 8 - footer_bytes, footer_bytes)))
        if self.data is None:
            source = pa.PythonFile(RangedFile(self._part, self.size), mode="r")
            file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        else:
            file = pq.ParquetFile(pa.BufferReader(self.data), pre_buffer=False)
        check_claims(footer, self._window, self.size, limits, columns)
        held = file.metadata.metadata or {}
        own = {
            name.removeprefix(_PREFIX).decode(): value.decode()
            for name, value in held.items()
            if name.startswith(_PREFIX)
        }
        if own.get("format") != FORMAT:
            raise MalformedError(f"format {own.get('format')!r}, not {FORMAT!r}")
        return ParquetObject(file, own.get("kind", ""), own.get("write_id", ""), checksum)

    def _window(self, start: int) -> tuple[bytes, int]:
        if self.data is not None:
            return self.data, start
        return self._part(start, min(_WINDOW_BYTES, self.size - start)), 0

    def _part(self, start: int, length: int) -> bytes:
        if self.data is None:
            return self.store.get_range(self.key, start, length)
        return self.data[start : start + length]


@dataclass(frozen=True, slots=True)
class ParquetObject:
    """A Parquet object whose checksum is right; the columns are read when asked for."""

    file: pq.ParquetFile
    kind: str
    write_id: str
    checksum: str

    def table(self) -> pa.Table:
        """All of it: for what is small."""
        return self.file.read(use_threads=False)

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The columns named, or all, some thousand rows in memory at a time."""
        return self.file.iter_batches(batch_size=_BATCH_ROWS, columns=columns, use_threads=False)


Decode = Callable[[RawObject], T]
Fetched = tuple[int, T | Damaged | None]  # size (-1: gone), and what was made of it


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

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[ObjectInfo]:
        for offset, size in zip(self._offsets, self._sizes, strict=True):
            yield ObjectInfo(f"{self._folder}{offset:020d}.parquet", size, 0)


class ObjectReader:
    """Reads objects of one store, `workers` at a time, the small ones whole and the large ones in parts.

    Memory: at most 32 MB of objects are under way or waiting, and 4 MB a worker of a large one. With 0 workers there
    is no thread: objects are read one by one, in order. Damage is an answer, not an error, and so is an object or a
    folder that the store does not give (access refused, a bad sector). A store that does not answer at all is an
    error, and one that does not give store.json, or the list of topics: nothing is known of any then.
    """

    def __init__(self, store: ObjectStore, tally: Tally, workers: int) -> None:
        self._store = store
        self._tally = tally
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="verify") if workers else None
        self.not_folders: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def listing(self, folder: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """What is in the folder, by name; nothing more where it cannot be listed, which `not_folders` notes."""
        try:
            yield from self._store.list(folder, start_after=start_after)
        except StorageError as error:
            self._note_folder(folder, error)

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
        return self._counted(self._fetch(key, size, decode))

    def read_in_order(
        self, infos: Iterable[ObjectInfo], decode: Decode[T]
    ) -> Iterator[tuple[ObjectInfo, T | Damaged | None]]:
        """All of them in the order given, each decoded; None for one that has gone since it was listed."""
        if self._pool is None:
            for info in infos:
                yield info, self.read(info.key, decode, size=info.size)
            return
        waiting: deque[tuple[list[ObjectInfo], int, Future[list[Fetched[T]]]]] = deque()
        ahead = 0
        for task in _tasks(infos):
            held = sum(min(info.size, WHOLE_BYTES_MAX) for info in task)
            while waiting and (len(waiting) >= _TASKS_AHEAD or ahead + held > _AHEAD_BYTES):
                ahead -= waiting[0][1]
                yield from self._finished(waiting.popleft())
            waiting.append((task, held, self._pool.submit(self._fetch_all, task, decode)))
            ahead += held
        while waiting:
            yield from self._finished(waiting.popleft())

    def _finished(
        self, task: tuple[list[ObjectInfo], int, Future[list[Fetched[T]]]]
    ) -> Iterator[tuple[ObjectInfo, T | Damaged | None]]:
        infos, _, future = task
        for info, fetched in zip(infos, future.result(), strict=True):
            yield info, self._counted(fetched)

    def _fetch_all(self, infos: list[ObjectInfo], decode: Decode[T]) -> list[Fetched[T]]:
        return [self._fetch(info.key, info.size, decode) for info in infos]

    def _fetch(self, key: str, size: int, decode: Decode[T]) -> Fetched[T]:
        try:
            data = None if size > WHOLE_BYTES_MAX else self._whole(key)
            if data is None and size <= WHOLE_BYTES_MAX:
                size = self._store.head(key).size
            read = size if data is None else len(data)
            return read, _decoded(RawObject(key, read, data, self._store), decode)
        except ObjectNotFoundError:
            return -1, None
        except UnknownFormatError:
            raise  # of store.json
        except StorageError as error:  # a link or a device by its name, access refused, a bad sector
            if isinstance(error, NO_ANSWER) or (
                key == _STORE_KEY and not isinstance(error, DamagedObjectError)
            ):
                raise
            return size, Damaged(error.seen, size)

    def _whole(self, key: str) -> bytes | None:
        """The object; None for one that is too large to be read in one go."""
        try:
            return self._store.get(key, max_bytes=WHOLE_BYTES_MAX)
        except OversizedObjectError:
            return None

    def _counted(self, fetched: Fetched[T]) -> T | Damaged | None:
        size, decoded = fetched
        if size >= 0:
            self._tally.objects += 1
            self._tally.bytes += size
        return decoded


def _tasks(infos: Iterable[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    """What one worker reads in one go: a handful of small objects, or a large one."""
    task: list[ObjectInfo] = []
    held = 0
    for info in infos:
        if task and (len(task) == _TASK_OBJECTS or held + info.size > _TASK_BYTES):
            yield task
            task, held = [], 0
        task.append(info)
        held += info.size
    if task:
        yield task


def _decoded(found: RawObject, decode: Decode[T]) -> T | Damaged:
    try:
        return decode(found)
    except DamagedObjectError as error:
        if isinstance(error, UnknownFormatError) and found.key == _STORE_KEY:
            raise  # nothing here can be judged by this version's rules
        text = f"{error.seen}, expected {error.expected}" if error.expected else error.seen
        return Damaged(text, found.size)
    except (MalformedError, LimitError) as error:
        return Damaged(str(error), found.size, malformed=True)
    except UNREADABLE as error:
        return Damaged(f"cannot be read: {' '.join(str(error).split())[:200]}", found.size, malformed=True)
