"""A file as lines of text."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Self

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files.layout import ACTOR, Layout
from txn_engine.files.source import CountedBytes, decompressed

BATCH_ROWS = 32_768
BATCH_CHARS = 16 * 1024 * 1024
ROW_CHARS_MAX = 16 * 1024 * 1024
"""The longest row that is held; a longer one is refused before it is read to its end."""


class Text:
    """A file as lines of text, with or without a byte order mark; a file that is cut or no text is refused.

    held: the lines since whoever reads them emptied it, so those of a row. is_undecodable: whether one of them has
    bytes that the encoding does not have; they are kept as surrogates, which `raw` makes bytes again.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        try:
            self._bytes = CountedBytes(layout.source)
        except OSError as error:
            raise layout.unreadable(error) from error
        self._encoding = "utf-8-sig" if layout.encoding == "utf-8" else layout.encoding
        self._stream = io.TextIOWrapper(
            decompressed(self._bytes, layout.compression),
            encoding=self._encoding,
            errors="surrogateescape",
            newline="",
        )
        self._chars = self._batch_from = self._lines = 0
        self.held: list[str] = []
        self.is_undecodable = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._stream.close()
        if isinstance(
            error, UnicodeError
        ):  # surrogates cannot stand for it: the rest cannot be told from lines
            raise self._layout.refused(
                f"bytes that are no {self._layout.encoding.upper()}, behind line {self._lines}",
                expected=f"text in {self._layout.encoding.upper()}, whole",
            ) from None
        if isinstance(error, OSError) and self._layout.compression is not None and error.errno is None:
            raise self._layout.refused(
                f"damaged or truncated {self._layout.compression}, behind line {self._lines}",
                expected="a whole file",
            ) from None
        if isinstance(error, OSError):
            raise self._layout.unreadable(error) from error

    def lines(self) -> Iterator[str]:
        """The lines, with their ends."""
        read, held, row_from = self._stream.readline, self.held, 0
        while line := read(ROW_CHARS_MAX + 1):
            if not held:
                row_from = self._chars
            held.append(line)
            self._chars += len(line)
            self._lines += 1
            if self._chars - row_from > ROW_CHARS_MAX:
                raise self._too_long()
            if not line.isascii() and not is_whole(line):
                self.is_undecodable = True
            yield line

    def raw(self) -> bytes:
        """The bytes of the lines that are held."""
        encoding = "utf-8" if self._encoding == "utf-8-sig" else self._encoding
        return "".join(self.held).encode(encoding, errors="surrogateescape")

    def next_row(self) -> None:
        """Forget the lines that are held."""
        self.held.clear()
        self.is_undecodable = False

    def undecodable(self, line: int) -> InvalidRecordError:
        """The error for bytes that the encoding does not have, in the row that begins on the line."""
        said, value = "", None
        raw, encoding = self.raw(), self._layout.encoding
        try:
            raw.decode(encoding)
        except UnicodeDecodeError as error:
            said, value = f" ({error.reason})", f"{error.object[error.start]:#04x}"
            line += raw[: error.start].count(b"\n")
        return self._layout.refused(
            f"bytes that are no {encoding.upper()}{said}",
            value=value,
            expected=f"text in {encoding.upper()}",
            line=line,
        )

    def batch_is_full(self, rows: int) -> bool:
        """Whether what was read since the last full batch is enough for one; tells the progress then."""
        if rows < BATCH_ROWS and self._chars - self._batch_from < BATCH_CHARS:
            return False
        self._batch_from = self._chars
        self.tell_progress()
        return True

    def tell_progress(self) -> None:
        """Say how far the reading is."""
        self._layout.progress(self._bytes.bytes_read)

    def _too_long(self) -> InvalidRecordError:
        lines = len(self.held)
        seen = f"a row of more than {ROW_CHARS_MAX:,} characters" + (
            f", {lines:,} lines" if lines > 1 else ""
        )
        hint = "is a quote open that nothing closes?" if lines > 1 else "is it text with line ends?"
        return self._layout.refused(
            seen,
            expected=f"at most {ROW_CHARS_MAX:,} in a row",
            line=self._lines - lines + 1,
            action=hint,
        )


def is_whole(text: str) -> bool:
    """Whether the text has no surrogates, which stand for bytes that are none of it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_encoding(name: str) -> str:
    """The encoding, by its usual name; refused where there is none of that name."""
    probe = "a;1\r\n"
    try:
        known = probe.encode(name).decode(name) == probe
    except (LookupError, UnicodeError, ValueError):
        known = False
    if not known:
        raise InvalidRequestError(
            f"encoding {name!r}",
            actor=ACTOR,
            expected="one that Python knows: utf-8, cp1252, latin-1, utf-16",
        )
    return "utf-8" if name.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig") else name.lower()
