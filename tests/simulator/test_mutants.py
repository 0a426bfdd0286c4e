"""The catalogue of deliberate bugs fits the code, and the simulator finds what it is shown."""

from __future__ import annotations

import re

import pytest

from tests.simulator.mutants.catalog import MUTANTS
from tests.simulator.mutants.hunting import hunt_all
from tests.simulator.mutants.mutation import Mutant, mutated_source
from tests.simulator.mutants.report import PAGE
from tests.simulator.runner import run
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


def test_the_page_shows_every_bug_found() -> None:
    """docs/MUTANTS.md is of this catalogue, each row in its place with the run that found it."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if " | " in line][1:]
    assert [row[0].removeprefix("| ") for row in rows] == [mutant.name for mutant in MUTANTS]
    where = [re.fullmatch(r"([a-z_]+) [0-9]+", row[3]) for row in rows]
    assert [
        row[0] for row, found in zip(rows, where, strict=True) if found is None or found[1] not in WORKLOADS
    ] == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_bug_is_found_and_the_code_without_it_passes(name: str) -> None:
    (found,) = hunt_all([BY_NAME[name]], first=1_000, budget=60, jobs=1)
    assert found.found
    assert run(found.workload, found.seed).ok
