"""A cell of the file and a value of the topic get the same text exactly if they mean the same."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn_engine.quality.canonical import cells_text, column_text
from txn_engine.quality.money import text_of_unscaled, unscaled_of_text

UTC = dt.UTC


@pytest.mark.parametrize(
    ("cell", "value", "kind"),
    [
        ("7", 7, pa.int64()),
        ("007", 7, pa.int32()),
        ("-7", -7, pa.int16()),
        ("700.00", Decimal("700.00"), pa.decimal128(18, 2)),
        ("700", Decimal("700.00"), pa.decimal128(18, 2)),
        ("0.5", Decimal("0.50"), pa.decimal128(18, 2)),
        ("-0.05", Decimal("-0.05"), pa.decimal128(18, 2)),
        ("12", Decimal(12), pa.decimal128(18, 0)),
        ("930101", dt.date(1993, 1, 1), pa.date32()),
        ("1993-01-01", dt.date(1993, 1, 1), pa.date32()),
        ("930101", 930101, pa.int32()),
        ("930101", "930101", pa.string()),
        ("930101", dt.datetime(1993, 1, 1, tzinfo=UTC), pa.timestamp("ms", "UTC")),
        ("930101", dt.datetime(1993, 1, 1), pa.timestamp("us")),  # noqa: DTZ001
        ("PRIJEM", "PRIJEM", pa.large_string()),
        ("", None, pa.string()),
        ("", "", pa.string()),
        ("", None, pa.int64()),
        ("", None, pa.decimal128(18, 2)),
        ("true", True, pa.bool_()),
        ("0.1", 0.1, pa.float64()),
        ("AB", b"AB", pa.binary()),
        ("AB", "AB", pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_the_same_value_is_written_alike(cell: str, value: object, kind: pa.DataType) -> None:
    """Equal values get the same text, whatever type the column has."""
    assert cells_text([cell], kind, "%y%m%d").to_pylist() == column_text(pa.array([value], kind)).to_pylist()


@pytest.mark.parametrize(
    ("cell", "value", "kind"),
    [
        ("700.001", Decimal("700.00"), pa.decimal128(18, 2)),
        ("700.01", Decimal("700.00"), pa.decimal128(18, 2)),
        ("90071992547409.93", Decimal("90071992547409.92"), pa.decimal128(18, 2)),
        ("930102", dt.date(1993, 1, 1), pa.date32()),
        ("soon", dt.date(1993, 1, 1), pa.date32()),
        ("x", 7, pa.int64()),
        ("0", None, pa.int64()),
        (" PRIJEM", "PRIJEM", pa.string()),
    ],
)
def test_another_value_is_written_otherwise(cell: str, value: object, kind: pa.DataType) -> None:
    """Different values get different text, even if a float could not tell them apart or the cell does not fit
    the type."""
    assert cells_text([cell], kind, "%y%m%d").to_pylist() != column_text(pa.array([value], kind)).to_pylist()


@pytest.mark.parametrize("cell", ["\uff11993-01-01", "1993-01-0\u0661"])
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("ms", "UTC")])
def test_digits_of_another_script_are_no_digits(cell: str, kind: pa.DataType) -> None:
    """A date with digits of another script stays text, although the format's parser accepts it, because the
    loader refuses it too."""
    assert cells_text([cell], kind, "%Y-%m-%d").to_pylist() == [cell]


def test_chunked_and_empty_columns() -> None:
    """A column may come in chunks, or without any."""
    chunked = pa.chunked_array([[dt.date(1993, 1, 1)], [None]], pa.date32())
    assert column_text(chunked).to_pylist() == ["1993-01-01", ""]
    for kind in (pa.date32(), pa.string(), pa.int64(), pa.decimal128(18, 2), pa.bool_()):
        assert column_text(pa.chunked_array([], kind)).to_pylist() == []


@given(st.integers(min_value=-(10**30), max_value=10**30), st.integers(min_value=0, max_value=9))
def test_money_survives_being_written_and_read(number: int, scale: int) -> None:
    """A decimal is the same after it was written as text and read again, at every size and scale."""
    assert unscaled_of_text(text_of_unscaled(number, scale), scale) == number


@pytest.mark.parametrize(
    ("number", "scale", "text"),
    [
        (0, 2, "0.00"),
        (-5, 2, "-0.05"),
        (123456789, 2, "1,234,567.89"),
        (1000, 0, "1,000"),
        (-100000, 2, "-1,000.00"),
    ],
)
def test_money_is_shown_in_groups_of_thousands(number: int, scale: int, text: str) -> None:
    """Amounts have groups of thousands in the report's tables."""
    assert text_of_unscaled(number, scale, grouped=True) == text
