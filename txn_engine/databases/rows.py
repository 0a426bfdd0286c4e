"""Rows of a query, judged: those that do not fit their topic are named, or handed on as dead letters."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

import pyarrow as pa

from txn_engine.errors import InvalidRecordError
from txn_engine.files.layout import BadRow, BadRows, Sizes
from txn_engine.reasons import Reason


class NoText(bytes):
    """Of a column of texts, bytes that are none."""

    __slots__ = ()

    @classmethod
    def unless_text(cls, data: bytes, codec: str = "utf-8") -> str | NoText:
        """The text, where the bytes are one."""
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            return cls(data)

    @property
    def in_letter(self) -> dict[str, str]:
        """As a dead letter has them."""
        return {"not_utf8": b64encode(self).decode()}


@dataclass(frozen=True, slots=True)
class Rows:
    """What the rows are judged as: those of a query."""

    name: str
    schema: pa.Schema
    actor: str
    bad_rows: BadRows | None
    sizes: Sizes | None = None

    def name_in_file(self, column: str) -> str:
        """Its own."""
        return column

    def refused(
        self,
        seen: str,
        *,
        reason: Reason,
        expected: str,
        value: str | None = None,
        line: int | None = None,
        unit: str | None = None,
    ) -> InvalidRecordError:
        """The error for a row, or for all of them."""
        return InvalidRecordError(
            seen,
            actor=self.actor,
            place=self.name if line is None else f"{unit or 'row'} {line} of {self.name}",
            expected=expected,
            action="mend the row, or cast it in the query; nothing of this load is in the topic",
            reason=reason,
            value=value,
        )

    def not_text(self, column: str, line: int, expected: str = "a text") -> InvalidRecordError:
        """The error for bytes that are no text in their encoding, or have no UTF-8."""
        return self.refused(
            f"{column} is a text that is not UTF-8", reason=Reason.BAD_ENCODING, expected=expected, line=line
        )

    def reject(self, line: int, error: InvalidRecordError, *, columns: str | None = None) -> None:
        """Taken, or raised where nobody takes it."""
        if self.bad_rows is None:
            raise error
        self.bad_rows.add(BadRow(line, error, columns=columns))
