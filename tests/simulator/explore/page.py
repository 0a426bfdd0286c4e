"""The three tables of docs/SIMULATOR.md that the explorer counts: what was searched, and which bugs it found.

Nothing is typed by hand: a search or a hunt with `--write` replaces its own row, which names the commit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.simulator.explore.configurations import CONFIGURATIONS, Configuration
from tests.simulator.explore.hunting import WHERE, Hunt
from tests.simulator.explore.producer.searching import Result as MachineResult
from tests.simulator.explore.producer.world import SEARCHES as SOUGHT
from tests.simulator.explore.producer.world import Sought
from tests.simulator.explore.search import Result
from tests.simulator.mutants.mutation import ROOT
from tests.simulator.mutants.report import shortened

PAGE = ROOT / "docs" / "SIMULATOR.md"
STATES_MAX = 250_000
"""A search that is written into the page ends here, unless told."""

SEARCHES, HUNTS = "make explore ARGS=--write", 'make explore ARGS="--mutants --write"'
MACHINE = 'make explore ARGS="--config producer --write"'
COLUMNS = {
    SEARCHES: (
        *("configuration", "at most", "states", "moves", "ends", "judged", "depth", "runs of the code"),
        *("seen whole", "code"),
    ),
    MACHINE: ("producer", "at most", "states", "moves", "depth", "machines", "seen whole", "code"),
    HUNTS: ("bug", "configuration", "states", "steps of the schedule", "code", "finding"),
}
"""Each table by the command that writes it, which stands in the marks around it."""


def write_search(configuration: Configuration, result: Result, code: str, page: Path = PAGE) -> None:
    """Replace the row of a configuration that was searched within its own bounds."""
    counts = (result.states, result.moves, result.terminal, result.judged, result.depth, result.runs)
    seen = "yes" if result.complete else "no"
    row = (*search_words(configuration), *(f"{count:,}" for count in counts), seen, code)
    _write(page, SEARCHES, {row[0]: row}, [search_words(each)[0] for each in CONFIGURATIONS.values()])


def write_machine(sought: Sought, result: MachineResult, code: str, page: Path = PAGE) -> None:
    """Replace the row of a search of the producer's machine within its own bounds."""
    counts = (result.states, result.moves, result.depth, result.machines)
    seen = "yes" if result.complete else "no"
    row = (*machine_words(sought), *(f"{count:,}" for count in counts), seen, code)
    _write(page, MACHINE, {row[0]: row}, [machine_words(each)[0] for each in SOUGHT])


def machine_words(sought: Sought) -> tuple[str, str]:
    """The beginning of its row."""
    return (f"`{sought.name}`: {sought.setting.words}", sought.bounds.words)


def write_hunt(hunt: Hunt, code: str, page: Path = PAGE) -> None:
    """Replace the row of a bug that was hunted."""
    steps, finding = (f"{hunt.steps:,}", shortened(hunt.finding)) if hunt.finding else ("-", "**not found**")
    row = (*hunt_words(hunt.mutant), f"{hunt.states:,}", steps, code, finding)
    _write(page, HUNTS, {row[0]: row}, [hunt_words(name)[0] for name in WHERE])


def search_words(configuration: Configuration) -> tuple[str, str]:
    """The beginning of its row: what was searched, and within which bounds."""
    kinds = ", ".join(sorted(configuration.kinds))
    bounds = f"{configuration.faults} of: {kinds}" if configuration.faults else "no fault"
    return (f"`{configuration.name}`: {configuration.words}", bounds)


def hunt_words(name: str) -> tuple[str, str]:
    """The beginning of a bug's row."""
    return (f"`{name}`", f"`{WHERE[name]}`")


def read_rows(command: str, page: Path = PAGE) -> dict[str, tuple[str, ...]]:
    """The rows of one table, by their first cell."""
    table = _table(command).search(page.read_text(encoding="utf-8"))
    if table is None:
        raise LookupError(f"{page} has no table of {command!r}")
    lines = table[2].splitlines()[2:]
    rows = [tuple(line.removeprefix("| ").removesuffix(" |").split(" | ")) for line in lines]
    return {row[0]: row for row in rows}


def render(command: str, rows: Mapping[str, tuple[str, ...]]) -> str:
    """The table with these rows."""
    columns = COLUMNS[command]
    table = [columns, ("---",) * len(columns), *rows.values()]
    return "".join(f"| {' | '.join(row)} |\n" for row in table)


def _write(page: Path, command: str, rows: Mapping[str, tuple[str, ...]], order: list[str]) -> None:
    known = read_rows(command, page) | rows
    text = render(command, {name: known[name] for name in order if name in known})
    written = page.read_text(encoding="utf-8")
    page.write_text(
        _table(command).sub(lambda old: old[1] + text + old[3], written, count=1), encoding="utf-8"
    )


def _table(command: str) -> re.Pattern[str]:
    begin = re.escape(f"<!-- made by {command} -->\n\n")
    return re.compile(rf"({begin})((?:\|.*\n)*)(\n<!-- to here -->\n)")
