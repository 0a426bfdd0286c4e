"""How delimited text is cut into fields."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from txn_engine.errors import InvalidRequestError
from txn_engine.files.layout import ACTOR, Layout
from txn_engine.files.source import plain_suffix
from txn_engine.reasons import Reason
from txn_engine.row_limits import ROW_CHARS_MAX


class QuotedWord(str):
    """A field in quotes whose text would mean null without them."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is cut into fields, and which of them mean null where they stand without quotes.

    delimiter: None for the one of the file's ending. quote: "" where fields are never quoted. header: whether the first
    line names the columns; else their names, or none for the schema's own in their order. skip_footer: how many lines
    at the file's end are no rows, blank ones not counted.
    """

    delimiter: str | None = None
    quote: str = '"'
    header: bool | Sequence[str] = True
    null_values: Sequence[str] = ("",)
    skip_footer: int = 0

    def mark(self, layout: Layout) -> str:
        """What stands between two fields."""
        name = str(layout.source) if isinstance(layout.source, PurePath) else ""
        return self.delimiter or ("\t" if plain_suffix(name) == ".tsv" else ",")

    def check(self, layout: Layout) -> None:
        """Raise `InvalidRequestError` for marks that cannot be told apart."""
        mark = self.mark(layout)
        if len(mark) != 1 or mark in "\r\n" or mark == self.quote or (mark == '"' and self.quote):
            raise InvalidRequestError(
                f"delimiter {self.delimiter!r}",
                actor=ACTOR,
                expected="one character, no quote and no line end",
                reason=Reason.BAD_ARGUMENT,
            )
        if len(self.quote) > 1 or self.quote in ("\r", "\n"):
            raise InvalidRequestError(
                f"quote {self.quote!r}",
                actor=ACTOR,
                expected="one character, or none: no field is quoted",
                reason=Reason.BAD_ARGUMENT,
            )

    def reader_of(self, layout: Layout, lines: Iterator[str]) -> Any:
        """The lines as rows of fields. Raises as `check` does."""
        self.check(layout)
        mark = self.mark(layout)
        csv.field_size_limit(max(csv.field_size_limit(), ROW_CHARS_MAX + 1))
        if not self.quote:
            return csv.reader(lines, delimiter=mark, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(lines, delimiter=mark, quotechar=self.quote, strict=True)

    def columns_of(self, layout: Layout) -> int | None:
        """How many columns the file has; None where its header says so."""
        if self.header is True:
            return None
        return len(layout.schema if self.header is False else self.header)

    def word_marker(self, layout: Layout) -> Callable[[list[str], Sequence[str]], list[str]]:
        """What makes a `QuotedWord` of each field of a row, with its lines, that is one: Python's csv does not say."""
        if not self.quote or not self.null_values:
            return lambda row, _lines: row
        quote, mark = self.quote, re.escape(self.mark(layout))
        mark_of_quote = re.escape(quote)
        inside = f"(?:[^{mark_of_quote}]++|{mark_of_quote * 2})*+"
        field = re.compile(
            rf"({mark_of_quote}{inside}{mark_of_quote})?[^{mark}\r\n]*+(?:{mark}|\r\n|\r|\n|$)"
        )
        words = frozenset(self.null_values)

        def marked(row: list[str], lines: Sequence[str]) -> list[str]:
            if words.isdisjoint(row) or not any(quote in line for line in lines):
                return row
            fields = zip(
                row, field.finditer("".join(lines)), strict=False
            )  # the end of a row matches once more
            return [QuotedWord(text) if match[1] and text in words else text for text, match in fields]

        return marked
