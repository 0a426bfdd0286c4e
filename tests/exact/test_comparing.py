"""The exactly-once check of an input file takes a cell for a value if and only if both mean the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.exact.arrays import FLOATS, INTEGERS, array_of, count_of, decimal_types
from tests.exact.written import fits, float_of, is_the_same, value_of, written
from txn_engine.quality.canonical import cells_text, column_text

pytestmark = [pytest.mark.exact, pytest.mark.timeout(21_600)]

MONEY = pa.decimal128(18, 2)
kinds = st.one_of(st.just(MONEY), st.sampled_from((*INTEGERS, *FLOATS)), decimal_types())


def are_alike(cell: str, column: Any) -> bool:
    """Whether the check takes the cell for the value."""
    (one,), (other,) = (
        cells_text([cell], column.type, "%y%m%d").to_pylist(),
        column_text(column).to_pylist(),
    )
    return bool(one == other)


@given(cell=written.filter(bool), kind=kinds, data=st.data())
def test_a_cell_and_another_value(cell: str, kind: Any, data: st.DataObject) -> None:
    """Whatever the topic holds, the check takes a cell for a value only if its digits say so."""
    if pa.types.is_floating(kind):
        number = data.draw(st.floats(allow_nan=False, allow_infinity=False))
        column = pa.array([number]).cast(kind)
        held = column.cast(pa.float64())[0].as_py()
    else:
        limit = 10**kind.precision - 1 if pa.types.is_decimal(kind) else 2**kind.bit_width
        count = data.draw(count_of(kind).filter(lambda count: abs(count) <= limit))
        column = array_of(kind, [count])
        held = column[0].as_py()
    if are_alike(cell, column):
        assert is_the_same(held, cell, kind)


@given(cell=written.filter(bool), kind=kinds)
@example(cell="0.1", kind=pa.float32())
@example(cell="0.0000001", kind=pa.decimal128(18, 7))
@example(cell="1E+2", kind=MONEY)
def test_a_cell_and_the_value_that_it_is(cell: str, kind: Any) -> None:
    """The value that a lossless loader makes of a cell is equal to the cell, however small or large it is."""
    if not fits(cell, kind):
        return
    value = value_of(cell)
    assert value is not None
    if pa.types.is_floating(kind):
        column = pa.array([float_of(cell, kind)]).cast(kind)
    else:
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        column = array_of(kind, [int(value * 10**scale)])
    assert are_alike(cell, column)


@pytest.mark.parametrize(
    ("cell", "column"),
    [
        ("0.10000000000000000001", pa.array([0.1])),
        ("9007199254740993", pa.array([9007199254740992.0])),
        ("1e-400", pa.array([0.0])),
        ("2026-01-31T10:00:00", pa.array([20484], pa.int32()).view(pa.date32())),
        ("93011", pa.array([8401], pa.int32()).view(pa.date32())),
        ("1970-01-01T00:00:00.1234567", pa.array([123456], pa.int64()).view(pa.timestamp("us"))),
        ("1970-01-01T02:00:00+02:00", pa.array([0], pa.int64()).view(pa.timestamp("us"))),
    ],
)
def test_what_was_taken_for_the_same(cell: str, column: Any) -> None:
    """If the topic does not hold a digit, a time of day or a zone, that is a difference."""
    assert not are_alike(cell, column)
