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
    bytes that the encoding does not have; they are kept as surrogates, which `raw` makes bytes again. A batch is full
    at `full_rows`, or where `chars`, all that were read, reach `full_at`.
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
        self.chars = self._lines = 0
        self.full_at = BATCH_CHARS
        self.full_rows = BATCH_ROWS
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
        read, held, room = self._stream.readline, self.held, ROW_CHARS_MAX + 1
        chars = row_from = lines = 0
        try:
            while line := read(room):
                if not held:
                    row_from = chars
                held.append(line)
                chars += len(line)
                lines += 1
                if chars - row_from >= room:
                    raise self._too_long(lines)
                if not line.isascii() and not is_whole(line):
                    self.is_undecodable = True
                self.chars = chars
                yield line
        finally:
            self._lines = lines

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

    def next_batch(self) -> None:
        """A batch begins with what is read from here on; tells the progress."""
        self.full_at = self.chars + BATCH_CHARS
        self.tell_progress()

    def tell_progress(self) -> None:
        """Say how far the reading is."""
        self._layout.progress(self._bytes.bytes_read)

    def _too_long(self, line: int) -> InvalidRecordError:
        lines = len(self.held)
        seen = f"a row of more than {ROW_CHARS_MAX:,} characters" + (
            f", {lines:,} lines" if lines > 1 else ""
        )
        hint = "is a quote open that nothing closes?" if lines > 1 else "is it text with line ends?"
        return self._layout.refused(
            seen,
            expected=f"at most {ROW_CHARS_MAX:,} in a row",
            line=line - lines + 1,
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
