"""Exact amounts: whole numbers of the smallest unit, never floats.

`unscaled` is Parquet's word for the whole number behind a decimal: 12.50 at scale 2 is 1250.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRequestError

_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?")
_CHARS_MAX = 1_000
"""Of a number that anybody wrote down."""

_DIGITS_MAX = 76
"""Of decimal256, in which all sums are taken."""


def unscaled_of_text(text: str, scale: int) -> int | None:
    """The whole number behind a decimal written out; None where it is none, or has more digits than the scale keeps."""
    match = _DECIMAL.fullmatch(text)
    if match is None or len(text) > _CHARS_MAX:
        return None
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
    if not whole + fraction:
        return None
    number = int(whole + fraction)
    shift: int = scale + exponent - len(fraction)
    if shift < 0:
        number, cut = divmod(number, int(10**-shift))
        if cut:
            return None
    else:
        number *= int(10**shift)
    return -number if sign == "-" else number


def text_of_unscaled(number: int, scale: int, *, grouped: bool = False) -> str:
    """The decimal written out with all digits of its scale; `grouped` puts commas between thousands."""
    sign, digits = ("-" if number < 0 else ""), str(abs(number)).rjust(scale + 1, "0")
    whole, fraction = (digits[:-scale], digits[-scale:]) if scale else (digits, "")
    if grouped:
        whole = f"{int(whole):,}"
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def scale_of(column: str, kind: pa.DataType) -> int:
    """Digits after the point of an amount column. Refuses types that cannot hold money exactly."""
    if pa.types.is_decimal(kind):
        return max(int(kind.scale), 0)
    if pa.types.is_integer(kind):
        return 0
    raise InvalidRequestError(
        f"column {column!r} is {kind}",
        actor="exactly-once check",
        expected="a decimal or an integer: money is compared exactly",
    )


def wide(amounts: Any, scale: int) -> Any:
    """A column of amounts as decimal256 at `scale`, in which no sum of a topic overflows.

    Raises `InvalidRequestError` for an amount of more digits than that: pyarrow would give its remainder.
    """
    if pa.types.is_integer(amounts.type):
        amounts = pc.cast(amounts, pa.decimal128(20, 0))
    found = pc.cast(amounts, pa.decimal256(_DIGITS_MAX, scale))
    if not pc.cast(found, amounts.type).equals(amounts):
        raise InvalidRequestError(
            f"an amount of more than {_DIGITS_MAX} digits at {scale} behind the point",
            actor="exactly-once check",
            expected=f"amounts that fit decimal({_DIGITS_MAX}, {scale})",
        )
    return found


def unscaled_of_decimals(values: Iterable[decimal.Decimal | None], scale: int) -> list[int]:
    """The whole numbers behind decimals; a sum over nothing (None) is 0."""
    with decimal.localcontext() as context:
        context.prec = _DIGITS_MAX + 4
        return [0 if value is None else int(value.scaleb(scale)) for value in values]
