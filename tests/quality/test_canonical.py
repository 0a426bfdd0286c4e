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
        ("2024-01-31 10:00:00+01", dt.datetime(2024, 1, 31, 9, tzinfo=UTC), pa.timestamp("us", "UTC")),
        (
            "2024-01-31 10:00:00.5+00",
            dt.datetime(2024, 1, 31, 10, 0, 0, 500_000, UTC),
            pa.timestamp("us", "UTC"),
        ),
        ("2024-01-31T10", dt.datetime(2024, 1, 31, 10, tzinfo=UTC), pa.timestamp("us", "UTC")),
        ("PRIJEM", "PRIJEM", pa.large_string()),
        ("", None, pa.string()),
        ("", "", pa.string()),
        ("", None, pa.int64()),
        ("", None, pa.decimal128(18, 2)),
        ("true", True, pa.bool_()),
        ("0.1", 0.1, pa.float64()),
        ("AB", b"AB", pa.binary()),
        ("09:30", dt.time(9, 30), pa.time32("s")),
        ("09:30:00.50", dt.time(9, 30, 0, 500_000), pa.time64("us")),
        ("0000000A-0000-0000-0000-000000000005", bytes(3) + b"\n" + bytes(11) + b"\5", pa.uuid()),
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
        ("2024-01-31T10.5", dt.datetime(2024, 1, 31, 10, 0, 0, 500_000, UTC), pa.timestamp("us", "UTC")),
        ("2024-01-31T10:00.5", dt.datetime(2024, 1, 31, 10, 0, 0, 500_000, UTC), pa.timestamp("us", "UTC")),
        ("09:30:00.5", dt.time(9, 30), pa.time32("s")),
        ("24:00:00", dt.time(), pa.time64("us")),
        ("00000000000000000000000000000005", bytes(15) + b"\5", pa.uuid()),
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


LISTED = pa.list_(pa.string())
FAR = 2**31 - 1


@pytest.mark.parametrize(
    ("kind", "values", "texts"),
    [
        (LISTED, [["a", None, "null"], [], None], ['["a", null, "null"]', "[]", ""]),
        (LISTED, [["a, b"], ["a", "b"], ['"']], ['["a, b"]', '["a", "b"]', '["\\""]']),
        (pa.list_(pa.int64(), 2), [[1, 2], None], ["[1, 2]", ""]),
        (pa.list_view(pa.decimal128(9, 2)), [[Decimal("1.50")]], ["[1.50]"]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None], ['{"a": 1}', "{}", ""]),
        (
            pa.struct([("d", pa.date32()), ("l", pa.list_(pa.bool_()))]),
            [{"d": dt.date(2024, 1, 31), "l": [True]}, {"d": None, "l": None}, None],
            ['{"d": 2024-01-31, "l": [true]}', '{"d": null, "l": null}', ""],
        ),
        (pa.list_(pa.date32()), [[dt.date(2024, 1, 31)]], ["[2024-01-31]"]),
        (pa.uuid(), [bytes(15) + b"\5", None], ["00000000-0000-0000-0000-000000000005", ""]),
        (pa.json_(), ['{"a": 1}'], ['{"a": 1}']),
        (pa.string_view(), ["a", None], ["a", ""]),
        (pa.list_(pa.float16()), [[0.5, -0.0]], ["[0.5, -0.0]"]),
        (pa.dictionary(pa.int8(), pa.string()), ["b", None, "b"], ["b", "", "b"]),
    ],
)
def test_every_type_has_a_text(kind: pa.DataType, values: list[object], texts: list[str]) -> None:
    """Values of nested types, views, dictionaries and extensions have a text each, wherever an array begins."""
    column = pa.array(values, kind)
    assert column_text(column).to_pylist() == texts
    assert column_text(column[1:]).to_pylist() == texts[1:]
    assert column_text(pa.chunked_array([column, column[:1]])).to_pylist() == [*texts, texts[0]]


@pytest.mark.parametrize(
    ("kind", "count", "text"),
    [
        (pa.date32(), FAR, f"{FAR} days since 1970"),
        (pa.date32(), -FAR, f"{-FAR} days since 1970"),
        (pa.date64(), 86_400_000 * 2**36, f"{2**36} days since 1970"),
        (pa.timestamp("us"), 2**63 - 2, f"{2**63 - 2}000 ns since 1970"),
        (pa.timestamp("s", "UTC"), 2**40, f"{2**40}000000000 ns since 1970"),
        (pa.time64("ns"), 34_200_000_000_001, "09:30:00.000000001"),
        (pa.time32("ms"), 34_200_500, "09:30:00.5"),
        (pa.duration("ns"), 2**63 - 1, f"{2**63 - 1} ns"),
    ],
)
def test_times_that_python_does_not_know(kind: pa.DataType, count: int, text: str) -> None:
    """A day, a moment or a duration beyond what Python knows has a text too, also inside of others."""
    width = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
    column = pa.array([count, None], width).cast(kind)
    assert column_text(column).to_pylist() == [text, ""]
    inside = pa.StructArray.from_arrays([column], ["t"])
    assert column_text(inside).to_pylist()[0] == f'{{"t": {text}}}'


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
