"""An input of twelve days with the same number of payments on each, so every number of a run over it is known
in advance."""

from __future__ import annotations

from pathlib import Path

HEADER = '"trans_id";"account_id";"date";"type";"operation";"amount";"balance";"k_symbol";"bank";"account"'
DAYS, ROWS_A_DAY, ACCOUNTS = 12, 170, 97
ROWS = DAYS * ROWS_A_DAY


def lines() -> list[str]:
    """The header and the records: credits and both kinds of debits, with odd hundredths."""
    made = [HEADER]
    for number in range(ROWS):
        kind = ("PRIJEM", "VYDAJ", "VYBER")[number % 3]
        amount = f"{1 + number * 7 % 5_000}.{number % 100:02d}"
        account, day = number % ROWS_A_DAY * 31 % ACCOUNTS + 1, number // ROWS_A_DAY + 1
        made.append(f'{number + 1};{account};9301{day:02d};"{kind}";"VKLAD";{amount};{amount};"";;')
    return made


def write(path: Path, changed: list[str] | None = None) -> Path:
    """Write the file with these lines, or with other ones."""
    path.write_text("\n".join(lines() if changed is None else changed) + "\n", encoding="utf-8")
    return path
