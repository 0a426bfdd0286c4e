"""What a type that a table format lacks is called in the sentence that refuses it."""

from __future__ import annotations

import pyarrow as pa

_DIGITS_MAX = 38
_FAMILIES = (
    (pa.types.is_unsigned_integer, "unsigned integers"),
    (pa.types.is_duration, "durations"),
    (pa.types.is_float16, "16-bit floats"),
    (pa.types.is_null, "columns without a type"),
    (pa.types.is_interval, "intervals"),
    (pa.types.is_fixed_size_binary, "binary values of a fixed size"),
    (pa.types.is_union, "unions"),
)


def family_of(kind: pa.DataType, *, has_times: bool = False) -> str:
    """The plural noun for the types that this one is among. has_times: whether the format has times of day."""
    if pa.types.is_time32(kind) and has_times:
        return "times of day but in microseconds: time64[us]"
    if pa.types.is_time(kind):
        return "times of day in nanoseconds" if has_times else "times of day"
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return "timestamps in nanoseconds"
    if pa.types.is_decimal(kind) and kind.precision > _DIGITS_MAX:
        return f"decimals above {_DIGITS_MAX} digits"
    return next((family for is_one, family in _FAMILIES if is_one(kind)), f"columns of type {kind}")
