"""The demo makes this sample if it is given no file."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from txn_engine.demo.load import DAYS_MIN
from txn_engine.demo.payments import DEBITS, read_payments, split_into_days
from txn_engine.demo.sample import ACCOUNTS, DAYS, ROWS, write_sample

SHA256 = "1cf182527de38524456f3d9918d79d13c95c0f529dee07a6a84ad24444bd364f"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "payments.csv"
    write_sample(path)
    return path


@pytest.fixture(scope="module")
def records(sample: Path) -> list[dict[str, str]]:
    with sample.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter=";"))


def test_the_sample_is_the_same_bytes_every_time(sample: Path) -> None:
    """The checksum is pinned: the sample does not depend on clock, locale, machine or versions."""
    assert hashlib.sha256(sample.read_bytes()).hexdigest() == SHA256


def test_the_sample_has_the_size_that_the_demo_names(records: list[dict[str, str]]) -> None:
    """The sample has 50,000 payments with ids of their own, of 1,200 accounts, over 120 days, none of which
    is empty."""
    assert len(records) == ROWS == len({record["trans_id"] for record in records})
    assert len({record["account_id"] for record in records}) == ACCOUNTS
    assert len({record["date"] for record in records}) == DAYS
    assert [record["date"] for record in records] == sorted(record["date"] for record in records)


def test_balances_follow_from_the_amounts(records: list[dict[str, str]]) -> None:
    """Each balance is the previous one plus a credit or less a debit. Every amount is above 0 with two decimals."""
    balances: dict[str, Decimal] = defaultdict(Decimal)
    for record in records:
        amount = Decimal(record["amount"])
        assert amount > 0
        assert amount.as_tuple().exponent == -2
        balances[record["account_id"]] += -amount if record["type"] in DEBITS else amount
        assert Decimal(record["balance"]) == balances[record["account_id"]]


def test_all_kinds_of_payments_occur(records: list[dict[str, str]]) -> None:
    """The sample has credits and both kinds of debits, transfers with a bank and an account, and a constant
    symbol that is a blank."""
    kinds = Counter(record["type"] for record in records)
    assert set(kinds) == {"PRIJEM", "VYDAJ", "VYBER"}
    assert min(kinds.values()) > 1_000
    assert {" ", "", "UROK", "SIPO", "DUCHOD"} <= {record["k_symbol"] for record in records}
    transfers = [record for record in records if "PREVOD" in record["operation"]]
    assert all(record["bank"] and record["account"] for record in transfers)


def test_the_sample_goes_the_road_of_any_input(sample: Path) -> None:
    """The sample is read as a given file is, and splits into its days without a lost row."""
    payments = read_payments(sample, days_min=DAYS_MIN)
    days = split_into_days(payments)
    assert len(days) == DAYS
    assert sum(day.rows for day in days) == payments.num_rows == ROWS
    assert all(
        set(payments["date"].slice(day.first_row, day.rows).to_pylist())
        == {payments["date"][day.first_row].as_py()}
        for day in days
    )
