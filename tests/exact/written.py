"""Numbers as people and programs write them, and a column's value for each of them, by independent rules."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
JSON = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMPY = {pa.float16(): np.float16, pa.float32(): np.float32, pa.float64(): np.float64}

_digits = st.text("0123456789", max_size=45)
_signs = st.sampled_from(("", "-", "+"))
written = st.one_of(
    st.builds("{}{}.{}".format, _signs, _digits, _digits),
    st.builds("{}{}".format, _signs, _digits),
    st.builds("{}{}.{}E{}".format, _signs, _digits, _digits, st.integers(-420, 420)),
    st.builds("{}0.{}{}".format, _signs, st.integers(0, 60).map("0".__mul__), _digits),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map("{:.17g}".format),
    st.integers(2**53 - 3, 2**53 + 3).map(str),
    st.integers(2**63 - 3, 2**64 + 3).map(str),
    st.sampled_from(("2.8899999999999775916770E-19", "1e400", "1e-400", "-0", "-0.0", "0E-300", "5e-324")),
    st.text("0123456789.-+eE ", max_size=24),
)
"""Also some that are none."""


def value_of(text: str) -> Fraction | None:
    """The number in a text, or None if the text is not a number."""
    match = PLAIN.fullmatch(text)
    return None if match is None else Fraction(Decimal(text))


def fits(text: str, kind: Any) -> bool:
    """Whether a column of the type can hold the written number with every digit."""
    value = value_of(text)
    if value is None:
        return False
    if pa.types.is_integer(kind):
        return value.denominator == 1 and _is_in_range(value, kind)
    if pa.types.is_decimal(kind):
        unscaled = value * 10**kind.scale
        return unscaled.denominator == 1 and abs(unscaled) < 10**kind.precision
    return _keeps(float_of(text, kind), text, value)


def is_the_same(got: Any, text: str, kind: Any) -> bool:
    """Whether a value that was read from a topic is the written one."""
    value = value_of(text)
    if value is None:
        return False
    if pa.types.is_floating(kind):
        return _keeps(float(got), text, value)
    return Fraction(got) == value


def float_of(text: str, kind: Any) -> float:
    """The float nearest to a text."""
    with np.errstate(over="ignore"):
        return float(_NUMPY[kind](text))


def _is_in_range(value: Fraction, kind: Any) -> bool:
    bits = kind.bit_width
    if pa.types.is_unsigned_integer(kind):
        return 0 <= value < 2**bits
    return -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _keeps(number: float, text: str, value: Fraction) -> bool:
    """Whether the float lies within half of the last digit written, and is 0 only for 0."""
    if number in (float("inf"), float("-inf")):
        return False
    if not value or not number:
        return not value and not number
    last_digit = Fraction(10) ** int(Decimal(text).as_tuple().exponent)
    return abs(Fraction(number) - value) <= last_digit / 2
