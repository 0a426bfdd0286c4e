"""The catalogue of deliberate bugs fits the code, and the simulator finds what it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulator.faults import ALL_FAULTS
from tests.simulator.mutants import marks
from tests.simulator.mutants.catalog import MUTANTS
from tests.simulator.mutants.hunting import hunt_all
from tests.simulator.mutants.marks import MARKED, marked_sections
from tests.simulator.mutants.mutation import ROOT, Mutant, mutated_source
from tests.simulator.mutants.report import NEEDED, PAGE, read_rows, render, words
from tests.simulator.runner import knobs_of, run
from tests.simulator.workloads import WORKLOADS

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
SHOWN = ("no-epoch-check", "put-decided-by-status", "no-bump-at-the-end", "time-out-without-a-second-look")
"""A few that every run of the suite hunts down again."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_bug_fits_the_code(mutant: Mutant) -> None:
    """What it replaces stands exactly once in the file, and what comes of it is Python."""
    assert mutant.edits
    for file in {edit.file for edit in mutant.edits}:
        edits = [edit for edit in mutant.edits if edit.file == file]
        assert mutated_source(file, edits)
    assert set(mutant.workloads) <= WORKLOADS.keys()


def test_no_two_bugs_have_one_name() -> None:
    assert len(BY_NAME) == len(MUTANTS)


def test_every_marked_rule_is_taken_away_by_a_bug() -> None:
    """Each mark (▲) of docs/PROTOCOL.md is one of the named rules, and no bug names another."""
    assert {mutant.marked for mutant in MUTANTS} - {""} == set(MARKED) == set(marked_sections())


def test_a_mark_that_nobody_names_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is marked on the page, or no more, fails the suite until the catalogue knows."""
    page = tmp_path / "PROTOCOL.md"
    monkeypatch.setattr(marks, "PAGE", page)
    text = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")
    page.write_text(text.replace("refused when it is set up.", "refused when it is set up ▲."))
    with pytest.raises(LookupError, match=r"section '2\. The outcome of a put"):
        marked_sections()
    page.write_text(text.replace("judged alone ▲", "judged alone"))
    with pytest.raises(LookupError, match="does not mark judged-alone"):
        marked_sections()


def test_the_page_is_of_this_catalogue() -> None:
    """docs/MUTANTS.md has a row of each bug in the catalogue's words and order, and is what its rows make it. Each was
    found by a run with faults, of kinds that there are, and the row says at which commit.
    """
    rows = read_rows()
    assert [row[:3] for row in rows.values()] == [words(mutant) for mutant in MUTANTS]
    assert PAGE.read_text(encoding="utf-8") == render(list(rows.values()))
    for row in rows.values():
        workload, seed = row[3].split(" ")
        assert workload in BY_NAME[row[0]].workloads
        assert knobs_of(workload, int(seed)).intensity > 0
        assert row[5] == "-" or set(row[5].split(", ")) <= set(ALL_FAULTS)
        assert row[6] == NEEDED or row[6].split(" ")[0] in BY_NAME[row[0]].workloads
        assert re.fullmatch(r"[0-9a-f]{8}\+?", row[7])


@pytest.mark.parametrize("name", SHOWN)
def test_a_bug_is_found_and_the_code_without_it_passes(name: str) -> None:
    (found,) = hunt_all([BY_NAME[name]], first=1_000, budget=60, jobs=1)
    assert found.found
    assert found.faults
    assert run(found.workload, found.seed).ok
