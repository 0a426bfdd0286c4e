"""Arrow arrays of every type that a topic's column may have, also with values that the type does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

UNITS = ("s", "ms", "us", "ns")
INTEGERS = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
)
DECIMALS = ((pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76))
FLOATS = (pa.float16(), pa.float32(), pa.float64())


@st.composite
def decimal_types(draw: st.DrawFn) -> Any:
    """Decimals of any width, precision and scale that Parquet has, often with all digits of their width."""
    make, most = draw(st.sampled_from(DECIMALS))
    precision = draw(st.one_of(st.just(most), st.integers(1, most)))
    return make(precision, draw(st.integers(0, precision)))


moment_types = st.one_of(
    st.sampled_from((pa.date32(), pa.date64())),
    st.builds(pa.timestamp, st.sampled_from(UNITS), tz=st.sampled_from((None, "UTC"))),
)
flat_types = st.one_of(st.sampled_from((*INTEGERS, *FLOATS)), decimal_types(), moment_types)


def count_of(kind: Any) -> st.SearchStrategy[int]:
    """The whole number of a value, which is often just inside or outside the range of the type."""
    if pa.types.is_decimal(kind):
        edge = 10**kind.precision
        bits = kind.bit_width
        digits = st.integers(0, kind.precision).flatmap(lambda count: st.integers(-(10**count), 10**count))
    else:
        bits = kind.bit_width
        edge = 2**53 if bits == 64 else 2 ** (bits - 1)
        digits = st.nothing()
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    near = st.integers(-3, 3).flatmap(lambda by: st.sampled_from((edge + by, -edge + by, by)))
    days = st.integers(-100_000, 100_000).map(lambda day: day * 86_400_000)
    thousands = st.integers(-(10**6), 10**6).map(lambda number: number * 10**9)
    drawn = st.one_of(near, days, thousands, digits, st.integers(low, high))
    return drawn.map(lambda number: min(max(number, low), high))


def array_of(kind: Any, counts: list[int | None]) -> Any:
    """An array from its bits. Nothing is checked, as with a table that was cast with `safe=False`."""
    width = kind.bit_width // 8
    signed = not pa.types.is_unsigned_integer(kind)
    mask = np.packbits([count is not None for count in counts], bitorder="little").tobytes()
    raw = b"".join(
        ((count or 0) if signed else (count or 0) % 2**kind.bit_width).to_bytes(
            width, "little", signed=signed
        )
        for count in counts
    )
    return pa.Array.from_buffers(kind, len(counts), [pa.py_buffer(mask), pa.py_buffer(raw)])


def counts_in(array: Any) -> list[int | None]:
    """The whole numbers of an array, from its bits."""
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    kind, data = whole.type, whole.buffers()[1]
    width = kind.bit_width // 8
    signed = not pa.types.is_unsigned_integer(kind)
    raw = b"" if data is None else data.to_pybytes()
    return [
        int.from_bytes(raw[place * width : (place + 1) * width], "little", signed=signed)
        if whole[index].is_valid
        else None
        for index, place in enumerate(range(whole.offset, whole.offset + len(whole)))
    ]


@st.composite
def arrays(draw: st.DrawFn, kinds: st.SearchStrategy[Any] = flat_types) -> Any:
    """A few values of one type."""
    kind = draw(kinds)
    counts = draw(st.lists(st.one_of(st.none(), count_of(kind)), min_size=1, max_size=3))
    return array_of(kind, counts)


def is_whole(array: Any) -> bool:
    """Whether the type has each of the values."""
    counts = [count for count in counts_in(array) if count is not None]
    if pa.types.is_decimal(array.type):
        return all(abs(count) < 10**array.type.precision for count in counts)
    if pa.types.is_date64(array.type):
        return all(count % 86_400_000 == 0 for count in counts)
    return True
