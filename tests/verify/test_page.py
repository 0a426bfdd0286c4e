"""docs/VERIFY.md names every finding, every invariant, and every kind of damage that is tested."""

from __future__ import annotations

import re
from pathlib import Path

from tests.verify import scale
from tests.verify.page import BEGIN, END, INVARIANTS, PAGE, generated
from txn_engine.verify import CODES

SOURCES = Path(__file__).parents[2] / "txn_engine" / "verify"


def test_the_page_is_up_to_date() -> None:
    """`python -m tests.verify.page` writes its tables."""
    written = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert written.strip() == generated().strip()


def test_what_an_audit_costs_was_measured() -> None:
    """The page's table of costs has the logs that `python -m tests.verify.scale --write` measures, in its
    form, with a named commit."""
    lines = scale.table_of_page().strip().splitlines()[2:]
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    assert scale.table_of_page() == scale.render(rows)
    assert [row[0] for row in rows] == [scale.words(total, batch) for total, batch in scale.LOGS]
    for row in rows:
        assert re.fullmatch(r"[0-9a-f]{8}\+?", row[-1])


def test_every_code_is_used_and_every_used_one_is_explained() -> None:
    """The codes in the auditor's sources are the codes of its table."""
    text = "".join(path.read_text() for path in SOURCES.glob("*.py") if path.name != "codes.py")
    used = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', text)) & (set(CODES) | _passed(text))
    assert used == set(CODES)


def _passed(text: str) -> set[str]:
    """The codes that the text passes to a call."""
    return set(re.findall(r'(?:\.note|\.add|_broken|_note)\(\s*"([a-z]+(?:-[a-z]+)+)"', text))


def test_every_invariant_is_judged() -> None:
    """Each of the nine invariants has at least one finding, and nothing else is called an invariant."""
    named = {part for code in CODES.values() for part in code.checks.split(", ") if part.isdigit()}
    assert named == set(INVARIANTS)


def test_every_finding_says_what_to_do() -> None:
    """Every finding has a meaning and an action, in plain sentences."""
    for name, code in CODES.items():
        assert code.meaning.endswith("."), name
        assert code.action, name
