"""The data files that a consumer reads, and the likely next ones ahead."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from txn_engine.log.objects import Objects
from txn_engine.log.reading import FileSlice, between, read_slice
from txn_engine.log.topics import Topic

_AHEAD_FILES = 32
ALONE_BYTES = 256 << 10
"""A file of this size is read by itself, even from a store nearby."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A whole file that a partition's log names."""

    topic: Topic
    part: FileSlice
    key: str  # the same records for ever: of its object, as of one version of the topic's schema

    @property
    def bytes(self) -> int:
        """As it is stored."""
        return self.part.log_file.file.data_bytes


class OpenFile:
    """A file that is read on from poll to poll, a part of it in memory at a time."""

    def __init__(self, key: str, tables: Iterator[pa.Table]) -> None:
        self.key = key
        self._tables = tables
        self._table: pa.Table | None = next(tables, None)
        self._begins_at = 0

    def holds(self, key: str, position: int) -> bool:
        """Whether it can be read on from there."""
        return self.key == key and position >= self._begins_at

    def rest(self, position: int) -> pa.Table | None:
        """The records in memory from this offset on, or the next part's that has such; None for no more."""
        while self._table is not None:
            left = between(self._table, position, sys.maxsize)
            if left.num_rows:
                return left
            del left
            self._table = None  # one part at a time
            self._table = next(self._tables, None)
            self._begins_at = position
        return None


class FilesAhead:
    """Opens files. Those expected are opened in `workers` meanwhile: up to 32, of `ahead_bytes` together, as they are
    stored, or one of any size.

    A file that could not be read ahead fails whoever opens it, and is read anew after that.
    """

    def __init__(self, objects: Objects, workers: Executor, ahead_bytes: int) -> None:
        self._objects = objects
        self._workers = workers
        self._ahead_bytes = ahead_bytes
        self._likely: Iterator[NamedFile] = iter(())
        self._expected: deque[NamedFile] = deque()
        self._under_way: dict[str, tuple[NamedFile, Future[OpenFile]]] = {}

    def is_worth_it(self, data_bytes: int) -> bool:
        """Whether a file of this size is read ahead: where an object is a file away, small ones are not."""
        return not self._objects.is_near or data_bytes >= ALONE_BYTES

    def expect(self, files: Iterable[NamedFile]) -> None:
        """These will be opened next, in this order, in all likelihood; what was expected before is not any more."""
        self._likely = iter(files)
        self._expected = deque(islice(self._likely, _AHEAD_FILES))
        keys = {file.key for file in self._expected}
        for key, (_, opening) in list(self._under_way.items()):
            failed = opening.done() and opening.exception() is not None
            if failed or key not in keys:
                opening.cancel()
                del self._under_way[key]

    def open(self, file: NamedFile) -> OpenFile:
        """The file, its first part in memory."""
        _, opening = self._under_way.pop(file.key, (file, None))
        if self._expected and self._expected[0].key == file.key:
            self._expected.popleft()
        self.read_ahead()
        return self._open_now(file) if opening is None else opening.result()

    def read_ahead(self) -> None:
        """Have as many of the expected files under way as may be."""
        self._expected.extend(islice(self._likely, _AHEAD_FILES - len(self._expected)))
        held = sum(file.bytes for file, _ in self._under_way.values())
        while self._expected and len(self._under_way) < _AHEAD_FILES:
            file = self._expected[0]
            if self._under_way and held + file.bytes > self._ahead_bytes:
                return
            self._expected.popleft()
            if file.key not in self._under_way:
                self._under_way[file.key] = (file, self._workers.submit(self._open_now, file))
                held += file.bytes

    def forget(self) -> None:
        """Nothing is expected any more."""
        self.expect(())

    def _open_now(self, file: NamedFile) -> OpenFile:
        return OpenFile(file.key, read_slice(self._objects, file.topic, file.part))
