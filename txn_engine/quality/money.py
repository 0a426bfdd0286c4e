"""Exact amounts: whole numbers of the smallest unit, never floats.

`unscaled` is Parquet's word for the whole number behind a decimal: 12.50 at scale 2 is 1250.
"""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?")
_CHARS_MAX = 1_000
"""Of a number that anybody wrote down."""


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
