"""A UTF-8 file as lines of text."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Self

from txn_engine.files.layout import Layout

BATCH_ROWS = 32_768
BATCH_BYTES = 16 * 1024 * 1024


class _CountedFile(io.FileIO):
    """A file that knows how much of it was read, also where it cannot seek."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "r")
        self.bytes_read = 0

    def readinto(self, buffer: Any) -> int | None:  # type: ignore[override,unused-ignore]
        """Read, and count."""
        count = super().readinto(buffer)
        self.bytes_read += count or 0
        return count


class Text:
    """A UTF-8 file as lines of text, with or without a byte order mark."""

    def __init__(self, layout: Layout, *, newline: str | None) -> None:
        self._layout = layout
        try:
            self._file = _CountedFile(layout.path)
        except OSError as error:
            raise layout.unreadable(error) from error
        buffered = io.BufferedReader(self._file, 1 << 17)
        self.stream = io.TextIOWrapper(buffered, encoding="utf-8-sig", newline=newline)
        self._batch_from = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.stream.close()
        if isinstance(error, UnicodeDecodeError):
            raise self._layout.refused(
                f"bytes that are no UTF-8 ({error.reason})",
                value=f"{error.object[error.start]:#04x}",
                expected="text in UTF-8",
                line=_first_undecodable_line(self._layout.path),
            ) from None
        if isinstance(error, OSError):
            raise self._layout.unreadable(error) from error

    def batch_is_full(self, rows: int) -> bool:
        """Whether what was read since the last full batch is enough for one; tells the progress then."""
        if rows < BATCH_ROWS and (rows & 63 or self._file.bytes_read - self._batch_from < BATCH_BYTES):
            return False
        self._batch_from = self._file.bytes_read
        self.tell_progress()
        return True

    def tell_progress(self) -> None:
        """Say how far the reading is."""
        self._layout.progress(self._file.bytes_read)


def _first_undecodable_line(path: Path) -> int | None:
    if not path.is_file():
        return None
    with path.open("rb") as raw:
        for number, line in enumerate(raw, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return None
