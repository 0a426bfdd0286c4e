"""Text as dates and timestamps: ISO 8601, or a format that is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import time
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.calendar import ERA_DAYS, FIRST_DAY, LAST_DAY
from txn_engine.files.date_formats import parsed
from txn_engine.files.kinds import calendar_of, unit_and_zone
from txn_engine.files.numbers import require

_YEAR: Final = "^[0-9]{4}-"
_SIGNED_YEAR: Final = re.compile("(?P<year>[+-][0-9]{4,12})(?P<rest>-.*)")
_FRACTION: Final = r"^(?P<whole>[^.]*?)(?:\.(?P<fraction>[0-9]{1,9}))?(?P<zone>Z|[+-][0-9:]+)?$"
_SECOND: Final = 10**9


def moments(texts: pa.Array[Any], kind: Any, date_format: str | None) -> pa.Array[Any]:
    """The texts as dates or timestamps of the type. ValueError when any does not fit; it does not say which."""
    if date_format is not None:
        parse = partial(_moment, date_format=date_format, kind=kind)
        return _in_the_calendar(
            _by_distinct(texts, lambda some: pa.array([parse(text) for text in some.to_pylist()], kind))
        )
    signed = begin_with_a_sign(texts)
    if signed.any():
        written: Any = texts.filter(signed)
        beyond: Any = pa.array([_beyond(each, kind) for each in written.to_pylist()], _count_of(kind))
        plain = moments(pc.if_else(signed, pa.scalar(None, texts.type), texts), kind, None)
        found: pa.Array[Any] = pc.replace_with_mask(plain, signed, beyond.cast(kind))
        return found
    if pa.types.is_date(kind):
        return _in_the_calendar(_by_distinct(texts, lambda some: _of_iso_8601(some, kind)))
    return _in_the_calendar(_of_iso_8601(texts, kind))


def has_format(text: str | None, date_format: str, kind: pa.DataType) -> bool:
    """Whether a text is a date or timestamp of the type in that format; a null is."""
    try:
        return text is None or _moment(text, date_format=date_format, kind=kind) is not None
    except ValueError:
        return False


def begin_with_a_sign(texts: Any) -> Any:
    """Which texts do, as years outside of the calendar, as a mask."""
    return mask(pc.match_substring_regex(texts, "^[+-]"))


def mask(flags: Any) -> Any:
    """The flags, with none for a null."""
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)


def _by_distinct(texts: pa.Array[Any], convert: Callable[[Any], pa.Array[Any]]) -> pa.Array[Any]:
    """Convert each distinct text once: files repeat their dates."""
    encoded: Any = texts.dictionary_encode()
    return convert(encoded.dictionary).take(encoded.indices)


def _of_iso_8601(texts: Any, kind: Any) -> pa.Array[Any]:
    require(texts, _YEAR)
    try:
        found: pa.Array[Any] = texts.cast(kind)
    except pa.ArrowInvalid:
        if pa.types.is_date(kind) or kind.unit == "us":
            raise
        if kind.unit == "ns":
            return _nanoseconds(texts, kind)
        found = texts.cast(pa.timestamp("us", kind.tz)).cast(kind)  # zeros behind the column's last digit
    return found


def _nanoseconds(texts: Any, kind: Any) -> pa.Array[Any]:
    """Moments of the whole range. Arrow's cast takes none in its first second, which begins below it."""
    parts: Any = pc.extract_regex(texts, _FRACTION)
    if parts.null_count > texts.null_count:
        raise pa.ArrowInvalid("a fraction of more than nine digits")
    whole, fraction, zone = (pc.struct_field(parts, name) for name in ("whole", "fraction", "zone"))
    seconds: Any = (
        pc.binary_join_element_wise(whole, zone, "").cast(pa.timestamp("s", kind.tz)).cast(pa.int64())
    )
    behind: Any = pc.utf8_rpad(fraction, 9, "0").cast(pa.int64())
    # Before 1970 from the next second back, for that one is inside the range.
    is_before: Any = pc.less(seconds, pa.scalar(0))
    whole_seconds: Any = pc.if_else(is_before, pc.add(seconds, pa.scalar(1)), seconds)
    rest: Any = pc.if_else(is_before, pc.subtract(behind, pa.scalar(_SECOND)), behind)
    nanos: Any = pc.add_checked(pc.multiply_checked(whole_seconds, pa.scalar(_SECOND)), rest)
    found: pa.Array[Any] = nanos.cast(kind)
    return found


def _in_the_calendar(moments: Any) -> pa.Array[Any]:
    """The moments. ValueError for one outside of the years 1 to 9999, in UTC where it has a zone."""
    kind = moments.type
    calendar = calendar_of(kind)
    ends = pc.min_max(moments.cast(_count_of(kind)))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is not None and not (first in calendar and last in calendar):
        raise ValueError("a year that the calendar does not have")
    found: pa.Array[Any] = moments
    return found


def _count_of(kind: Any) -> Any:
    """The type of the numbers that dates or timestamps of the type are."""
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _beyond(text: str, kind: Any) -> int:
    """The number of a day or moment outside of the years 1 to 9999, as ISO 8601 and `value_text` write it: the year has
    a sign. The calendar comes again every 400 years.
    """
    parts = _SIGNED_YEAR.fullmatch(text)
    year = 0 if parts is None else int(parts["year"])
    if parts is None or 1 <= year <= 9_999 or text.startswith("-0000-"):
        raise ValueError("no year with a sign")
    alike = pa.array([f"{year % 400 + 2_000}{parts['rest']}"])
    count = _of_iso_8601(alike, kind).cast(_count_of(kind))[0].as_py()
    span = len(calendar_of(kind)) // (LAST_DAY + 1 - FIRST_DAY) * ERA_DAYS
    found: int = count + (year - year % 400 - 2_000) // 400 * span
    if not -(2**63) <= found < 2**63:
        raise ValueError("a moment that the type does not have")
    return found


def _moment(text: str, *, date_format: str, kind: pa.DataType) -> object:
    found = parsed(text, date_format)
    if pa.types.is_date(kind):
        if found.timetz() != time():
            raise ValueError("a time of day, in a column of days")
        return found.date()
    unit, zone = unit_and_zone(kind)
    if bool(zone) != (found.tzinfo is not None):
        raise ValueError("a zone where there is none, or none where one is needed")
    step = {"s": 1_000_000, "ms": 1_000}.get(unit, 1)
    if found.microsecond % step:
        raise ValueError("finer than the column")
    return found
