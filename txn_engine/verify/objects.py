"""Reading raw objects: whole, checked, several at a time and in order."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from storage.envelope import decode_json, verify_checksum, verify_checksum_in_parts
from storage.errors import DamagedObjectError, ObjectNotFoundError, UnknownFormatError
from storage.store import ObjectInfo, ObjectStore
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.ranged_file import RangedFile
from txn_engine.verify.report import Tally

_FORMAT: Final = "2"
_PREFIX: Final = b"txn_engine."
WHOLE_BYTES_MAX: Final = 8 << 20  # a larger object is read in parts and is never in memory as a whole
_PART_BYTES: Final = 4 << 20
_BUFFER_BYTES: Final = 1 << 20  # of a large object's column
_BATCH_ROWS: Final = 8_192
_TASK_OBJECTS: Final = 8
_TASK_BYTES: Final = 1 << 20
_TASKS_AHEAD: Final = 16
_AHEAD_BYTES: Final = 32 << 20

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
        data = self.store.get(self.key) if self.data is None else self.data
        return decode_json(data, key=self.key, kind=kind)

    def parquet(self) -> ParquetObject:
        """The Parquet object, after its checksum was found right; DamagedObjectError otherwise."""
        if self.data is None:
            checksum = verify_checksum_in_parts(self._part, self.size, self.key, part_bytes=_PART_BYTES)
            source = pa.PythonFile(RangedFile(self._part, self.size), mode="r")
            file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        else:
            checksum = verify_checksum(self.data, self.key)
            file = pq.ParquetFile(pa.BufferReader(self.data), pre_buffer=False)
        held = file.metadata.metadata or {}
        own = {
            name.removeprefix(_PREFIX).decode(): value.decode()
            for name, value in held.items()
            if name.startswith(_PREFIX)
        }
        if own.get("format") != _FORMAT:
            raise MalformedError(f"format {own.get('format')!r}, not {_FORMAT!r}")
        return ParquetObject(file, own.get("kind", ""), own.get("write_id", ""), checksum)

    def _part(self, start: int, length: int) -> bytes:
        return self.store.get_range(self.key, start, length)


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
    is no thread: objects are read one by one, in order. Damage is an answer, not an error. What the store itself
    refuses (unreachable, no access) is raised as it is.
    """

    def __init__(self, store: ObjectStore, tally: Tally, workers: int) -> None:
        self._store = store
        self._tally = tally
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="verify") if workers else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def listing(self, folder: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """What is in the folder, by name."""
        return self._store.list(folder, start_after=start_after)

    def folders(self, folder: str) -> list[str]:
        """The names of the folders right below."""
        return self._store.list_folders(folder)

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
            data = None if size > WHOLE_BYTES_MAX else self._store.get(key)
            read = size if data is None else len(data)
            return read, _decoded(RawObject(key, read, data, self._store), decode)
        except ObjectNotFoundError:
            return -1, None

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
        if isinstance(error, UnknownFormatError) and found.key == "store.json":
            raise  # nothing here can be judged by this version's rules
        text = f"{error.seen}, expected {error.expected}" if error.expected else error.seen
        return Damaged(text, found.size)
    except MalformedError as error:
        return Damaged(str(error), found.size, malformed=True)
    except (
        pa.ArrowException,
        json.JSONDecodeError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        RecursionError,
    ) as error:
        return Damaged(f"cannot be read: {' '.join(str(error).split())[:200]}", found.size, malformed=True)
