"""Literals of a condition: numbers and moments, which take the type of what they are compared with, exactly or not at
all; and what a text says as a value of a type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa

from txn_engine.files.kinds import is_number
from txn_engine.reasons import Reason
from txn_engine.sql.conditions.kinds import BOOLEAN, BYTES, DAY, TEXT, Kind, computed, type_name
from txn_engine.sql.conditions.refusals import Misfit

NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY_NS: Final = 86_400 * 10**9
_CHARS_MAX: Final = 400
_EXPONENT_MAX: Final = 400
_OUTSIDE: Final = "a number outside the range of the type"
_BETWEEN_FLOATS: Final = "a number that lies between two floats"
_OTHER_TEXT: Final = "a text that does not have the form of the type"
_EPOCH: Final = date(1970, 1, 1).toordinal()

_NUMBER: Final = re.compile(r"[+-]?(?=\.?[0-9])[0-9]*(?:\.[0-9]*)?(?:[eE]([+-]?[0-9]{1,9}))?")
_PLAIN_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
_DATE: Final = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_SECONDS: Final = r"(?::(?P<second>[0-5][0-9])(?:\.(?P<fraction>[0-9]{1,9}))?)?"
_CLOCK: Final = rf"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]){_SECONDS}"
_ZONE: Final = r"(?P<zone>Z|(?P<sign>[+-])(?P<zone_hour>[01][0-9])(?::?(?P<zone_minute>[0-5][0-9]))?)?"
_DAY_TEXT: Final = re.compile(_DATE)
_TIME_TEXT: Final = re.compile(_CLOCK)
_MOMENT_TEXT: Final = re.compile(f"{_DATE}(?:[ T]{_CLOCK} ?{_ZONE})?")
_UUID_TEXT: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_BYTES_TEXT: Final = re.compile(r"(?:[\x20-\x5b\x5d-\x7e]|\\x[0-9A-Fa-f]{2})*")
_BYTE: Final = re.compile(r"\\x([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Null:
    """NULL, of whatever type is asked for."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number, as it was written."""

    value: Decimal
    has_exponent: bool

    @classmethod
    def of(cls, text: str) -> Number:
        """The number that a text of SQL is."""
        digits = re.sub(r"(?<=[0-9])_(?=[0-9])", "", text)
        found = _NUMBER.fullmatch(digits) if len(digits) <= _CHARS_MAX else None
        if found is None or abs(int(found[1] or 0)) > _EXPONENT_MAX:
            raise Misfit(f"a number of more than {_CHARS_MAX} digits, or that is not decimal")
        return cls(Decimal(digits), found[1] is not None)

    def joined(self, sign: str, other: Number) -> Number:
        """The sum, difference or product with another number, with all its digits."""
        exactly = Context(prec=_CHARS_MAX, traps=[Inexact])
        join = {"+": exactly.add, "-": exactly.subtract, "*": exactly.multiply}[sign]
        try:
            value = join(self.value, other.value)
        except Inexact:
            value = Decimal(10) ** (_EXPONENT_MAX + 1)
        if abs(value.adjusted()) > _EXPONENT_MAX:
            raise Misfit(f"a number of more than {_CHARS_MAX} digits")
        return Number(value, self.has_exponent or other.has_exponent)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time, a time of day or a length of time, in nanoseconds. kind: the type that it was written with."""

    nanoseconds: int
    kind: Kind


Literal = Null | Number | Moment


def constant(literal: Literal, kind: Kind, *, is_cast: bool = False) -> Any:
    """The literal as a scalar of the kind, with exactly the value that was written. Raises `Misfit`.

    is_cast: the user wrote a conversion to the kind, and so may mean the float next to the number.
    """
    if isinstance(literal, Null):
        return pa.scalar(None, computed(kind))
    if isinstance(literal, Moment):
        return _moment(literal, kind)
    if pa.types.is_integer(kind):
        return _integer(literal, kind)
    if pa.types.is_decimal(kind):
        return _decimal(literal, kind)
    if pa.types.is_floating(kind):
        return _float(literal, kind, is_cast=is_cast)
    raise Misfit("a number", how_to_write(kind), Reason.CONDITION_TYPES_DIFFER)


def _require_all_digits(number: Number) -> None:
    if number.has_exponent:
        raise Misfit(
            "a float (a number with an exponent)",
            "write all digits of the number, as in 9007199254740993: from 2^53 on several numbers are the same float",
            Reason.FLOAT_COMPARISON,
        )


def _integer(number: Number, kind: Kind) -> Any:
    _require_all_digits(number)
    if number.value != number.value.to_integral_value():
        raise Misfit("a number with digits after the point", "write a whole number")
    return _counted(int(number.value), kind)


def _decimal(number: Number, kind: Kind) -> Any:
    _require_all_digits(number)
    count = Fraction(number.value) * Fraction(10) ** kind.scale
    if count.denominator != 1:
        raise Misfit(
            f"a number with more than {kind.scale} digits after the point",
            f"write at most {kind.scale}, or a cast of the column to a type with more",
        )
    if abs(count.numerator) >= 10**kind.precision:
        raise Misfit(_OUTSIDE, "write a number that fits the type")
    sign, digits, _ = Decimal(count.numerator).as_tuple()  # without zeros, of which Arrow takes none too many
    return pa.scalar(Decimal((sign, digits, -kind.scale)), kind)


def _float(number: Number, kind: Kind, *, is_cast: bool) -> Any:
    """A DOUBLE is the one that prints like the number, in as many digits as were written: 0.1 is a double,
    9007199254740993 is none. The smaller floats have to be exactly the number, unless a cast says that the next one
    is meant: engines do not agree on FLOAT columns that are compared with 0.1.
    """
    found = _nearest_float(number.value, computed(kind))
    held = found.as_py()
    is_exact = held not in (float("inf"), float("-inf")) and Fraction(held) == Fraction(number.value)
    may_round = kind == pa.float64() or (is_cast and kind == pa.float32())
    if not is_exact and not (may_round and _prints_as(held, number.value)):
        action = "write the exact number that a record has, in at most 17 digits"
        if kind == pa.float32():
            action = "write the conversion out: CAST(0.1 AS FLOAT), or CAST(the column AS DOUBLE)"
        raise Misfit(_BETWEEN_FLOATS, action)
    if pa.types.is_float16(kind) and pa.scalar(held, pa.float16()).as_py() != held:
        raise Misfit(_BETWEEN_FLOATS, "write the exact number that a record has")
    return found


def _nearest_float(value: Decimal, kind: Kind) -> Any:
    return pa.scalar(str(value)).cast(kind)  # from text Arrow rounds once, and correctly


def _prints_as(held: float, value: Decimal) -> bool:
    """Whether the float is the number when both have as many digits as the number."""
    if held in (float("inf"), float("-inf")):
        return False
    digits = len(value.normalize(Context(prec=_CHARS_MAX)).as_tuple().digits)
    return Context(prec=digits, rounding=ROUND_HALF_EVEN).plus(Decimal(held)) == value


def _counted(number: int, kind: Kind) -> Any:
    """A scalar from its whole number: an integer, or what a time, a date or a duration counts."""
    if pa.types.is_integer(kind):
        bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
        if not low <= number < high:
            raise Misfit(_OUTSIDE, "write a number that fits the type")
        return pa.scalar(number, kind)
    if not -(2**63) <= number < 2**63:
        raise Misfit("a moment outside the range of the type")
    return pa.scalar(number, pa.int64()).cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


def _moment(moment: Moment, kind: Kind) -> Any:
    if not _is_like(moment.kind, kind):
        raise Misfit(
            "an INTERVAL" if pa.types.is_duration(moment.kind) else f"a {type_name(moment.kind)}",
            how_to_write(kind),
            Reason.CONDITION_TYPES_DIFFER,
        )
    count, rest = divmod(moment.nanoseconds, NANOSECONDS[kind.unit])
    if rest:
        raise Misfit(f"a moment that is finer than 1 {kind.unit}", "write one that the type has")
    return _counted(count, kind)


def _is_like(one: Kind, other: Kind) -> bool:
    """Whether two kinds differ by their units alone."""
    if pa.types.is_timestamp(one):
        return bool(pa.types.is_timestamp(other) and one.tz == other.tz)
    return bool(pa.types.is_time(one) and pa.types.is_time(other)) or bool(
        pa.types.is_duration(one) and pa.types.is_duration(other)
    )


def how_to_write(kind: Kind) -> str | None:
    """What to do for a literal of the kind, if there is one."""
    if kind == TEXT:
        return "write a text in single quotes: 'Miller'"
    if kind == DAY:
        return "write DATE '2024-01-31'"
    if kind == BYTES:
        return "write the bytes as x'00FF'"
    if kind == pa.uuid():
        return "write CAST('00000000-0000-0000-0000-000000000000' AS UUID)"
    if kind == BOOLEAN:
        return "write true or false"
    if pa.types.is_timestamp(kind):
        return (
            "write TIMESTAMP '2024-01-31 12:00:00'"
            if kind.tz is None
            else "write TIMESTAMPTZ '2024-01-31 12:00:00+00'"
        )
    if pa.types.is_time(kind):
        return "write TIME '12:00:00'"
    if pa.types.is_duration(kind):
        return "write INTERVAL 5 SECOND"
    return "write a number without quotes" if is_number(kind) else None


# --- what a text says -----------------------------------------------------------------------------------------


def value_of_text(text: str, kind: Kind) -> Any:
    """The value of the kind that a text says, for a cast: a scalar. Raises `Misfit` for any other text."""
    found: Any
    if kind == TEXT:
        return pa.scalar(text, TEXT)
    if kind == BOOLEAN and text in ("true", "false"):
        return pa.scalar(text == "true")
    if kind == DAY and (found := _DAY_TEXT.fullmatch(text)):
        return _counted(_days(found), kind)
    if kind == pa.uuid() and _UUID_TEXT.fullmatch(text):
        return pa.scalar(bytes.fromhex(text.replace("-", "")), pa.binary(16))
    if pa.types.is_floating(kind) and _NOT_FINITE.fullmatch(text):
        return pa.scalar(float(text), kind)
    if (pa.types.is_integer(kind) or pa.types.is_decimal(kind)) and _PLAIN_NUMBER.fullmatch(text):
        return constant(Number.of(text), kind)
    if pa.types.is_floating(kind) and _NUMBER.fullmatch(text):
        return constant(Number.of(text), kind, is_cast=True)
    if pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return constant(moment_of_text(text, kind), kind)
    raise Misfit(_OTHER_TEXT, how_to_write(kind))


def moment_of_text(text: str, kind: Kind) -> Moment:
    """The time of day or point in time that a text says, in ISO's form; without a zone it is in UTC."""
    pattern = _TIME_TEXT if pa.types.is_time(kind) else _MOMENT_TEXT
    found = pattern.fullmatch(text)
    if found is None:
        raise Misfit(_OTHER_TEXT, how_to_write(kind))
    clock = _clock(found)
    if pa.types.is_time(kind):
        return Moment(clock, kind)
    if found["zone"] and kind.tz is None:
        raise Misfit("a text with a time zone", "write TIMESTAMPTZ for a column with a time zone")
    zone = 60 * int(found["zone_hour"] or 0) + int(found["zone_minute"] or 0)
    offset = (-zone if found["sign"] == "-" else zone) * 60 * 10**9
    return Moment(_days(found) * DAY_NS + clock - offset, kind)


def bytes_of_text(text: str) -> Any:
    """The bytes that a text with escapes such as \\xFF is, as DuckDB casts it to BLOB."""
    if not _BYTES_TEXT.fullmatch(text):
        raise Misfit(_OTHER_TEXT, how_to_write(BYTES))
    parts = _BYTE.split(text)  # a text, then two digits, then a text
    held = b"".join(bytes.fromhex(part) if at % 2 else part.encode() for at, part in enumerate(parts))
    return pa.scalar(held, BYTES)


def _days(found: re.Match[str]) -> int:
    try:
        day = date(int(found["year"]), int(found["month"]), int(found["day"]))
    except ValueError:
        raise Misfit("a day that the calendar does not have") from None
    return day.toordinal() - _EPOCH


def _clock(found: re.Match[str]) -> int:
    seconds = 3_600 * int(found["hour"] or 0) + 60 * int(found["minute"] or 0) + int(found["second"] or 0)
    return seconds * 10**9 + int((found["fraction"] or "").ljust(9, "0") or 0)
