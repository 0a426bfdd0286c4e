"""Text to numbers, every digit kept: what the type cannot hold as it is written is refused.

pyarrow's own casts are not enough: of a text with more than 38 digits after the point they make 0 without a word, of
one below a float's range 0 too, and of 9007199254740993 in a float64 its neighbour. Of 9007199254740989 in a decimal
with 31 digits after the point they make 577417.24..., because their product with 10^31 overflows.
"""

from __future__ import annotations

import decimal
import math
import re
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_CHARS_MAX = 1_000
"""Of a number. The longest that any float has written out in full is 1,077."""

DIGITS_MAX = 38
"""Of a number that pyarrow reads right as a decimal, or refuses: those that are written, and the scale's."""

WHOLE = r"^[+-]?[0-9]+$"
DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$"
_WIDEST_INTEGER = pa.decimal128(20, 0)
_CONTEXT = decimal.Context(prec=4 * _CHARS_MAX, Emin=-9_999, Emax=9_999)
_KEPT_DIGITS = {16: 3, 32: 6, 64: 15}
"""By a float's bits: a text of so few characters, without an exponent, is always kept."""


def integers(texts: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Whole numbers, also as 1.0 and 1e2. ValueError where any does not fit."""
    if _are_of(texts, _PLAIN_WHOLE_CHARS):
        plain: pa.Array[Any] = texts.cast(kind)
        return plain
    if not matches(texts, WHOLE):
        return decimals(texts, _WIDEST_INTEGER).cast(kind)
    found: pa.Array[Any] = pc.replace_substring_regex(texts, r"^\+", "").cast(kind)
    return found


def decimals(texts: pa.Array[Any], kind: Any) -> pa.Array[Any]:
    """Decimals; digits beyond the scale only where they are zeros. ValueError where any does not fit."""
    if (
        pa.types.is_decimal128(kind)
        and _are_of(texts, _PLAIN_DECIMAL_CHARS)
        and not _is_longer(texts, DIGITS_MAX - max(0, kind.scale))
    ):
        with suppress(pa.ArrowInvalid):
            plain_decimals: pa.Array[Any] = texts.cast(kind)
            return plain_decimals
    _require_form(texts, NUMBER_CHARS, DECIMAL)
    whole, scale = kind.precision - kind.scale, kind.scale
    if min(whole, scale) >= 0 and pa.types.is_decimal128(kind):
        plain = rf"^[+-]?0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{scale}}}0*)?$"
        if matches(texts, plain) and not _is_longer(texts, DIGITS_MAX):
            return texts.cast(kind)
    found: pa.Array[Any] = pa.array(
        [None if text is None else _decimal(text, kind) for text in texts.to_pylist()], kind
    )
    return found


def floats(texts: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Floats that keep each digit of their text: none is further from it than half of its last digit.

    ValueError where any does not fit.
    """
    found: pa.Array[Any] = texts.cast(kind)
    if matches(texts, r"^-?[0-9]*\.?[0-9]*$") and not _is_longer(texts, _KEPT_DIGITS[kind.bit_width]):
        return found
    numbers: list[Any] = found.cast(pa.float64()).to_pylist()
    for text, number in zip(texts.to_pylist(), numbers, strict=True):
        if text is not None and not _is_kept(text, number):
            raise ValueError("digits that the float does not keep")
    return found


def without_marks(texts: pa.Array[Any], thousands: str, decimal: str) -> pa.Array[Any]:
    """Numbers without the mark between their thousands. ValueError where it stands elsewhere than before groups of
    three digits, or not before each of them.
    """
    marked = texts.filter(pc.match_substring(texts, thousands))
    require(marked, whole_with(thousands) + f"({re.escape(decimal)}[0-9]*)?$")
    return pc.replace_substring(texts, thousands, "")


def whole_with(thousands: str) -> str:
    """The form of the digits before a decimal mark, in groups of three or without any mark."""
    mark = re.escape(thousands)
    return rf"^[+-]?([0-9]+|[0-9]{{1,3}}({mark}[0-9]{{3}})+)"


def with_points(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Numbers written with a comma, as with a point. ValueError where any has a point, as 1.000,50 has."""
    if pc.any(pc.match_substring(texts, ".")).as_py():
        raise ValueError("a point in a number with a comma")
    return pc.replace_substring(texts, ",", ".")


def matches(texts: pa.Array[Any], pattern: str) -> bool:
    """Whether every text that is there has this form."""
    return not pc.any(pc.invert(pc.match_substring_regex(texts, pattern))).as_py()


def require(texts: pa.Array[Any], pattern: str) -> None:
    """ValueError unless every text that is there has this form."""
    if not matches(texts, pattern):
        raise ValueError("a text of another form")


def _require_form(texts: pa.Array[Any], allowed: Any, pattern: str) -> None:
    """The same, a character that is not allowed told first: a pattern takes ten times as long to see it."""
    if have_others(texts, allowed).any():
        raise ValueError("a character of another kind of text")
    require(texts, pattern)


def chars(allowed: str) -> Any:
    """A table of the bytes: whether each is one of these characters of ASCII."""
    found = np.zeros(256, bool)
    found[list(allowed.encode())] = True
    return found


NUMBER_CHARS = chars("+-.,0123456789eEinfatyINFATY")
"""No number is written with others."""
_PLAIN_WHOLE_CHARS, _PLAIN_DECIMAL_CHARS = chars("-0123456789"), chars("-.0123456789")
"""Of texts of nothing else pyarrow's casts take those that are numbers, and no other."""


def have_others(texts: Any, allowed: Any) -> Any:
    """Which texts have a byte that is none of these, as a mask; none where that cannot be told at a glance."""
    found = np.zeros(len(texts), bool)
    if (parts := bytes_of(texts)) is not None:
        ends, data = parts
        places = np.flatnonzero(~allowed[data]) + ends[0]
        found[np.searchsorted(ends, places, side="right") - 1] = True
        found &= texts.is_valid().to_numpy(zero_copy_only=False)  # what lies behind a null is nobody's
    return found


def _are_of(texts: Any, allowed: Any) -> bool:
    """Whether the texts are of these bytes alone."""
    parts = bytes_of(texts)
    return parts is not None and bool(allowed[parts[1]].all())


def bytes_of(texts: Any) -> tuple[Any, Any] | None:
    """Where each text begins and the last ends, and the bytes from the first one's on."""
    if not isinstance(texts, pa.StringArray) or not len(texts):
        return None
    _, offsets, data = texts.buffers()
    if offsets is None or data is None:
        return None
    ends = np.frombuffer(memoryview(offsets), np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.frombuffer(memoryview(data), np.uint8)[ends[0] : ends[-1]]


def _is_longer(texts: Any, chars: int) -> bool:
    return (pc.max(pc.binary_length(texts)).as_py() or 0) > chars


def _decimal(text: str, kind: Any) -> Decimal:
    if len(text) > _CHARS_MAX:
        raise ValueError("too long for a number")
    number = Decimal(text)
    unscaled = number.scaleb(kind.scale, _CONTEXT)
    if unscaled != unscaled.to_integral_value() or unscaled.copy_abs() >= Decimal(10) ** kind.precision:
        raise ValueError("digits that the decimal does not keep")
    return number.quantize(Decimal((0, (1,), -kind.scale)), context=_CONTEXT)


def _is_kept(text: str, number: float) -> bool:
    try:
        written = Decimal(text)
    except decimal.InvalidOperation:
        return False
    if not written.is_finite() or not math.isfinite(number):
        return str(written).lower() == str(Decimal(number)).lower()
    if not written or not number:
        return not written and not number
    if len(text) > _CHARS_MAX:
        return False
    half_a_digit = Decimal((0, (5,), int(written.as_tuple().exponent) - 1))
    return _CONTEXT.subtract(written, Decimal(number)).copy_abs() <= half_a_digit
