"""What kind of Arrow type a column has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txn_engine.calendar import DAY_SECONDS, FIRST_DAY, LAST_DAY, PER_SECOND


def is_string(kind: pa.DataType) -> bool:
    """Text, in any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Bytes, in any layout."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def is_nested(kind: pa.DataType) -> bool:
    """A list, a struct or a map."""
    return bool(pa.types.is_nested(kind))


def unit_and_zone(kind: Any) -> tuple[str, str | None]:
    """Of a timestamp type."""
    return kind.unit, kind.tz


def calendar_of(kind: Any) -> range:
    """Of a date's or timestamp's type: the numbers that are days, or moments, of the years 1 to 9999."""
    if pa.types.is_date32(kind):
        return range(FIRST_DAY, LAST_DAY + 1)
    per_day = DAY_SECONDS * PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit]
    return range(FIRST_DAY * per_day, (LAST_DAY + 1) * per_day)
