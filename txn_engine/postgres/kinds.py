"""Arrow's types and Postgres' beside one another: what holds every value of what, and what is made for what."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

_INTEGERS: Final = {"smallint": 16, "integer": 32, "bigint": 64}
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_VARCHAR = re.compile(r"character varying\((\d+)\)")
_TEXTS: Final = ("text", "character varying", "uuid", "json", "jsonb")
_TIME = re.compile(r"(time|timestamp)(?:\((\d)\))? (with|without) time zone")


def type_for(kind: pa.DataType) -> str | None:
    """The Postgres type that is made for an Arrow type; None where there is none."""
    if pa.types.is_integer(kind):
        bits = kind.bit_width + (0 if pa.types.is_signed_integer(kind) else 1)
        return next((name for name, most in _INTEGERS.items() if bits <= most), "numeric(20,0)")
    if pa.types.is_decimal(kind):
        return f"numeric({max(kind.precision, kind.scale)},{kind.scale})"
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        return "real"
    if pa.types.is_float64(kind):
        return "double precision"
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    named = {
        "boolean": pa.types.is_boolean,
        "date": pa.types.is_date,
        "time without time zone": pa.types.is_time,
        "text": is_text,
        "bytea": is_bytes,
    }
    return next((name for name, is_it in named.items() if is_it(kind)), None)


def most_chars(found: str) -> int | None:
    """Of a text in a column of this type; the server cuts spaces off that are above it, without a word."""
    match = _VARCHAR.fullmatch(found)
    return None if match is None else int(match[1])


def holds(wanted: pa.DataType, found: str) -> bool:
    """Whether a column of the Postgres type holds every value of the Arrow type as it is. Of texts with a limit, and of
    times finer than microseconds, the values decide; the server, or the cast, refuses those that do not fit.
    """
    if pa.types.is_integer(wanted) or pa.types.is_decimal(wanted):
        return _holds_number(wanted, found)
    if pa.types.is_float32(wanted):
        return found == "real"  # the shortest text of a float32 is another number as a double
    if is_text(wanted):
        return found in ("text", "character varying") or _VARCHAR.fullmatch(found) is not None
    if pa.types.is_timestamp(wanted) or pa.types.is_time(wanted):
        return _holds_time(wanted, found)
    return found == type_for(wanted)


def reads(wanted: pa.DataType, found: str) -> bool:
    """Whether values of the Postgres type can come into a column of the Arrow type; of numbers without limits, and of
    times, the values decide, each of which is taken exactly or refused.
    """
    if pa.types.is_decimal(wanted) or pa.types.is_integer(wanted):
        return found in _INTEGERS or found == "numeric" or _NUMERIC.fullmatch(found) is not None
    if pa.types.is_floating(wanted):
        return found == type_for(wanted)
    if is_text(wanted):
        return found in _TEXTS or _VARCHAR.fullmatch(found) is not None
    if pa.types.is_timestamp(wanted) or pa.types.is_time(wanted):
        match = _TIME.fullmatch(found)
        zoned = pa.types.is_timestamp(wanted) and wanted.tz is not None
        return (
            match is not None
            and match[1] == ("timestamp" if pa.types.is_timestamp(wanted) else "time")
            and (match[3] == "with") == zoned
        )
    return found == type_for(wanted)


def read_as(wanted: pa.DataType, found: str) -> pa.DataType | None:
    """As what Arrow's reader of csv takes what the server writes of a Postgres type, exactly or not at all, for a
    column of the Arrow type; None where that reader would be wrong, or knows no such type: the texts are judged then.
    """
    if pa.types.is_integer(wanted):
        return wanted if found in _INTEGERS else None
    if pa.types.is_decimal128(wanted):
        limits = _NUMERIC.fullmatch(found)
        if limits is None:
            return None  # of more than 38 digits behind the point it makes zero
        precision, scale = int(limits[1]), int(limits[2])
        is_kept = 0 <= scale <= wanted.scale and scale <= precision
        return wanted if is_kept and precision - scale <= wanted.precision - wanted.scale else None
    is_moment = pa.types.is_timestamp(wanted) or pa.types.is_date32(wanted)
    if is_moment or pa.types.is_float32(wanted) or pa.types.is_float64(wanted) or pa.types.is_boolean(wanted):
        return wanted
    return wanted if pa.types.is_string(wanted) or pa.types.is_large_string(wanted) else None


def _holds_number(wanted: Any, found: str) -> bool:
    scale = wanted.scale if pa.types.is_decimal(wanted) else 0
    if found == "numeric":
        return True
    if limits := _NUMERIC.fullmatch(found):
        whole = wanted.precision - scale if pa.types.is_decimal(wanted) else _digits(wanted)
        return int(limits[2]) >= scale and int(limits[1]) - int(limits[2]) >= whole
    if found not in _INTEGERS or not pa.types.is_integer(wanted):
        return False
    return wanted.bit_width + (0 if pa.types.is_signed_integer(wanted) else 1) <= _INTEGERS[found]


def _digits(wanted: Any) -> int:
    return len(str(2 ** (wanted.bit_width - (1 if pa.types.is_signed_integer(wanted) else 0)) - 1))


def _holds_time(wanted: Any, found: str) -> bool:
    match = _TIME.fullmatch(found)
    if match is None:
        return False
    zoned = pa.types.is_timestamp(wanted) and wanted.tz is not None
    fine = {"s": 0, "ms": 3, "us": 6, "ns": 6}[wanted.unit]
    return (
        match[1] == ("timestamp" if pa.types.is_timestamp(wanted) else "time")
        and (match[3] == "with") == zoned
        and int(match[2] or 6) >= fine
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is one of texts."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Whether the type is one of bytes."""
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
