"""An object on the store as a file that Arrow can read parts of."""

from __future__ import annotations

import io
from collections.abc import Callable

Part = Callable[[int, int], bytes]
"""Gives `length` bytes of the object from `start` on: `part(start, length)`."""


class RangedFile(io.RawIOBase):
    """A read-only file over `part`, nothing of it kept: each read asks the store for just these bytes."""

    def __init__(self, part: Part, size: int) -> None:
        super().__init__()
        self._part = part
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move there."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next `size` bytes, fewer at the end; all that are left for -1."""
        left = max(self._size - self._at, 0)
        length = left if size is None or size < 0 else min(size, left)
        data = self._part(self._at, length) if length else b""
        self._at += length
        return data
