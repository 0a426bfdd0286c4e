"""How a topic reads the empty cells of its input file.

Programs differ. A load takes a cell without quotes for null and one in quotes for the empty text; Python's csv gives
the empty text for both, pandas null for both. A topic may follow any of them, but all cells of a column alike.

In the view of the file a cell without quotes is null and one in quotes is the empty text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from txn_engine.held import held_type

_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string)
_BYTES: Final = (pa.types.is_binary, pa.types.is_large_binary)


class Reading(Enum):
    """What the empty cells of a column are."""

    BY_QUOTES = "{column}"
    EMPTY_TEXT = "coalesce({column}, {nothing})"
    NULL = "nullif({column}, {nothing})"

    def of(self, column: str, kind: pa.DataType) -> str:
        """A column of the file, in SQL, as this reading has it."""
        return self.value.format(column=column, nothing=_nothing(kind))


def may_be_empty(kind: Any) -> bool:
    """Whether the empty text is a value of the type, and another one than null."""
    return any(is_such(held_type(kind)) for is_such in (*_TEXTS, *_BYTES))


def empty_cells(columns: Mapping[str, pa.DataType]) -> str:
    """SQL that counts the empty cells of these columns (in quotes of the dialect), one number for each in order."""
    return ", ".join(
        f"count(CASE WHEN {column} IS NULL OR {column} = {_nothing(kind)} THEN 1 END) AS c{at}"
        for at, (column, kind) in enumerate(columns.items())
    )


def contradictions(columns: Mapping[str, pa.DataType]) -> str:
    """SQL over rows `i` of the file and their records `r`: for each column, how many contradict each reading."""
    counts = []
    for at, (column, kind) in enumerate(columns.items()):
        nothing = _nothing(kind)
        unquoted, quoted = f"i.{column} IS NULL", f"i.{column} = {nothing}"
        null, empty = f"r.{column} IS NULL", f"r.{column} = {nothing}"
        for reading, fault in (
            (Reading.BY_QUOTES, f"({unquoted} AND {empty}) OR ({quoted} AND {null})"),
            (Reading.EMPTY_TEXT, f"({unquoted} OR {quoted}) AND {null}"),
            (Reading.NULL, f"({unquoted} OR {quoted}) AND {empty}"),
        ):
            counts.append(f"count(CASE WHEN {fault} THEN 1 END) AS {reading.name}_{at}")
    return ", ".join(counts)


def least_contradicted(columns: Sequence[str], found: Mapping[str, int]) -> Mapping[str, Reading]:
    """The reading of each column, from what `contradictions` counted; a load's where nothing else fits better."""
    return {
        column: min(Reading, key=lambda reading: found[f"{reading.name}_{at}"])
        for at, column in enumerate(columns)
    }


def _nothing(kind: pa.DataType) -> str:
    return "CAST('' AS BINARY)" if any(is_such(held_type(kind)) for is_such in _BYTES) else "''"
