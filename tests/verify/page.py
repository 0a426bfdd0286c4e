"""The tables of docs/VERIFY.md, made from the auditor's codes and from the damage in its tests.

python -m tests.verify.page        writes them into the page
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.verify import test_damage
from tests.verify.damage import KINDS
from txn_engine.verify import CODES, GROUPS

PAGE = Path(__file__).parents[2] / "docs" / "VERIFY.md"
BEGIN, END = "<!-- generated from here on: python -m tests.verify.page -->\n", "<!-- to here -->\n"

INVARIANTS = {
    "1": "Entries of a partition are contiguous.",
    "2": "Acknowledged and committed records are read exactly once; aborted ones never.",
    "3": "All of a transaction's partitions show its decision, or it is not complete.",
    "4": "Per producer, epoch and partition, sequences have no gap and no repeat.",
    "5": "The LSO never falls, never exceeds the log end, and nothing undecided is below it.",
    "6": "Transaction states move along the table; a decision never changes.",
    "7": "No record of a producer follows one of a higher epoch; its fate is its own epoch's decision.",
    "8": "Group offsets and the output produced with them move together.",
    "9": "A snapshot equals a replay.",
}


def generated() -> str:
    """All tables, as they appear between the two marks of the page."""
    return f"{_codes()}\n{_invariants()}\n{_damage()}"


def _codes() -> str:
    lines = []
    for title, group in GROUPS.items():
        lines += [f"### {title}\n", "| code | means | checks | what to do |", "|---|---|---|---|"]
        for name, code in group.items():
            warning = " (a warning)" if code.severity == "warning" else ""
            lines.append(f"| `{name}`{warning} | {code.meaning} | {code.checks} | {code.action} |")
        lines.append("")
    return "\n".join(lines)


def _invariants() -> str:
    lines = ["## Which finding breaks which invariant\n", "| | invariant | findings |", "|---|---|---|"]
    for number, text in INVARIANTS.items():
        names = [name for name, code in CODES.items() if number in code.checks.split(", ")]
        lines.append(f"| {number} | {text} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines) + "\n"


def _damage() -> str:
    lines = [
        f"## Damage that is tried\n\n{len(KINDS)} kinds, each done to a healthy ledger; these findings come of it, and",
        "no others. Beside them every byte of an entry, a data file, a snapshot and a JSON object is changed in turn,",
        "and the auditor's own reader lets none through (`tests/verify/test_checksums.py`). With an audit of the whole",
        f"store behind each: every {_nth(test_damage.ENTRY_STEPS)} byte of an entry, every",
        f"{_nth(test_damage.FILE_STEPS)} of a data file, every {_nth(test_damage.SNAPSHOT_STEPS)} of a snapshot.\n",
        "| damage | findings |",
        "|---|---|",
    ]
    for name, _, codes in sorted(KINDS, key=lambda kind: kind[0]):
        told = ", ".join(f"`{code}`" for code in sorted(codes))
        lines.append(f"| {name.replace('_', ' ')} | {told} |")
    return "\n".join(lines) + "\n"


def _nth(steps: Sequence[int]) -> str:
    *others, last = [f"{step}{'st' if step % 10 == 1 and step % 100 != 11 else 'th'}" for step in steps]
    return f"{', '.join(others)} and {last}" if others else last


def main() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + generated() + "\n" + END + rest.split(END)[1])
    print(f"{PAGE}: {len(CODES)} findings, {len(KINDS)} kinds of damage ({test_damage.__name__})")


if __name__ == "__main__":
    main()
