"""Checks of rows are exact and need only the row. A check that cannot be made is refused in one line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.loading.refusals import because
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import BadRow, read_records
from txn_engine.reasons import Reason
from txn_engine.row_checks import ROW_CHECKS, RowCheck

COLUMNS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64()),
    pa.field("amount", pa.decimal128(18, 2)),
    pa.field("fee", pa.decimal128(18, 2)),
    pa.field("rate", pa.float64()),
    pa.field("day", pa.date32()),
    pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("kind", pa.string()),
    pa.field("paid", pa.bool_()),
    pa.field("data", pa.binary()),
]
SCHEMA = pa.schema(COLUMNS)


def rows(**columns: list[Any]) -> pa.RecordBatch:
    """Rows with these columns. The others are null."""
    count = len(next(iter(columns.values())))
    return pa.RecordBatch.from_arrays(
        [pa.array(columns.get(each.name, [None] * count), each.type) for each in SCHEMA], schema=SCHEMA
    )


BETWEEN, IN_SET, REGEX = (
    f"expect_column_values_to_{name}" for name in ("be_between", "be_in_set", "match_regex")
)
LENGTHS, PAIR = (
    "expect_column_value_lengths_to_be_between",
    "expect_column_pair_values_a_to_be_greater_than_b",
)


@pytest.mark.parametrize(
    ("kind", "arguments", "values", "fails"),
    [
        (BETWEEN, {"min_value": 1}, {"id": [0, 1, None, 2**62]}, [0]),
        (BETWEEN, {"min_value": 0.5}, {"id": [0, 1]}, [0]),
        (BETWEEN, {"max_value": 2**62}, {"id": [2**62, 2**62 + 1]}, [1]),
        (BETWEEN, {"min_value": "0.01"}, {"amount": [Decimal("0.00"), Decimal("0.01")]}, [0]),
        (BETWEEN, {"min_value": Decimal("0.015")}, {"amount": [Decimal("0.01"), Decimal("0.02")]}, [0]),
        (
            BETWEEN,
            {"min_value": 0, "max_value": 9, "strict_min": True, "strict_max": True},
            {"amount": [Decimal(0), Decimal("0.01"), Decimal("8.99"), Decimal(9)]},
            [0, 3],
        ),
        (BETWEEN, {"max_value": 1}, {"rate": [1.0, 1.1, float("nan"), float("inf")]}, [1, 2, 3]),
        (BETWEEN, {"min_value": "2026-01-31"}, {"day": [dt.date(2026, 1, 30), dt.date(2026, 1, 31)]}, [0]),
        (BETWEEN, {"max_value": dt.date(2026, 1, 31)}, {"day": [dt.date(2026, 2, 1), None]}, [0]),
        (BETWEEN, {"min_value": "b"}, {"kind": ["a", "b", "ba"]}, [0]),
        (IN_SET, {"value_set": ["in", "out"]}, {"kind": ["in", "In", None, "out"]}, [1]),
        (IN_SET, {"value_set": [1, 2]}, {"amount": [Decimal("1.00"), Decimal("1.01")]}, [1]),
        (IN_SET, {"value_set": [True]}, {"paid": [True, False, None]}, [1]),
        (IN_SET.replace("_be", "_not_be"), {"value_set": ["x"]}, {"kind": ["x", "y", None]}, [0]),
        (REGEX, {"regex": "^[A-Z]{2}$"}, {"kind": ["AB", "ABC", "ab", None]}, [1, 2]),
        (REGEX.replace("_match", "_not_match"), {"regex": "[0-9]"}, {"kind": ["a1", "a", None]}, [0]),
        (LENGTHS, {"max_value": 2}, {"kind": ["äö", "abc", None]}, [1]),
        (LENGTHS, {"min_value": 2}, {"data": [b"a", b"ab"]}, [0]),
        ("expect_column_values_to_not_be_null", {}, {"kind": ["", None]}, [1]),
    ],
)
def test_which_rows_fail(
    kind: str, arguments: dict[str, Any], values: dict[str, list[Any]], fails: list[int]
) -> None:
    """A check judges the value itself. A null passes every check but one. A check that is read back from its
    plain form gives the same result."""
    (column,) = values
    check = RowCheck(kind, {"column": column, **arguments})
    assert found(check, rows(**values)) == fails
    assert found(RowCheck(**check.plain), rows(**values)) == fails


def found(check: RowCheck, batch: pa.RecordBatch) -> list[int]:
    from txn_engine.row_checks import failing

    return failing(check.on(SCHEMA), batch)


def test_pairs() -> None:
    """A check may compare two columns."""
    batch = rows(
        amount=[Decimal(1), Decimal(2), Decimal(3), None],
        fee=[Decimal(2), Decimal(2), Decimal(2), Decimal(1)],
    )
    columns = {"column_A": "amount", "column_B": "fee"}
    assert found(RowCheck(PAIR, columns), batch) == [0, 1]
    assert found(RowCheck(PAIR, {**columns, "or_equal": True}), batch) == [0]


def test_values_that_cannot_be_compared() -> None:
    """A time outside the years in which Arrow can compare it is refused in one line, without the value."""
    from txn_engine.row_checks import failing

    far = pa.RecordBatch.from_arrays(
        [pa.array([2**40], pa.timestamp("s")), pa.array([1], pa.timestamp("ns"))], ["a", "b"]
    )
    passes = RowCheck(PAIR, {"column_A": "a", "column_B": "b"}).on(far.schema)
    with pytest.raises(InvalidRequestError, check=because(Reason.INCOMPARABLE_VALUES)) as refused:
        failing(passes, far)
    assert str(2**40) not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "arguments", "reason"),
    [
        ("expect_column_max_to_be_between", {"column": "id"}, Reason.UNKNOWN_CHECK),
        (BETWEEN, {"column": "id", "min_value": 1, "parse_strings_as_datetimes": True}, Reason.BAD_ARGUMENT),
        (BETWEEN, {"min_value": 1}, Reason.BAD_ARGUMENT),
        (BETWEEN, {"column": "none", "min_value": 1}, Reason.UNKNOWN_COLUMN),
        (BETWEEN, {"column": "id"}, Reason.CHECK_NOT_APPLICABLE),
        (BETWEEN, {"column": "id", "min_value": "x"}, Reason.CHECK_NOT_APPLICABLE),
        (BETWEEN, {"column": "id", "min_value": float("nan")}, Reason.CHECK_NOT_APPLICABLE),
        (BETWEEN, {"column": "day", "min_value": 1}, Reason.CHECK_NOT_APPLICABLE),
        (BETWEEN, {"column": "at", "min_value": "2026-01-31T00:00:00"}, Reason.CHECK_NOT_APPLICABLE),
        (BETWEEN, {"column": "data", "min_value": "x"}, Reason.CHECK_NOT_APPLICABLE),
        (IN_SET, {"column": "kind", "value_set": []}, Reason.CHECK_NOT_APPLICABLE),
        (IN_SET, {"column": "kind", "value_set": [1]}, Reason.CHECK_NOT_APPLICABLE),
        (REGEX, {"column": "kind", "regex": "("}, Reason.CHECK_NOT_APPLICABLE),
        (REGEX, {"column": "kind", "regex": "(?=a)"}, Reason.CHECK_NOT_APPLICABLE),
        (REGEX, {"column": "id", "regex": "1"}, Reason.CHECK_NOT_APPLICABLE),
        (LENGTHS, {"column": "id", "max_value": 1}, Reason.CHECK_NOT_APPLICABLE),
        (PAIR, {"column_A": "id", "column_B": "kind"}, Reason.CHECK_NOT_APPLICABLE),
        (PAIR, {"column_A": "id", "column_B": "rate"}, Reason.CHECK_NOT_APPLICABLE),
        (PAIR, {"column_A": "rate", "column_B": "amount"}, Reason.CHECK_NOT_APPLICABLE),
        (BETWEEN, {"column": "rate", "min_value": float("nan")}, Reason.CHECK_NOT_APPLICABLE),
    ],
)
def test_what_is_refused(kind: str, arguments: dict[str, Any], reason: Reason) -> None:
    """An invalid check is refused in one line, before a row is read."""
    with pytest.raises(InvalidRequestError, check=because(reason)):
        RowCheck(kind, arguments).on(SCHEMA)


def test_every_check_is_tried_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(
        name.removeprefix("expect_column_values_to_").removeprefix("not_") in text for name in ROW_CHECKS
    )


AMOUNTS = pa.schema([pa.field("id", pa.int64()), pa.field("amount", pa.decimal128(18, 2))])
POSITIVE = RowCheck(BETWEEN, {"column": "amount", "min_value": 0}, "positive")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_of_files(tmp_path: Path, kind: str) -> None:
    """Rows that do not fit and rows that fail a check come in the order of the file. A row that does both
    counts as not fitting."""
    path = tmp_path / f"f.{kind}"
    amounts = ["1", "-1", "x", "2", "-2"]
    if kind == "csv":
        path.write_text("id,amount\n" + "".join(f"{at},{text}\n" for at, text in enumerate(amounts)))
    elif kind == "jsonl":
        path.write_text("".join(f'{{"id": {at}, "amount": "{text}"}}\n' for at, text in enumerate(amounts)))
    else:
        decimals = [Decimal("1.005") if text == "x" else Decimal(text) for text in amounts]
        pq.write_table(pa.table({"id": range(5), "amount": pa.array(decimals, pa.decimal128(18, 3))}), path)
    bad: list[BadRow] = []
    (batch,) = read_records(path, AMOUNTS, rejected=bad.extend, row_checks=[POSITIVE])
    assert batch.column("id").to_pylist() == [0, 3]
    first = {"csv": 2, "jsonl": 1, "parquet": 1}[kind]
    assert [(row.line - first, row.error.reason) for row in bad] == [
        (1, Reason.CHECK_FAILED),
        (2, Reason.BAD_DECIMAL),
        (4, Reason.CHECK_FAILED),
    ]
    assert "check positive" in bad[0].error.seen
    assert "min_value 0" in str(bad[0].error.expected)
    with pytest.raises(InvalidRecordError, check=because(Reason.BAD_DECIMAL)):
        list(read_records(path, AMOUNTS, row_checks=[POSITIVE]))
