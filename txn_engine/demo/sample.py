"""A sample of payments in the format of the Berka bank's `trans.csv`: made here, the same bytes every time.

No clock, no locale and no library's random generator has a part in it, so that its checksum can be pinned.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

ROWS = 50_000
ACCOUNTS = 1_200
DAYS = 120
FIRST_DAY = dt.date(1995, 1, 1)
SEED = 19_950_101

_HEADER = '"trans_id";"account_id";"date";"type";"operation";"amount";"balance";"k_symbol";"bank";"account"'
_OPENING_DAYS = 40
_BANKS = ("AB", "CD", "EF", "GH", "IJ", "KL", "MN", "OP", "QR", "ST", "UV", "WX", "YZ")
_ORDERS = (("SIPO", 70, 900_000), ("POJISTNE", 14, 400_000), ("UVER", 6, 600_000), (" ", 25, 700_000))
"""Standing orders: the constant symbol, how many accounts in a hundred have one, its highest amount in hundredths."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One sort of payment; `rank` is its place within a day."""

    rank: int
    type: str
    operation: str
    k_symbol: str = ""


_OPENING = _Kind(0, "PRIJEM", "VKLAD")
_DEPOSIT = _Kind(1, "PRIJEM", "VKLAD")
_SALARY = _Kind(1, "PRIJEM", "PREVOD Z UCTU")
_PENSION = _Kind(1, "PRIJEM", "PREVOD Z UCTU", "DUCHOD")
_STANDING = {symbol: _Kind(2, "VYDAJ", "PREVOD NA UCET", symbol) for symbol, _, _ in _ORDERS}
_CASH = _Kind(3, "VYDAJ", "VYBER")
_COUNTER = _Kind(3, "VYBER", "VYBER")
_CARD = _Kind(3, "VYDAJ", "VYBER KARTOU")
_INTEREST = _Kind(4, "PRIJEM", "", "UROK")
_FEE = _Kind(5, "VYDAJ", "VYBER", "SLUZBY")


class _Payment(NamedTuple):
    """A payment before its balance is known; `amount` in hundredths, for interest decided later."""

    day: int
    rank: int
    account: int
    serial: int
    kind: _Kind
    amount: int
    partner: str = ";"


_ORDER = itemgetter(0, 1, 2, 3)


class _Dice:
    """SplitMix64: whole numbers that are the same on every machine and under every version of everything."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((self._state ^ (self._state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (mixed ^ (mixed >> 31)) % limit

    def chance(self, in_a_hundred: int) -> bool:
        """True so many times in a hundred."""
        return self.below(100) < in_a_hundred


def write_sample(path: Path) -> None:
    """Write the sample's 50,000 payments of 1,200 accounts over 120 days, in date order with running balances."""
    path.write_text("".join(f"{line}\n" for line in sample_lines()), encoding="ascii", newline="\n")


def sample_lines() -> Iterator[str]:
    """The file's lines, header first."""
    yield _HEADER
    dice = _Dice(SEED)
    account_ids = [9 * account + 1 + dice.below(9) for account in range(ACCOUNTS)]
    payments = sorted(_payments(dice), key=_ORDER)
    dates = [(FIRST_DAY + dt.timedelta(days=day)).strftime("%y%m%d") for day in range(DAYS)]
    balances = [0] * ACCOUNTS
    counts = [0] * ACCOUNTS
    for payment in payments:
        account, kind = payment.account, payment.kind
        amount = _amount(payment, balances[account])
        balances[account] += amount if kind.type == "PRIJEM" else -amount
        counts[account] += 1
        account_id = account_ids[account]
        yield (
            f'{account_id * 330 + counts[account]};{account_id};{dates[payment.day]};"{kind.type}";"{kind.operation}";'
            f'{_money(amount)};{_money(balances[account])};"{kind.k_symbol}";{payment.partner}'
        )


def _payments(dice: _Dice) -> Iterable[_Payment]:
    """All payments, in no order: what recurs, and as many others as make the number full."""
    month_ends = [day for day in range(DAYS) if (FIRST_DAY + dt.timedelta(days=day + 1)).day == 1]
    opened = [dice.below(_OPENING_DAYS) for _ in range(ACCOUNTS)]
    made = [
        payment
        for account in range(ACCOUNTS)
        for payment in _recurring(dice, account, opened[account], month_ends)
    ]
    while len(made) < ROWS:
        account = dice.below(ACCOUNTS)
        day = opened[account] + dice.below(DAYS - opened[account])
        made.append(_occasional(dice, account, day, len(made)))
    return made


def _recurring(dice: _Dice, account: int, opened: int, month_ends: list[int]) -> Iterator[_Payment]:
    """What a plan of an account says: its opening, an income, standing orders, interest and fee at each month's end."""
    yield _Payment(opened, 0, account, 0, _OPENING, 20_000 + 10_000 * dice.below(12))
    income = _PENSION if dice.chance(25) else _SALARY
    plans = [(income, 300_000 + 100 * dice.below(22_000))]
    plans += [
        (_STANDING[symbol], 20_000 + 10 * dice.below(most // 10))
        for symbol, share, most in _ORDERS
        if dice.chance(share)
    ]
    for kind, amount in plans:
        due, partner = dice.below(28), _partner(dice)
        for month_end in month_ends:
            if opened <= month_end - due:
                yield _Payment(month_end - due, kind.rank, account, 0, kind, amount, partner)
    for month_end in month_ends:
        if opened < month_end - 15:
            yield _Payment(month_end, _INTEREST.rank, account, 0, _INTEREST, 0)
            yield _Payment(month_end, _FEE.rank, account, 0, _FEE, 1_460)


def _occasional(dice: _Dice, account: int, day: int, serial: int) -> _Payment:
    """Cash over the counter or from a machine."""
    lot = dice.below(100)
    if lot < 30:
        return _Payment(day, 1, account, serial, _DEPOSIT, 10_000 * (1 + dice.below(150)))
    kind = _COUNTER if lot < 34 else _CARD if lot < 37 else _CASH
    return _Payment(
        day, 3, account, serial, kind, 10_000 * (1 + dice.below(120)), '"";"0"' if kind is _CARD else ";"
    )


def _partner(dice: _Dice) -> str:
    return f'"{_BANKS[dice.below(len(_BANKS))]}";"{1_000_000 + dice.below(98_000_000)}"'


def _amount(payment: _Payment, balance: int) -> int:
    """Interest follows the balance; cash is at most half of it, in whole hundreds and at least one."""
    if payment.kind is _INTEREST:
        return max(balance // 2_500 * 10, 10)
    if payment.rank == _CASH.rank:
        return min(payment.amount, max(balance // 20_000 * 10_000, 10_000))
    return payment.amount


def _money(hundredths: int) -> str:
    sign, hundredths = ("-", -hundredths) if hundredths < 0 else ("", hundredths)
    return f"{sign}{hundredths // 100}.{hundredths % 100:02d}"
