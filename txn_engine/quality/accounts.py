"""Each account's turnover, summed twice: from the payments and from what the consumer made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.quality.canonical import cells_text, column_text
from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.evidence import Evidence, EvidenceMissingError, need, rows_of
from txn_engine.quality.input_file import InputRows
from txn_engine.quality.money import scale_of, text_of_unscaled, unscaled_of_decimals, unscaled_of_text, wide


@dataclass(frozen=True, slots=True)
class Account:
    """One account's two sums: what the payments say and what the output topic says, in the smallest unit of money."""

    account: str
    expected_turnover: int
    output_turnover: int
    expected_payments: int
    output_payments: int

    @property
    def agrees(self) -> bool:
        """Both sums and both counts are the same."""
        return (self.expected_turnover, self.expected_payments) == (
            self.output_turnover,
            self.output_payments,
        )


@dataclass(frozen=True, slots=True)
class Accounts:
    """All accounts, by name, and the digits after the point of their money."""

    rows: tuple[Account, ...]
    scale: int


def account_sums(evidence: Evidence) -> pa.Table:
    """Each account: its turnover, written out with all digits, and number of payments, expected and in the output."""
    table = accounts(evidence)
    rows = table.rows
    # As text: exact at every size, and readable in Great Expectations' own results.
    expected = [text_of_unscaled(row.expected_turnover, table.scale) for row in rows]
    seen = [text_of_unscaled(row.output_turnover, table.scale) for row in rows]
    return pa.table(
        {
            "account": pa.array([row.account for row in rows], pa.string()),
            "expected_turnover": pa.array(expected, pa.string()),
            "output_turnover": pa.array(seen, pa.string()),
            "expected_payments": pa.array([str(row.expected_payments) for row in rows], pa.string()),
            "output_payments": pa.array([str(row.output_payments) for row in rows], pa.string()),
        }
    )


def accounts(evidence: Evidence) -> Accounts:
    """Both sums of every account: of the input file (without one, of the committed records), and of the output."""
    need(evidence, "offsets")  # they say whether the histories are whole
    check = evidence.check
    columns = _summed_columns(check)
    payments = rows_of(evidence, check.topic).committed
    output = rows_of(evidence, columns.output_topic).committed
    scale = max(
        scale_of(columns.amount, payments.schema.field(columns.amount).type),
        scale_of(check.output_total, output.schema.field(check.output_total).type),
    )
    expected = (
        _record_sums(payments, check, columns, scale)
        if evidence.input is None
        else _input_sums(evidence.input, check, columns, payments.schema, scale)
    )
    seen = _output_sums(output, check, scale)
    nothing = (0, 0)
    rows = []
    for name in sorted(expected.keys() | seen.keys(), key=_natural):
        turnover, count = expected.get(name, nothing)
        output_turnover, output_count = seen.get(name, nothing)
        rows.append(
            Account(name, turnover, output_turnover, count, output_count if check.output_count else count)
        )
    return Accounts(tuple(rows), scale)


class _SummedColumns(NamedTuple):
    account: str
    amount: str
    output_topic: str


def _summed_columns(check: ExactlyOnceCheck) -> _SummedColumns:
    if check.output_topic is None or check.account is None or check.amount is None:
        raise EvidenceMissingError("no output topic was named")
    return _SummedColumns(check.account, check.amount, check.output_topic)


def _input_sums(
    rows: InputRows, check: ExactlyOnceCheck, columns: _SummedColumns, schema: pa.Schema, scale: int
) -> dict[str, tuple[int, int]]:
    kind = schema.field(columns.account).type
    names = cells_text(rows.columns[columns.account], kind, check.input_date_format)
    directions = rows.columns[check.direction] if check.direction else None
    credits_up = frozenset(check.credit_values)
    sums: dict[str, tuple[int, int]] = {}
    for place, (name, cell) in enumerate(zip(names.to_pylist(), rows.columns[columns.amount], strict=True)):
        number = unscaled_of_text(cell, scale)
        if number is None:
            raise EvidenceMissingError(
                f"{columns.amount} is no amount at {rows.path} line {rows.lines[place]}"
            )
        if directions is not None and directions[place] not in credits_up:
            number = -number
        turnover, count = sums.get(name, (0, 0))
        sums[name] = (turnover + number, count + 1)
    return sums


def _record_sums(
    table: pa.Table, check: ExactlyOnceCheck, columns: _SummedColumns, scale: int
) -> dict[str, tuple[int, int]]:
    amount = wide(table[columns.amount], scale)
    if check.direction:
        credit = pc.is_in(
            column_text(table[check.direction]), value_set=pa.array(list(check.credit_values), pa.string())
        )
        amount = pc.if_else(credit, amount, pc.negate(amount))
    ones = pa.array(np.ones(table.num_rows, np.int64))
    return _grouped_sums(column_text(table[columns.account]), amount, ones, scale)


def _output_sums(table: pa.Table, check: ExactlyOnceCheck, scale: int) -> dict[str, tuple[int, int]]:
    counts = table[check.output_count] if check.output_count else pa.array(np.zeros(table.num_rows, np.int64))
    return _grouped_sums(
        column_text(table[check.output_account]), wide(table[check.output_total], scale), counts, scale
    )


def _grouped_sums(names: Any, amounts: Any, counts: Any, scale: int) -> dict[str, tuple[int, int]]:
    """By name: both sums, in a type in which neither wraps around."""
    grouped = (
        pa.table({"name": names, "amount": amounts, "count": wide(counts, 0)})
        .group_by("name")
        .aggregate([("amount", "sum"), ("count", "sum")])
    )
    turnovers = unscaled_of_decimals(grouped["amount_sum"].to_pylist(), scale)
    sums = unscaled_of_decimals(grouped["count_sum"].to_pylist(), 0)
    group_names: list[Any] = grouped["name"].to_pylist()
    return {
        name: (turnover, count) for name, turnover, count in zip(group_names, turnovers, sums, strict=True)
    }


def _natural(name: str) -> tuple[int, str]:
    """Numbers by size, then names."""
    return (int(name), "") if name.isascii() and name.isdigit() else (2**63, name)
