"""Days as ISO 8601 writes them, looked at byte by byte: which of many texts can be none."""

from __future__ import annotations

from typing import Any

import numpy as np

from txn_engine.files.numbers import bytes_of

_DAY, _YEAR = len("2026-01-31"), len("2026")
_ZERO, _TEN = np.uint8(ord("0")), np.uint8(10)
_MINUS = np.uint8(256 + ord("-") - ord("0"))
"""As far above "0" as a byte goes around."""
_LENGTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def begin_without_a_day(texts: Any) -> Any:
    """Which texts do not begin with a year of four digits, or with a day that the calendar has not, as 2026-02-30.

    As a mask; none where that cannot be told at a glance. A text that goes on in another way is left to others.
    """
    found = np.zeros(len(texts), bool)
    parts = bytes_of(texts)
    if parts is None:
        return found
    ends, data = parts
    sizes = np.diff(ends)
    padded = np.append(data, np.zeros(_DAY, np.uint8))
    digits = np.lib.stride_tricks.sliding_window_view(padded, _DAY)[ends[:-1] - ends[0]] - _ZERO
    is_digit = (digits < _TEN).T
    is_minus = (digits == _MINUS).T
    has_year = is_digit[0] & is_digit[1] & is_digit[2] & is_digit[3] & is_minus[4] & (sizes > _YEAR)
    has_day = has_year & is_digit[5] & is_digit[6] & is_minus[7] & is_digit[8] & is_digit[9] & (sizes >= _DAY)
    found = ~has_year
    found[has_day] = _is_no_day(digits[has_day].T.astype(np.int32))
    return found & texts.is_valid().to_numpy(zero_copy_only=False)


def _is_no_day(digits: Any) -> Any:
    year = digits[0] * 1000 + digits[1] * 100 + digits[2] * 10 + digits[3]
    month, day = digits[5] * 10 + digits[6], digits[8] * 10 + digits[9]
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    is_month = (month >= 1) & (month <= 12)
    length = _LENGTHS[np.where(is_month, month, 0)] + ((month == 2) & is_leap)
    return (day < 1) | (day > length)
