"""Blocks of delimited text that pyarrow may cut into fields: it cuts them as Python's csv does, and much faster.

Which blocks those are is decided here, and no other goes to pyarrow: text of the encoding in which every quote begins
or ends a field, or is one of two inside of one, and every line ends in LF or CRLF. The values stay texts.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.files.text import BYTE_ORDER_MARK

if TYPE_CHECKING:
    import pyarrow.csv as pa_csv

_LF, _CR = 10, 13
_CHARS_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Uncut:
    """A row that has more or fewer fields than there are columns: its number in the block, from 0, and how many."""

    row: int
    fields: int


@dataclass(frozen=True, slots=True)
class Fields:
    """A column of a file: the text of each field, and which of these texts are words for null that stand in quotes.

    quoted: None where there are none.
    """

    texts: pa.Array[Any]
    quoted: pa.Array[Any] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: slice) -> Fields:
        return Fields(self.texts[rows], None if self.quoted is None else self.quoted[rows])

    def take(self, rows: Any) -> Fields:
        """The fields of these rows."""
        return Fields(self.texts.take(rows), None if self.quoted is None else self.quoted.take(rows))


@dataclass(frozen=True)
class Block:
    """Whole rows of a file. chars, lines: so many it has of the text, blank lines too.

    columns: those rows that have as many fields as there are columns. uncut: the others. A blank line is a row only
    where there is one column.
    """

    data: bytes
    first_line: int
    chars: int
    lines: int
    quotes: Any
    columns: Sequence[Fields]
    uncut: Sequence[Uncut]

    @property
    def rows(self) -> int:
        """How many are cut."""
        return len(self.columns[0])

    @cached_property
    def numbers(self) -> Any:
        """Of each row that is cut, its number in the block."""
        every = np.arange(self.rows + len(self.uncut))
        return np.delete(every, [each.row for each in self.uncut]) if self.uncut else every

    def line(self, row: int) -> int:
        """The line that a row begins on."""
        return self.first_line + int(self._first_lines[row])

    def text(self, row: int) -> str:
        """A row with its line ends, as it stands."""
        return self.data[self._starts[row] : self._ends[row]].decode()

    @cached_property
    def _places(self) -> tuple[Any, Any, Any]:
        """For each row: its first byte, the byte after its last, and the lines of the block before it."""
        data = np.frombuffer(self.data, np.uint8)
        feeds = np.flatnonzero(data == _LF)
        of_rows = np.flatnonzero(np.searchsorted(self.quotes, feeds) % 2 == 0)
        ends, behind = feeds[of_rows] + 1, of_rows + 1
        if not len(ends) or ends[-1] < len(data):
            ends, behind = np.append(ends, len(data)), np.append(behind, 0)
        starts, lines = np.append(0, ends[:-1]), np.append(0, behind[:-1])
        if len(self.columns) == 1:
            return starts, ends, lines
        size = ends - starts
        blank = ((size == 1) & (data[starts] == _LF)) | ((size == 2) & (data[starts] == _CR))
        return starts[~blank], ends[~blank], lines[~blank]

    @property
    def _starts(self) -> Any:
        return self._places[0]

    @property
    def _ends(self) -> Any:
        return self._places[1]

    @property
    def _first_lines(self) -> Any:
        return self._places[2]


class HasLines(Protocol):
    """A block that knows its lines."""

    def line(self, row: int) -> int:
        """The line that a row begins on."""


@dataclass(frozen=True, slots=True)
class Lines(Sequence[int]):
    """The lines that some rows of a block begin on, looked for where they are asked for."""

    block: HasLines
    numbers: Any

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        return self.block.line(int(self.numbers[index]))


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts blocks into so many columns. null_words: texts that mean null where they stand without quotes."""

    delimiter: str
    quote: str
    columns: int
    null_words: Sequence[str] = ()

    @property
    def is_of_use(self) -> bool:
        """Whether pyarrow knows these marks: one byte each."""
        marks = (self.delimiter, self.quote or '"')
        return self.columns > 0 and all(mark.isascii() and mark not in "\0\r\n" for mark in marks)

    def cut(self, text: str, first_line: int) -> Block | None:
        """The whole rows that a text begins with; None where they have to be read by Python's csv.

        text: from a row's beginning to the end of a line, or of the file.
        """
        data = encoded(text)
        if data is None:
            return None
        quotes = self._quotes(data)
        if quotes is None:
            return None
        chars = len(text)
        if len(quotes) % 2:  # the last row goes on behind this block
            data = data[: _whole(data, quotes)]
            chars = len(data.decode())
            quotes = quotes[quotes < len(data)]
        if not data:
            return None
        return self._parsed(data, first_line, chars, quotes)

    def _quotes(self, data: bytes) -> Any:
        """Where the quotes are; None where one of them stands in a field that it does not begin or end."""
        if not self.quote or self.quote.encode() not in data:
            return np.empty(0, np.int64)
        found = np.frombuffer(data, np.uint8)
        at = np.flatnonzero(found == ord(self.quote))
        opening, closing = at[0::2], at[1::2]
        outside = np.zeros(256, bool)
        outside[[ord(self.delimiter), _LF, _CR]] = True
        outside[ord(self.quote)] = True  # of two inside of a field
        before = found[opening[opening > 0] - 1]
        behind = found[closing[closing < len(data) - 1] + 1]
        return at if outside[before].all() and outside[behind].all() else None

    def _parsed(self, data: bytes, first_line: int, chars: int, quotes: Any) -> Block | None:
        uncut: list[Uncut] = []

        def other(row: pa_csv.InvalidRow) -> Literal["skip", "error"]:
            uncut.append(Uncut((row.number or 0) - 1, row.actual_columns))
            return "skip"

        has_quotes = len(quotes) > 0
        texts = self._texts(data, other, has_quotes=has_quotes)
        if texts is None or any(each.row < 0 for each in uncut):
            return None
        columns = [Fields(each) for each in texts]
        if has_quotes and self._may_quote_a_word(data):
            known = self._texts(data, lambda _: "skip", has_quotes=True, null_words=self.null_words)
            if known is None:
                return None
            words = pa.array(self.null_words, pa.string())
            columns = [
                Fields(each, pc.and_(pc.is_in(each, value_set=words), pc.is_valid(again)))
                for each, again in zip(texts, known, strict=True)
            ]
        return Block(data, first_line, chars, data.count(b"\n"), quotes, columns, uncut)

    def _may_quote_a_word(self, data: bytes) -> bool:
        """Whether a word for null may stand in quotes somewhere."""
        mark = self.quote
        return any(f"{mark}{word.replace(mark, 2 * mark)}{mark}".encode() in data for word in self.null_words)

    def _texts(
        self,
        data: bytes,
        other: Callable[[pa_csv.InvalidRow], Literal["skip", "error"]],
        *,
        has_quotes: bool,
        null_words: Sequence[str] = (),
    ) -> list[pa.Array[Any]] | None:
        """The columns as texts, null where a word for null stands without quotes; None where pyarrow cannot say."""
        import pyarrow.csv as pa_csv

        names = [str(number) for number in range(self.columns)]
        try:
            table = pa_csv.read_csv(
                io.BytesIO(data),
                pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                pa_csv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char=self.quote if has_quotes else False,
                    double_quote=True,
                    escape_char=False,
                    newlines_in_values=has_quotes,
                    ignore_empty_lines=self.columns > 1,
                    invalid_row_handler=other,
                ),
                pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=list(null_words),
                    strings_can_be_null=bool(null_words),
                    quoted_strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [column.combine_chunks() for column in table.columns]


def encoded(text: str) -> bytes | None:
    """The text as UTF-8; None where there is something in it that pyarrow takes for something else."""
    if text.startswith(BYTE_ORDER_MARK) or len(text) > _CHARS_MAX:
        return None
    if "\r" in text and text.count("\r") != text.count("\r\n"):
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:  # bytes that the encoding has not
        return None


def _whole(data: bytes, quotes: Any) -> int:
    """How many bytes are whole rows, where the last one is not closed."""
    feeds = np.flatnonzero(np.frombuffer(data, np.uint8)[: quotes[-1]] == _LF)
    ends = feeds[np.searchsorted(quotes, feeds) % 2 == 0]
    return int(ends[-1]) + 1 if len(ends) else 0


def rows_among(columns: Sequence[Fields], texts: Sequence[str]) -> Any:
    """Which rows have nothing but these texts, by their indexes."""
    among = pa.array(texts, pa.string())
    found = np.flatnonzero(_are_in(columns[0].texts, among))
    for column in columns[1:]:
        if len(found):
            places: pa.Array[Any] = pa.array(found, pa.int64())
            found = found[_are_in(column.texts.take(places), among)]
    return found


def _are_in(texts: pa.Array[Any], among: pa.Array[Any]) -> Any:
    return pc.is_in(texts, value_set=among).to_numpy(zero_copy_only=False)
