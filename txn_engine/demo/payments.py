"""The payments: their columns, the input file read and checked whole, and its days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRecordError
from txn_engine.files import read_records
from txn_engine.reasons import Reason

PAYMENTS, PARTITIONS, KEY = "payments", 4, "account_id"
MONEY: pa.DataType = pa.decimal128(18, 2)
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("trans_id", pa.int64()),
    ("account_id", pa.int64()),
    ("date", pa.date32()),
    ("type", pa.string()),
    ("operation", pa.string()),
    ("amount", MONEY),
    ("balance", MONEY),
    ("k_symbol", pa.string()),
    ("bank", pa.string()),
    ("account", pa.string()),
]
PAYMENTS_SCHEMA = pa.schema(_COLUMNS)
CREDIT, DEBITS = "PRIJEM", ("VYDAJ", "VYBER")


@dataclass(frozen=True, slots=True)
class Day:
    """One day's rows in the table of all."""

    date: str
    first_row: int
    rows: int


def read_payments(path: Path, *, days_min: int) -> pa.Table:
    """Every row of a `;`-separated file in the columns of Berka's `trans.csv`, exactly, in date order.

    Raises `InvalidRecordError` or `InvalidRequestError`, naming file, line and column, for whatever is wrong with it:
    the whole file is read before anything is returned.
    """
    batches = read_records(
        path, PAYMENTS_SCHEMA, format="csv", delimiter=";", null_values=(), date_format="%y%m%d"
    )
    try:
        payments = pa.Table.from_batches(list(batches), PAYMENTS_SCHEMA).combine_chunks()
    except InvalidRecordError as error:
        if error.reason not in (Reason.MISSING_COLUMN, Reason.UNKNOWN_COLUMN):
            raise
        names = ", ".join(PAYMENTS_SCHEMA.names)
        raise InvalidRecordError(
            error.seen,
            actor="demo",
            place=error.place,
            expected=f"the columns of the Berka bank's trans.csv, with ';' between them: {names}",
            action="load a file that has other columns with `txn-engine produce`",
            reason=error.reason,
        ) from None
    _check_types(path, payments)
    _check_ids(path, payments)
    _check_amounts(path, payments)
    found = len(pc.unique(payments["date"]))
    if found < days_min:
        raise InvalidRecordError(
            f"payments of {found} days",
            actor="demo",
            place=str(path),
            expected=f"at least {days_min}: the story needs one for each of its parts",
            action="give a longer file",
            reason=Reason.TOO_FEW_DAYS,
        )
    order = pc.sort_indices(payments["date"])  # stable: within a day the file's order stays
    return payments.take(order).combine_chunks()


def split_into_days(payments: pa.Table) -> Sequence[Day]:
    """The days of a table in date order."""
    rows_of = Counter(payments["date"].to_pylist())  # in the order of their first rows
    starts = accumulate(rows_of.values(), initial=0)
    return [Day(str(date), start, rows) for (date, rows), start in zip(rows_of.items(), starts, strict=False)]


def write_arrow_file(payments: pa.Table, path: Path) -> None:
    """The rows in a file that every loader maps into its memory."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, payments.schema) as writer:
        writer.write_table(payments)


def _check_amounts(path: Path, payments: pa.Table) -> None:
    negative = pc.less(payments["amount"], pa.scalar(0, MONEY))
    at = pc.index(negative, True).as_py()
    if at >= 0:
        raise InvalidRecordError(
            f"amount {payments['amount'][at].as_py()} of trans_id {payments['trans_id'][at].as_py()}",
            actor="demo",
            place=str(path),
            expected="0 or more: the type says whether it is a credit or a debit",
            action="mend the row",
            reason=Reason.NEGATIVE_AMOUNT,
        )


def _check_types(path: Path, payments: pa.Table) -> None:
    known = pc.is_in(payments["type"], value_set=pa.array([CREDIT, *DEBITS]))
    at = pc.index(known, False).as_py()
    if at >= 0:
        raise InvalidRecordError(
            f"type {payments['type'][at].as_py()!r} in record {at + 1}",
            actor="demo",
            place=str(path),
            expected=f"{CREDIT}, {' or '.join(DEBITS)}",
            action="mend the file and start again; nothing was loaded",
            reason=Reason.UNKNOWN_PAYMENT_TYPE,
        )


def _check_ids(path: Path, payments: pa.Table) -> None:
    ids = payments["trans_id"]
    if len(pc.unique(ids)) == len(ids):
        return
    doubled, times = Counter(ids.to_pylist()).most_common(1)[0]
    raise InvalidRecordError(
        f"trans_id {doubled} stands {times} times",
        actor="demo",
        place=str(path),
        expected="each payment once: that is how exactly-once is told",
        action="mend the file and start again; nothing was loaded",
        reason=Reason.DUPLICATE_PAYMENT,
    )
