"""The body of a large object as it comes, so that what has come need not be asked for again."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from storage.ranges import short_range


class Body:
    """So many bytes of an object, in memory or in a file: what has come of them.

    tag: of the object that is being read; None where the store gives none, so that only the whole can be asked for.
    """

    def __init__(self, size: int, tag: str | None, file: BinaryIO | None) -> None:
        self._size = size
        self._tag = tag
        self._file = file
        self._held: list[bytes] = []
        self._come = 0

    def rest(self) -> dict[str, Any]:
        """What asks for the bytes that have not come, of the same object."""
        return {"range": (self._come, self._size), "if_match": self._tag}

    def can_go_on(self, error: Exception, changed: type[Exception]) -> bool:
        """Whether the rest may be asked for after this error, or the whole has to be: it is another object by now."""
        return bool(self._tag and self._come) and not isinstance(error, changed)

    def close(self) -> None:
        """Give up the file."""
        if self._file is not None:
            self._file.close()

    def take(self, chunks: Iterable[Any], came: Callable[[], None]) -> None:
        """Keep the chunks, and call `came` after each."""
        for chunk in chunks:
            if self._file is None:
                self._held.append(bytes(chunk))
            else:
                self._file.write(chunk)
            self._come += len(chunk)
            came()

    def whole(self, uri: str) -> bytes | memoryview:
        """All of it, and the file closed. Raises `DamagedObjectError` where the store sent fewer bytes than it said."""
        try:
            if self._come != self._size:
                raise short_range(uri, 0, self._size, self._come)
            if self._file is None:
                return b"".join(self._held)
            self._file.flush()
            return memoryview(mmap.mmap(self._file.fileno(), self._size, prot=mmap.PROT_READ))
        finally:
            self.close()


def temporary_file(size: int) -> BinaryIO | None:
    """A file without a name, with room for so many bytes; None where the machine has none to give."""
    try:
        file: BinaryIO = tempfile.TemporaryFile(prefix="txn-engine-")  # noqa: SIM115 -- the caller's
    except OSError:
        return None
    try:
        if hasattr(os, "posix_fallocate"):  # macOS has none, and says so at the write
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        file.close()
        return None
    return file
