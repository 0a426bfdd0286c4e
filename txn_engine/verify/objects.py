"""Reading raw objects: whole, checked, several at a time and in order."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from storage.envelope import decode_json, verify_checksum
from storage.errors import DamagedObjectError, ObjectNotFoundError
from storage.store import ObjectInfo, ObjectStore
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.report import Tally

_FORMAT: Final = "1"
_PREFIX: Final = b"txn_engine."
_WORKERS: Final = 8
_AHEAD_OBJECTS: Final = 32
_AHEAD_BYTES: Final = 64 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damaged:
    """An object that is there and cannot be used: what is wrong with it."""

    reason: str
    size: int
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class ParquetObject:
    """A Parquet object whose checksum is right; the columns are read when asked for."""

    file: pq.ParquetFile
    kind: str
    write_id: str
    checksum: str

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """The columns named, or all."""
        return self.file.read(columns=columns, use_threads=False)


def open_parquet(key: str, data: bytes) -> ParquetObject:
    """The object, after its checksum was found right; DamagedObjectError otherwise."""
    checksum = verify_checksum(data, key)
    file = pq.ParquetFile(pa.BufferReader(data))
    held = file.metadata.metadata or {}
    own = {
        name.removeprefix(_PREFIX).decode(): value.decode()
        for name, value in held.items()
        if name.startswith(_PREFIX)
    }
    if own.get("format") != _FORMAT:
        raise MalformedError(f"format {own.get('format')!r}, not {_FORMAT!r}")
    return ParquetObject(file, own.get("kind", ""), own.get("write_id", ""), checksum)


def open_json(key: str, data: bytes, kind: str) -> dict[str, Any]:
    """The JSON object's fields; DamagedObjectError unless checksum, format and kind are right."""
    return decode_json(data, key=key, kind=kind)


class ObjectReader:
    """Reads objects of one store, up to 8 at a time and at most 64 MB ahead.

    Damage is an answer, not an error. What the store itself refuses (unreachable, no access) is raised as it is.
    """

    def __init__(self, store: ObjectStore, tally: Tally) -> None:
        self._store = store
        self._tally = tally
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="verify")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def listing(self, folder: str, *, start_after: str | None = None) -> list[ObjectInfo]:
        """What is in the folder, by name."""
        return list(self._store.list(folder, start_after=start_after))

    def folders(self, folder: str) -> list[str]:
        """The names of the folders right below."""
        return self._store.list_folders(folder)

    def read(self, key: str, decode: Callable[[str, bytes], T]) -> T | Damaged | None:
        """One object, decoded; None where there is none."""
        data = self._get(key)
        if data is None:
            return None
        self._count(data)
        return _decoded(key, data, decode)

    def read_in_order(
        self, infos: Iterable[ObjectInfo], decode: Callable[[str, bytes], T]
    ) -> Iterator[tuple[ObjectInfo, T | Damaged | None]]:
        """All of them in the order given, each decoded; None for one that has gone since it was listed."""
        waiting: deque[tuple[ObjectInfo, Future[tuple[int, T | Damaged | None]]]] = deque()
        ahead = 0
        for info in infos:
            while waiting and (len(waiting) >= _AHEAD_OBJECTS or ahead + info.size > _AHEAD_BYTES):
                first, future = waiting.popleft()
                ahead -= first.size
                yield first, self._counted(future)
            waiting.append((info, self._pool.submit(self._fetch, info.key, decode)))
            ahead += info.size
        while waiting:
            first, future = waiting.popleft()
            yield first, self._counted(future)

    def _fetch(self, key: str, decode: Callable[[str, bytes], T]) -> tuple[int, T | Damaged | None]:
        data = self._get(key)
        return (-1, None) if data is None else (len(data), _decoded(key, data, decode))

    def _counted(self, future: Future[tuple[int, T | Damaged | None]]) -> T | Damaged | None:
        size, decoded = future.result()
        if size >= 0:
            self._tally.objects += 1
            self._tally.bytes += size
        return decoded

    def _get(self, key: str) -> bytes | None:
        try:
            return self._store.get(key)
        except ObjectNotFoundError:
            return None

    def _count(self, data: bytes) -> None:
        self._tally.objects += 1
        self._tally.bytes += len(data)


def _decoded(key: str, data: bytes, decode: Callable[[str, bytes], T]) -> T | Damaged:
    try:
        return decode(key, data)
    except DamagedObjectError as error:
        text = f"{error.seen}, expected {error.expected}" if error.expected else error.seen
        return Damaged(text, len(data))
    except MalformedError as error:
        return Damaged(str(error), len(data), malformed=True)
    except (
        pa.ArrowException,
        json.JSONDecodeError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
    ) as error:
        return Damaged(f"cannot be read: {' '.join(str(error).split())[:200]}", len(data), malformed=True)
