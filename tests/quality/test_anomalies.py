"""Each named anomaly is written raw into a store, and the checks report it by its name."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.quality.anomalous import DECLARATION, INJECTED, Books, sound
from tests.suite.tiers import in_shard
from txn_engine.engine import Engine
from txn_engine.quality import QualityResult, check_exactly_once
from txn_engine.quality.anomalies import MEANINGS
from txn_engine.quality.suite import named_checks


def prove(books: Books, folder: Path) -> QualityResult:
    with Engine(books.ledger.store) as engine:
        return check_exactly_once(engine, DECLARATION, report_folder=folder)


def test_a_sound_store_shows_none(tmp_path: Path) -> None:
    """The same books without an anomaly pass every check."""
    result = prove(sound(), tmp_path)
    assert [check for check in result.checks if check.status != "passed"] == []
    assert result.anomalies == ()


@pytest.mark.parametrize(
    ("make", "anomaly", "check"),
    in_shard("damage", INJECTED, keep=2),
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_an_anomaly_is_found_by_its_name(
    make: Callable[[], Books], anomaly: str, check: str, tmp_path: Path
) -> None:
    """An anomaly is found by the check that is meant for it, and the report says what its name means."""
    result = prove(make(), tmp_path)
    assert not result.success
    assert check in {each.name for each in result.failed if anomaly in each.anomalies}
    assert anomaly in result.anomalies
    assert MEANINGS[anomaly] in html.unescape(result.report.read_text(encoding="utf-8"))


def test_the_page_names_the_checks_that_see_them() -> None:
    """docs/QUALITY.md has a row for each anomaly, with its meaning and the checks of the suite that are for it."""
    page = (Path(__file__).parents[2] / "docs" / "QUALITY.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    told = {row[0]: (row[1], set(re.findall("`([^`]+)`", row[2]))) for row in rows if row[0] in MEANINGS}
    assert {name: meaning for name, (meaning, _) in told.items()} == dict(MEANINGS)
    for check in named_checks(DECLARATION, has_input=True):
        name = "*_in_<output>" if check.name == "identity_in_copies" else check.name
        assert [each for each in check.anomalies if name not in told[each][1]] == []


def test_every_anomaly_is_injected() -> None:
    """Every name of an anomaly has a store that has it."""
    assert {anomaly for _, anomaly, _ in INJECTED} == set(MEANINGS)
