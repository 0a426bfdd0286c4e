"""Which types hold every value of another one, exactly."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_LADDERS: Final[tuple[tuple[pa.DataType, ...], ...]] = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    (pa.float32(), pa.float64()),
)
EXPECTED: Final = (
    "int8 to int16, int32, int64; float32 to float64; a decimal of more digits, as many behind the point"
)


def is_widening(kind: pa.DataType, wider: pa.DataType) -> bool:
    """Whether a column of the one may become one of the other: every value stays what it is. Of a type itself: no."""
    for ladder in _LADDERS:
        if kind in ladder and wider in ladder:
            return ladder.index(kind) < ladder.index(wider)
    if pa.types.is_decimal128(kind) and pa.types.is_decimal128(wider):
        return bool(kind.scale == wider.scale and kind.precision < wider.precision)
    return False
