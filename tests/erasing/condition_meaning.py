"""What a condition means, evaluated naively: each value is the exact number, text or moment that it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from tests.erasing.condition_values import DAY_NS, FIRST_DAY, LAST_DAY, NANOSECONDS, decimal_of

_EPOCH = date(1970, 1, 1).toordinal()


class NoAnswerError(Exception):
    """A cast or a sum has no exact result for a record."""


def exact(value: Any) -> Any:
    """A value by which Python orders it as SQL does: NaN is itself and after all numbers, and numbers are exact."""
    if isinstance(value, float):
        if math.isnan(value):
            return (1, 0)
        return (0, value) if math.isinf(value) else (0, Fraction(value))
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        return (0, Fraction(value))
    return value


SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    "==": lambda one, other: one == other,
    "<>": lambda one, other: one != other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def compared(sign: str, one: Any, other: Any) -> bool | None:
    """A comparison, which is null if a side is."""
    if one is None or other is None:
        return None
    left, right = exact(one), exact(other)
    if type(left) is not type(right):
        raise NoAnswerError  # of no type that both have: only a refusal is right
    return SIGNS[sign](left, right)


def both(values: Sequence[bool | None]) -> bool | None:
    """AND."""
    if any(each is False for each in values):
        return False
    return None if any(each is None for each in values) else True


def either(values: Sequence[bool | None]) -> bool | None:
    """OR."""
    return negated(both([negated(each) for each in values]))


def negated(value: bool | None) -> bool | None:
    """NOT."""
    return None if value is None else not value


def is_like(text: str, pattern: Sequence[str]) -> bool:
    """LIKE, of a pattern in which ANY is any text, ONE is one character, and all else is itself."""
    reached = {0}
    for each in pattern:
        if each == "ANY":
            reached = set(range(min(reached), len(text) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(text) and each in ("ONE", text[at])}
    return len(text) in reached


def converted(value: Any, source: tuple[Any, ...], target: tuple[Any, ...]) -> Any:
    """The same value in another kind. Raises `NoAnswerError` where that does not have it."""
    if value is None or source == target:
        return value
    if target == ("text",):
        return as_text(value, source)
    if source == ("text",):
        return _of_text(value, target)
    if target[0] in ("int", "decimal", "float"):
        return _as_number(value, source, target)
    if target == ("date",):
        day: int = value // DAY_NS
        return _within(day, -(2**31), 2**31)
    moment = value * DAY_NS if source == ("date",) else value
    if moment % NANOSECONDS[target[1]]:
        raise NoAnswerError
    _within(moment // NANOSECONDS[target[1]], -(2**63), 2**63)
    return moment


def _within(value: int, low: int, high: int) -> int:
    if not low <= value < high:
        raise NoAnswerError
    return value


def as_text(value: Any, source: tuple[Any, ...]) -> str:
    if source[0] == "decimal":
        return f"{decimal_of(value, source[2]):f}"
    if source[0] == "bool":
        return "true" if value else "false"
    if source[0] == "int":
        return str(value)
    if source[0] == "date":
        _within(value, FIRST_DAY, LAST_DAY + 1)
        return date.fromordinal(value + _EPOCH).isoformat()
    if source[0] == "uuid":
        text: str = value.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    raise NoAnswerError


def _of_text(value: str, target: tuple[Any, ...]) -> Any:
    try:
        if target == ("date",):
            if len(value) != 10:
                raise NoAnswerError
            return date.fromisoformat(value).toordinal() - _EPOCH
        if value != value.strip():
            raise NoAnswerError
        return int(value)
    except ValueError:
        raise NoAnswerError from None


def _as_number(value: Any, source: tuple[Any, ...], target: tuple[Any, ...]) -> Any:
    if target[0] == "float":
        numpy = np.float32 if target[1] == 32 else np.float64
        if source[0] != "decimal":
            with np.errstate(over="ignore"):
                found = float(numpy(float(value)))
            if exact(found) != exact(value):
                raise NoAnswerError
            return found
        text = f"{decimal_of(value, source[2]):f}"
        found = float(pa.scalar(text).cast(pa.float32()).as_py()) if target[1] == 32 else float(text)
        digits = len(text.replace("-", "").replace(".", "").strip("0")) or 1
        if Decimal(f"{Decimal(found):.{digits - 1}e}") != Decimal(text):
            raise NoAnswerError
        return found
    if isinstance(value, float) and (not math.isfinite(value) or target[0] == "decimal"):
        raise NoAnswerError
    if target[0] == "decimal" and source == ("bool",):
        raise NoAnswerError
    number = Fraction(value)
    if target[0] == "int":
        if number.denominator != 1:
            raise NoAnswerError
        bits, signed = target[1:]
        return _within(
            int(number), -(2 ** (bits - 1)) if signed else 0, 2 ** (bits - 1) if signed else 2**bits
        )
    counted = number * 10 ** target[2]
    if counted.denominator != 1 or abs(counted) >= 10 ** target[1]:
        raise NoAnswerError
    return number
