"""The catalogue of deliberate bugs fits the code, and the simulator finds the bugs."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.faults import ALL_FAULTS
from tests.simulator.mutants import marks
from tests.simulator.mutants.catalog import MUTANTS
from tests.simulator.mutants.check import misfits
from tests.simulator.mutants.hunting import hunt_again, hunt_all
from tests.simulator.mutants.marks import MARKED, marked_sections
from tests.simulator.mutants.mutation import (
    ROOT,
    CannotBePlantedError,
    DoesNotFitError,
    Edit,
    Mutant,
    Replace,
    apply_mutant,
    check_fit,
    planted,
)
from tests.simulator.mutants.report import (
    NEEDED,
    PAGE,
    read_rows,
    recorded_run,
    render,
    shard_of,
    words,
)
from tests.simulator.runner import knobs_of, run
from tests.simulator.workloads import WORKLOADS
from txn_engine.log import reading, snapshot_format
from txn_engine.protocol import appends, partition, producers

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
HUNTED = "undecided-files-are-live"
"""It is put in as text, by a process of its own, and found by the first runs."""


def test_every_bug_fits_the_code() -> None:
    """Each text is exactly once in its file, its result is Python, and each seam exists with the parameters
    of its replacement. `make check` checks the same."""
    command = [sys.executable, "-m", "tests.simulator.mutants.check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert all(set(mutant.workloads) <= WORKLOADS.keys() for mutant in MUTANTS)


def _other_parameters(entry: object, actor: str) -> None:
    pass


_TEXT = Edit("txn_engine/protocol/producers.py", "BATCHES_TO_RETAIN = 5\n", "BATCHES_TO_RETAIN = 4\n")
_SEAM = Replace("txn_engine.protocol.producers.BATCHES_TO_RETAIN", 4)


@pytest.mark.parametrize(
    "edits",
    [
        (replace(_TEXT, old="is nowhere in it"),),
        (replace(_TEXT, old="producer_epoch"),),
        (replace(_TEXT, new="BATCHES_TO_RETAIN =\n"),),
        (replace(_TEXT, file="txn_engine/protocol/nothing.py"),),
        (replace(_SEAM, seam="txn_engine.protocol.producers.NOTHING"),),
        (replace(_SEAM, seam="txn_engine.protocol.nothing.at_all"),),
        (replace(_SEAM, seam="txn_engine.protocol.producers.ProducerEntry.nothing"),),
        (replace(_SEAM, by="four"),),
        (replace(_SEAM, by=5),),
        (Replace("txn_engine.protocol.producers.check_epoch", _other_parameters),),
        (_TEXT, _SEAM),
        (),
    ],
    ids=[
        "no such text",
        "text twice",
        "no Python",
        "no such file",
        "no such name",
        "no such module",
        "no such method",
        "another type",
        "the same value",
        "other parameters",
        "both kinds",
        "neither kind",
    ],
)
def test_a_bug_that_does_not_fit_is_named(edits: Any) -> None:
    """Whatever has changed below a mutant, the check names it."""
    wrong = Mutant("wrong", "nothing", edits, ())
    assert list(misfits([BY_NAME["no-epoch-check"], wrong])) == ["wrong"]
    with pytest.raises(DoesNotFitError):
        check_fit(wrong)


def test_a_bug_at_a_seam_is_everywhere_and_can_be_taken_out() -> None:
    """A function, a method, a property and a constant are replaced under every name that the code has for
    them. Afterwards everything is as before."""
    find_duplicate = producers.ProducerEntry.find_duplicate
    check_marker, end_of = appends.check_marker, reading.end_of
    state = partition.PartitionState(log_end_offset=7, log_start_offset=2)
    with planted(BY_NAME["a-repeated-marker-is-written-again"]):
        assert appends.check_marker is producers.check_marker is not check_marker
    with planted(BY_NAME["no-duplicate-look-up"]):
        assert producers.ProducerEntry(1, 0).find_duplicate(0, 0, 1) is None
        assert producers.ProducerEntry.find_duplicate is not find_duplicate
    with planted(BY_NAME["lso-of-the-latest"]):
        assert (
            replace(state, open_transactions=state.open_transactions.update({1: 3, 2: 5})).last_stable_offset
            == 5
        )
    with planted(BY_NAME["window-of-four"]):
        assert snapshot_format.BATCHES_TO_RETAIN == producers.BATCHES_TO_RETAIN == 4
    with pytest.raises(ZeroDivisionError), planted(BY_NAME["reader-to-the-end"]):
        1 // (reading.end_of is end_of)
    assert producers.ProducerEntry.find_duplicate is find_duplicate
    assert appends.check_marker is producers.check_marker is check_marker
    assert reading.end_of is end_of
    assert snapshot_format.BATCHES_TO_RETAIN == producers.BATCHES_TO_RETAIN == 5
    assert (
        replace(state, open_transactions=state.open_transactions.update({1: 3, 2: 5})).last_stable_offset == 3
    )


def test_a_bug_in_text_cannot_be_taken_out() -> None:
    """A bug in text cannot be put in for a while, and not at all after its module was imported."""
    mutant = Mutant("window", "nothing", (_TEXT,), ())
    with pytest.raises(CannotBePlantedError), planted(mutant):
        pass
    with pytest.raises(CannotBePlantedError):
        apply_mutant(mutant)


def test_no_two_bugs_have_one_name() -> None:
    assert len(BY_NAME) == len(MUTANTS)


def test_every_marked_rule_is_taken_away_by_a_bug() -> None:
    """Each mark (▲) of docs/PROTOCOL.md is one of the named rules, and no bug names another."""
    assert {mutant.marked for mutant in MUTANTS} - {""} == set(MARKED) == set(marked_sections())


def test_a_mark_that_nobody_names_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is newly marked on the page, or no longer marked, fails the suite until the catalogue follows."""
    page = tmp_path / "PROTOCOL.md"
    monkeypatch.setattr(marks, "PAGE", page)
    text = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")
    page.write_text(text.replace("refused when it is set up.", "refused when it is set up ▲."))
    with pytest.raises(marks.WrongMarkError) as unknown:
        marked_sections()
    assert unknown.value.names == ()
    assert unknown.value.section == "2"
    page.write_text(text.replace("judged alone ▲", "judged alone"))
    with pytest.raises(marks.WrongMarkError) as missing:
        marked_sections()
    assert missing.value.names == ("judged-alone",)


def test_the_page_is_of_this_catalogue() -> None:
    """docs/MUTANTS.md has a row for each bug, in the catalogue's words and order, and no others. Each bug was found by
    a run with faults of known kinds, at a commit that the row names.
    """
    rows = read_rows()
    assert [row[:4] for row in rows.values()] == [words(mutant) for mutant in MUTANTS]
    assert PAGE.read_text(encoding="utf-8") == render(list(rows.values()))
    for row in rows.values():
        workload, seed = recorded_run(row)
        assert workload in BY_NAME[row[0]].workloads
        assert knobs_of(workload, seed).intensity > 0
        assert row[6] == "-" or set(row[6].split(", ")) <= set(ALL_FAULTS)
        assert row[7] == NEEDED or row[7].split(" ")[0] in BY_NAME[row[0]].workloads
        assert re.fullmatch(r"[0-9a-f]{8}\+?", row[8])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.shard(shard)) if (shard := shard_of(name)) else name
        for name in BY_NAME
    ],
)
def test_a_bug_is_found_and_the_code_without_it_passes(name: str) -> None:
    """The run that docs/MUTANTS.md records finds the bug. If the code has changed since, a few other runs are tried."""
    found = hunt_again(BY_NAME[name], *recorded_run(read_rows()[name]), budget=400)
    assert found.found
    knobs = knobs_of(found.workload, found.seed)
    local_store = knobs.local_store or BY_NAME[name].local
    assert run(found.workload, found.seed, replace(knobs, local_store=local_store)).ok


@pytest.mark.shard("simulator")
def test_a_hunt_finds_a_bug_with_faults_and_without() -> None:
    """A hunt runs seed after seed, with the bug's workloads in turn, and finds the bug with faults and
    without."""
    mutant = BY_NAME[HUNTED]
    (found,) = hunt_all([mutant], first=0, budget=60, jobs=1)
    assert found.found
    assert found.faults
    assert found.calm
    assert found.workload in mutant.workloads
