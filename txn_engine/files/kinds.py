"""What kind of Arrow type a column has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from txn_engine.calendar import DAY_SECONDS, FIRST_DAY, LAST_DAY, PER_SECOND
from txn_engine.reasons import Reason


def is_string(kind: pa.DataType) -> bool:
    """Text, in any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Bytes, in any layout."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """An integer, a decimal or a float."""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def is_nested(kind: pa.DataType) -> bool:
    """A list, a struct or a map."""
    return bool(pa.types.is_nested(kind))


def unit_and_zone(kind: Any) -> tuple[str, str | None]:
    """Of a timestamp type."""
    return kind.unit, kind.tz


def has_days(schema: pa.Schema) -> bool:
    """Whether there are columns of dates or times."""
    return any(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in schema.types)


def calendar_of(kind: Any) -> range:
    """Of a date's or timestamp's type: the numbers that are days, or moments, of the years 1 to 9999."""
    if pa.types.is_date32(kind):
        return range(FIRST_DAY, LAST_DAY + 1)
    per_day = DAY_SECONDS * PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit]
    return range(FIRST_DAY * per_day, (LAST_DAY + 1) * per_day)


def misfit_reason(kind: pa.DataType) -> Reason:
    """The reason of a value that does not fit a column of this type."""
    for is_of, reason in _MISFIT_REASONS:
        if is_of(kind):
            return reason
    return Reason.BAD_VALUE


_MISFIT_REASONS: Final[tuple[tuple[Callable[[pa.DataType], bool], Reason], ...]] = (
    (pa.types.is_integer, Reason.BAD_INTEGER),
    (pa.types.is_decimal, Reason.BAD_DECIMAL),
    (pa.types.is_floating, Reason.BAD_FLOAT),
    (pa.types.is_boolean, Reason.BAD_BOOLEAN),
    (pa.types.is_date, Reason.BAD_DATE),
    (pa.types.is_time, Reason.BAD_TIME),
    (pa.types.is_timestamp, Reason.BAD_DATETIME),
    (is_string, Reason.BAD_STRING),
    (is_binary, Reason.BAD_BINARY),
    (is_nested, Reason.BAD_NESTED_VALUE),
)
