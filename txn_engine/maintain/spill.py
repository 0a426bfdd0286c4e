"""Record batches that do not fit the memory, on the local disk; nothing is left of them, however the process ends."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pyarrow as pa

from txn_engine.errors import SpillFullError
from txn_engine.reasons import Reason


class Spill:
    """Batches of one schema by bucket, in a file without a name in the folder for temporary files (TMPDIR).

    Having no name, the file is gone with the process, killed or not. It takes at most `max_bytes`. Raises
    `SpillFullError` where that, or the disk, has no room.
    """

    def __init__(self, schema: pa.Schema, max_bytes: int, *, what: str) -> None:
        self._schema = schema
        self._max_bytes = max_bytes
        self._what = what
        self._folder = tempfile.gettempdir()
        self._places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._written = 0
        try:
            # Without a buffer: closing it writes nothing, and so cannot fail for want of room.
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 -- `close` closes it
        except OSError as error:
            raise self._no_room(str(error), Reason.FOLDER_UNUSABLE) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def written_bytes(self) -> int:
        """How much is on the disk."""
        return self._written

    def check_room(self, more_bytes: int) -> None:
        """Raise unless there is room for so much more."""
        if self._written + more_bytes > self._max_bytes:
            raise self._no_room(f"{self._written + more_bytes} bytes to put aside", Reason.SPILL_LIMIT)
        free = shutil.disk_usage(self._folder).free
        if more_bytes > free:
            raise self._no_room(f"{more_bytes} bytes more to put aside, and {free} free", Reason.DISK_FULL)

    def add(self, bucket: int, batch: pa.RecordBatch) -> None:
        """Put a batch aside."""
        data = batch.serialize()
        if self._written + data.size > self._max_bytes:
            raise self._no_room(f"{self._written + data.size} bytes to put aside", Reason.SPILL_LIMIT)
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._no_room(str(error), Reason.DISK_FULL) from error
        self._places[bucket].append((self._written, data.size))
        self._written += data.size

    def read(self, bucket: int) -> Iterator[pa.RecordBatch]:
        """The batches of a bucket, in the order in which they were added."""
        for at, size in self._places[bucket]:
            self._file.seek(at)
            yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), self._schema)

    def close(self) -> None:
        """Let go of the disk."""
        self._file.close()

    def _no_room(self, seen: str, reason: Reason) -> SpillFullError:
        return SpillFullError(
            seen,
            actor=self._what,
            place=self._folder,
            expected=f"room for at most {self._max_bytes} bytes",
            reason=reason,
        )
