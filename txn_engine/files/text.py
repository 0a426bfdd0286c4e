"""A file as lines of text."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files.layout import ACTOR, MEND_AND_LOAD_AGAIN, Layout
from txn_engine.files.source import CountedBytes, decompressed
from txn_engine.reasons import Reason
from txn_engine.row_limits import ROW_CHARS_MAX, VALUES_MAX, row_too_long

BATCH_ROWS = 32_768
BATCH_CHARS = 16 * 1024 * 1024
"""The longest row that is held; a longer one is refused before it is read to its end."""
BLOCK_CHARS = 1 << 20
"""So much is read at a time, and what its last line lacks."""
_READ_BYTES = 8_192
_USUAL_OTHER = "cp1252"
"""What text is in most often that is not UTF-8: Windows in Western Europe."""
BYTE_ORDER_MARK = "\ufeff"
_SWAPPED_MARK = "\ufffe"
_MARK_BYTES_MAX = 4


@dataclass(frozen=True, slots=True)
class _Mark:
    """A byte order mark, and the encodings of a file that begins with it."""

    mark: bytes
    encodings: tuple[str, ...]


_MARKS = (
    _Mark(codecs.BOM_UTF32_LE, ("utf-32", "utf-32-le")),  # before the mark of UTF-16, with which it begins
    _Mark(codecs.BOM_UTF32_BE, ("utf-32", "utf-32-be")),
    _Mark(codecs.BOM_UTF16_LE, ("utf-16", "utf-16-le")),
    _Mark(codecs.BOM_UTF16_BE, ("utf-16", "utf-16-be")),
    _Mark(codecs.BOM_UTF8, ("utf-8",)),
)


class Text:
    """A file as lines of text, with or without a byte order mark; a file that is cut or no text is refused.

    Where files are joined, a mark stands at the beginning of a row inside of this one: it is no part of the row.

    held: the lines since whoever reads them emptied it, so those of a row. is_undecodable: whether one of them has
    bytes that the encoding does not have; they are kept as surrogates, which `raw` makes bytes again. A batch is full
    at `full_rows`, or where `chars`, all that were read, reach `full_at`, or where whoever reads the lines has counted
    too many `values` in them. skip_footer: how many lines at the end are
    not given; blank lines do not count, and those after the first of them are not given either.
    """

    def __init__(self, layout: Layout, *, skip_footer: int = 0) -> None:
        self._layout = layout
        self._skip_footer = skip_footer
        self._held_back = ""
        try:
            self._bytes = CountedBytes(layout.source)
        except OSError as error:
            raise layout.unreadable(error) from error
        self.encoding = layout.encoding
        self._marks = _marks_in(self.encoding)
        self._is_wide = codecs.lookup(self.encoding).name.startswith(("utf-16", "utf-32"))
        self._stream = decompressed(self._bytes, layout.compression)
        self._decoder = codecs.getincrementaldecoder(self.encoding)("surrogateescape")
        self._has_begun = self._has_text = False
        self._block = io.StringIO()
        self._tail = ""
        self._has_ended = False
        self._failure: BaseException | None = None
        self.chars = self.lines_read = self.values = 0
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
                f"bytes that are no {self._layout.encoding.upper()}, behind line {self.lines_read}",
                reason=Reason.BAD_ENCODING,
                expected=f"text in {self._layout.encoding.upper()}, whole",
            ) from None
        if isinstance(error, OSError) and self._layout.compression is not None and error.errno is None:
            raise self._layout.refused(
                f"damaged or truncated {self._layout.compression}, behind line {self.lines_read}",
                reason=Reason.DAMAGED_FILE,
                expected="a whole file",
            ) from None
        if isinstance(error, OSError):
            raise self._layout.unreadable(error) from error

    def lines(self) -> Iterator[str]:
        """The lines, with their ends."""
        held, room = self.held, ROW_CHARS_MAX + 1
        row_from = 0
        while self._has_more():
            read = self._block.readline
            while line := read(room):
                is_first = not held
                if is_first:
                    row_from = self.chars
                held.append(line)
                self.chars += len(line)
                self.lines_read += 1
                if self.chars - row_from >= room:
                    raise self._too_long(self.lines_read)
                if not line.isascii():
                    self.is_undecodable = self.is_undecodable or not is_whole(line)
                    while is_first and line.startswith(self._marks):
                        line = line[max(len(mark) for mark in self._marks if line.startswith(mark)) :]
                yield line
                read = self._block.readline

    @property
    def begins_again(self) -> bool:
        """Whether the row whose lines are held begins with a byte order mark, which another file has brought."""
        return bool(self.held) and self.held[0].startswith(self._marks)

    def may_begin_again(self, block: str) -> bool:
        """Whether a line of the block begins with a byte order mark."""
        return block.startswith(self._marks) or any(f"\n{mark}" in block for mark in self._marks)

    def block(self) -> str:
        """Whole lines that are still to be read, about `BLOCK_CHARS`, at a row's beginning; "" at the end."""
        rest = self._block.read()
        if len(rest) < BLOCK_CHARS:
            try:
                rest += self._read()
            except (OSError, ValueError):  # raised again behind these lines, so that they are counted
                if not rest:
                    raise
        self._block = io.StringIO(rest, newline="")
        return rest

    def pass_over(self, chars: int, lines: int) -> None:
        """So much of the block was read."""
        self._block.seek(chars)
        self.chars += chars
        self.lines_read += lines

    def _has_more(self) -> bool:
        """Whether there are lines in the block, of those that it has now."""
        at = self._block.tell()
        if self._block.seek(0, io.SEEK_END) > at:
            self._block.seek(at)
            return True
        text = self._read()
        self._block = io.StringIO(text, newline="")
        return bool(text)

    def _read(self) -> str:
        """Whole lines without the footer; "" at the end."""
        if not self._skip_footer:
            return self._read_lines()
        while text := self._read_lines():
            text = self._held_back + text
            is_row = len(text) > ROW_CHARS_MAX + BLOCK_CHARS  # no footer is as long
            footer = len(text) if is_row else _start_of_last(text, self._skip_footer)
            self._held_back = text[footer:]
            if footer:
                return text[:footer]
        return ""

    def _read_lines(self) -> str:
        """Whole lines, as many as there are in so much; what comes behind a failure is not known, nor is its line."""
        parts, chars = [self._tail], len(self._tail)
        self._tail = ""
        end = 0
        while not end and self._failure is None and not self._has_ended and chars <= ROW_CHARS_MAX:
            wanted = chars + BLOCK_CHARS
            while chars < wanted and (piece := self._piece()) is not None:
                parts.append(piece)
                chars += len(piece)
            parts = ["".join(parts)]
            end = _end_of_lines(parts[0])
        text = "".join(parts)
        if self._failure is not None:
            if not end:
                raise self._failure
            return text[:end]
        if self._has_ended or not end:
            return text
        self._tail = text[end:]
        return text[:end]

    def _piece(self) -> str | None:
        """A little more text; None at the end, or where there is no more to be had."""
        if self._has_ended or self._failure is not None:
            return None
        try:
            data = self._stream.read1(_READ_BYTES) if self._has_begun else self._first_bytes()
            text = self._decoded(data)
        except (OSError, ValueError) as failure:  # raised where the reading comes to it
            self._failure = failure
            return None
        self._has_begun = True
        self._has_ended = not data
        if not self._has_text and text:
            self._has_text = True
            # the decoders of these two have taken the mark away, and what comes now is text
            if codecs.lookup(self.encoding).name not in ("utf-16", "utf-32"):
                text = text.removeprefix(BYTE_ORDER_MARK)
        if self._is_wide and _SWAPPED_MARK in text:  # what comes has its bytes in the other order
            self._failure = UnicodeError("a byte order mark of the other order")
            text = text[: text.index(_SWAPPED_MARK)]
        return text

    def _decoded(self, data: bytes) -> str:
        """The text, up to where the bytes are none."""
        held = len(self._decoder.getstate()[0])
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as failure:
            self._failure = failure
            return self._decoder.decode(data[: max(failure.start - held, 0)])

    def _first_bytes(self) -> bytes:
        """The bytes that the file begins with. Raises `InvalidRecordError` for the byte order mark of another encoding:
        its characters would become part of the first name or value.
        """
        data = self._stream.read(_MARK_BYTES_MAX)
        found = next((each for each in _MARKS if data.startswith(each.mark)), None)
        if found is not None and codecs.lookup(self.encoding).name not in found.encodings:
            name = found.encodings[0]
            raise self._layout.refused(
                f"the file begins with the byte order mark of {name.upper()}",
                reason=Reason.BAD_ENCODING,
                value=f"{data[0]:#04x}",
                expected=f"text in {self.encoding.upper()}",
                line=1,
                action=f"try `--encoding {name}`",
            )
        return data

    def raw(self) -> bytes:
        """The bytes of the lines that are held."""
        return "".join(self.held).encode(self.encoding, errors="surrogateescape")

    @property
    def is_batch_full(self) -> bool:
        """Whether what was read since the last batch takes as much memory as a batch may."""
        return self.chars >= self.full_at or self.values >= VALUES_MAX

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
        is_other = encoding in ("utf-8", "ascii") and _can_be(raw, _USUAL_OTHER)
        return self._layout.refused(
            f"bytes that are no {encoding.upper()}{said}",
            reason=Reason.BAD_ENCODING,
            value=value,
            expected=f"text in {encoding.upper()}",
            line=line,
            action=f"try `--encoding {_USUAL_OTHER}`" if is_other else MEND_AND_LOAD_AGAIN,
        )

    def next_batch(self) -> None:
        """A batch begins with what is read from here on; tells the progress."""
        self.full_at = self.chars + BATCH_CHARS
        self.values = 0
        self.tell_progress()

    def tell_progress(self) -> None:
        """Say how far the reading is."""
        self._layout.progress(self._bytes.bytes_read)

    def _too_long(self, line: int) -> InvalidRecordError:
        lines = len(self.held)
        return self._layout.refused(**row_too_long(lines), line=line - lines + 1)


def _marks_in(encoding: str) -> tuple[str, ...]:
    """What a byte order mark inside of a file is in its encoding: in cp1252 the mark of UTF-8 is "ï»¿"."""
    try:
        found = codecs.BOM_UTF8.decode(encoding)
    except UnicodeError:
        return (BYTE_ORDER_MARK,)
    return tuple({BYTE_ORDER_MARK, found} - {""})


def _end_of_lines(text: str) -> int:
    """Where the last line that is surely whole ends: behind a CR there may be a LF to come."""
    return max(text.rfind("\n"), text.rfind("\r", 0, max(len(text) - 1, 0))) + 1


def _start_of_last(text: str, lines: int) -> int:
    """Where the last lines begin that are not blank, so many of them; 0 where there are no more."""
    at = len(text)
    for _ in range(lines):
        end = len(text[:at].rstrip("\r\n"))
        at = max(text.rfind("\n", 0, end), text.rfind("\r", 0, end)) + 1
    return at


def _can_be(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


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
        # some codecs cannot show the bytes that they cannot read
        bytes(range(256)).decode(name, "backslashreplace")
    except (LookupError, UnicodeError, ValueError):
        known = False
    if not known:
        raise InvalidRequestError(
            f"encoding {name!r}",
            actor=ACTOR,
            expected="one that Python knows: utf-8, cp1252, latin-1, utf-16",
            reason=Reason.BAD_ARGUMENT,
        )
    return "utf-8" if name.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig") else name.lower()


def is_blank(line: str) -> bool:
    """Whether a line of JSON lines holds nothing: JSON's own white space alone, and not what Unicode calls so."""
    return not line.strip(" \t\r\n")
