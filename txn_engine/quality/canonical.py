"""One way to write a value down, so that a cell of a text file and a value of a topic can be compared exactly.

Nothing and the empty string are written alike: a text file cannot tell them apart.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.quality.money import text_of_unscaled, unscaled_of_text

_INTEGER = re.compile(r"[+-]?\d+")


def column_text(column: Any) -> Any:
    """A topic's column as text, value by value; no nulls in the answer."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or _is_text(kind):
        return pc.fill_null(pc.cast(column, pa.string()), "")
    encoded = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(encoded, pa.ChunkedArray):  # no rows: combine_chunks may keep it chunked
        encoded = pa.array([], kind)
    encoded = encoded.dictionary_encode()
    words = pa.array([_value_text(value) for value in encoded.dictionary.to_pylist()], pa.string())
    taken: Any = words.take(encoded.indices)
    return pc.fill_null(taken, "")


def cells_text(cells: Sequence[str], kind: pa.DataType, date_format: str) -> Any:
    """A text file's column, written as `column_text` writes the topic's column of that type.

    A cell that the type cannot hold is left as it is, so that it differs from whatever the topic holds.
    """
    write = _cell_writer(kind, date_format)
    known: dict[str, str] = {}
    for cell in cells:
        if cell not in known:
            known[cell] = write(cell) if cell else ""
    return pa.array([known[cell] for cell in cells], pa.string())


def row_text(columns: Sequence[tuple[str, Any]]) -> Any:
    """Rows as `name=value | name=value`; a bar or a backslash in a value is written with a backslash before it."""
    parts: list[Any] = []
    for name, texts in columns:
        escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "|", "\\|")
        parts.append(pc.binary_join_element_wise(f"{name}=", escaped, ""))
    return pc.binary_join_element_wise(*parts, " | ")


def row_differences(expected: str, seen: str) -> list[tuple[str, str, str]]:
    """Where two texts of `row_text` differ: (column, expected, seen)."""
    pairs = zip(_split_row(expected), _split_row(seen), strict=False)
    return [(name, left, right) for (name, left), (_, right) in pairs if left != right]


def _split_row(text: str) -> list[tuple[str, str]]:
    parts = (part.partition("=") for part in re.split(r"(?<!\\) \| ", text))
    return [(name, value) for name, _, value in parts]


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _cell_writer(kind: pa.DataType, date_format: str) -> Callable[[str], str]:
    if pa.types.is_integer(kind):
        return lambda cell: str(int(cell)) if _INTEGER.fullmatch(cell) else cell
    if pa.types.is_decimal(kind):
        return lambda cell: _decimal_text(cell, max(int(kind.scale), 0))
    if pa.types.is_floating(kind):
        return _float_text
    if pa.types.is_boolean(kind):
        return str.lower
    if pa.types.is_date(kind):
        return lambda cell: _date_text(cell, date_format, time=False)
    if pa.types.is_timestamp(kind):
        return lambda cell: _date_text(cell, date_format, time=True)
    return lambda cell: cell


def _decimal_text(cell: str, scale: int) -> str:
    number = unscaled_of_text(cell, scale)
    return cell if number is None else text_of_unscaled(number, scale)


def _float_text(cell: str) -> str:
    try:
        return repr(float(cell))
    except ValueError:
        return cell


def _date_text(cell: str, date_format: str, *, time: bool) -> str:
    try:
        moment = dt.datetime.strptime(cell, date_format).replace(tzinfo=dt.UTC)
    except ValueError:
        try:
            moment = dt.datetime.fromisoformat(cell)
        except ValueError:
            return cell
    return _value_text(moment if time else moment.date())


def _value_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        moment = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
        return moment.isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return repr(value) if isinstance(value, float) else str(value)
