"""The smallest configuration is searched completely, and the searches find deliberate bugs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulator.explore.configurations import CONFIGURATIONS, Configuration
from tests.simulator.explore.contents import Library
from tests.simulator.explore.hunting import PRODUCER, WHERE, hunt_all
from tests.simulator.explore.page import (
    COLUMNS,
    HUNTS,
    MACHINE,
    PAGE,
    SEARCHES,
    STATES_MAX,
    hunt_words,
    machine_words,
    read_rows,
    render,
    search_words,
    write_search,
)
from tests.simulator.explore.producer.bugs import MUTANTS as OF_THE_PRODUCER
from tests.simulator.explore.producer.world import SEARCHES as SOUGHT
from tests.simulator.explore.remembering import searching
from tests.simulator.explore.search import Result, Search
from tests.simulator.explore.words import readable
from tests.simulator.mutants.catalog import MUTANTS
from tests.suite.tiers import in_shard

SHOWN = ("judged-on-the-old-state", "conflict-is-a-lost-race")
"""A few bugs that are found again: the first in `make test`, the others in the shard."""


def _search(configuration: Configuration, *, states_max: int | None = None) -> Result:
    with searching():
        return Search(configuration).run(states_max=states_max)


def _check(result: Result) -> None:
    lines = [line for finding in result.findings for line in (finding.text, *readable(finding.steps))]
    assert not result.findings, "\n".join(lines)


def test_two_sweepers_and_a_crash_anywhere_are_seen_whole() -> None:
    """A complete search finds nothing wrong, and a second search sees exactly the same."""
    first, again = _search(CONFIGURATIONS["d"]), _search(CONFIGURATIONS["d"])
    _check(first)
    assert first.complete
    assert first.terminal
    assert first.judged
    assert (again.states, again.moves, again.terminal) == (first.states, first.moves, first.terminal)


@pytest.mark.parametrize("states_max", in_shard("simulator", [500, None], keep=1))
def test_two_sweepers_whose_threads_interleave(states_max: int | None) -> None:
    """The search of interleaving threads finds nothing wrong: in its first states in `make test`, and in all
    of them in the shard."""
    in_turn = replace(CONFIGURATIONS["d"], faults=0)
    any_order = _search(replace(in_turn, any_order=True), states_max=states_max)
    _check(any_order)
    assert any_order.complete == (states_max is None)
    assert any_order.states > _search(in_turn).states


@pytest.mark.parametrize("states_max", in_shard("simulator", [500, None], keep=1))
def test_every_fault_of_two_sweepers_puts(states_max: int | None) -> None:
    """A late put, a 409 with nothing written, or a 412 to the winner, once and anywhere, leads to no finding:
    in the first states in `make test`, and in all of them in the shard."""
    kinds = frozenset({"late", "conflict", "taken-after"})
    result = _search(replace(CONFIGURATIONS["d"], kinds=kinds), states_max=states_max)
    _check(result)
    assert result.complete == (states_max is None)


@pytest.mark.parametrize("name", ["a", "b", "c", "e", "f"])
def test_the_beginning_of_the_larger_ones(name: str) -> None:
    """The beginning of the larger configurations has no findings. `make explore` searches them completely."""
    result = _search(CONFIGURATIONS[name], states_max=500)
    _check(result)
    assert result.states >= 500


def test_contents_are_the_same_whatever_the_way_to_them() -> None:
    library = Library()
    one, two = library.number_of("topics/t/0/0/data/x", b"1"), library.number_of("topics/t/0/0/data/y", b"2")
    first, _ = library.put(library.put(library.empty, one)[0], two)
    second, _ = library.put(library.put(library.empty, two)[0], one)
    assert first is second
    assert first is not library.empty


def test_the_bugs_to_find_are_of_the_catalogue() -> None:
    assert WHERE.keys() <= {mutant.name for mutant in (*MUTANTS, *OF_THE_PRODUCER)}
    assert set(WHERE.values()) <= {*CONFIGURATIONS, PRODUCER}


def test_the_page_is_of_these_configurations_and_bugs() -> None:
    """docs/SIMULATOR.md has a row for each search and each hunt and for no other, in the generator's form and
    order, counted at a named commit. No search has a finding or was cut below the page's limit, and every bug
    was found."""
    searches, hunts, machine = read_rows(SEARCHES), read_rows(HUNTS), read_rows(MACHINE)
    assert [row[:2] for row in searches.values()] == [search_words(each) for each in CONFIGURATIONS.values()]
    assert [row[:2] for row in machine.values()] == [machine_words(each) for each in SOUGHT]
    assert [row[:2] for row in hunts.values()] == [hunt_words(name) for name in WHERE]
    text = PAGE.read_text(encoding="utf-8")
    for command, rows in ((SEARCHES, searches), (MACHINE, machine), (HUNTS, hunts)):
        assert f"<!-- made by {command} -->\n\n{render(command, rows)}\n<!-- to here -->\n" in text
        for row in rows.values():
            cells = dict(zip(COLUMNS[command], row, strict=True))
            assert re.fullmatch(r"[0-9a-f]{8}\+?", cells["code"])
            assert re.fullmatch(r"[0-9,]+", cells["states"])
    for row in searches.values():
        cells = dict(zip(COLUMNS[SEARCHES], row, strict=True))
        assert cells["seen whole"] == "yes" or int(cells["states"].replace(",", "")) >= STATES_MAX
    assert not any("**" in cell for row in hunts.values() for cell in row)
    assert all("yes" in row for row in machine.values())


def test_the_smallest_search_counts_what_the_page_says(tmp_path: Path) -> None:
    """The page's row of the smallest search belongs to this code: a search that is written again changes
    nothing but the commit."""
    page = tmp_path / "SIMULATOR.md"
    page.write_text(PAGE.read_text(encoding="utf-8"))
    name, _ = search_words(CONFIGURATIONS["d"])
    write_search(CONFIGURATIONS["d"], _search(CONFIGURATIONS["d"]), read_rows(SEARCHES)[name][-1], page)
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", in_shard("simulator", SHOWN, keep=1))
def test_a_few_bugs_are_found_again(name: str) -> None:
    (hunt,) = hunt_all([name])
    assert hunt.finding
    assert hunt.steps
