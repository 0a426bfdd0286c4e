"""Run searches and hunts one after the other and print them as tables."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.console import Console
from rich.status import Status
from rich.table import Table

from tests.numbers import Run
from tests.simulator.explore.configurations import Configuration
from tests.simulator.explore.page import write_search
from tests.simulator.explore.remembering import searching
from tests.simulator.explore.search import Result, Search
from tests.simulator.explore.words import readable

_COUNTS = ("states", "moves", "terminal", "judged", "depth", "local_states", "runs", "seconds")
_SAY_EVERY_SECONDS = 30.0


def search_all(
    configurations: Sequence[Configuration],
    arguments: Sequence[str],
    *,
    states_max: int | None,
    minutes: float | None,
    write: bool,
    out: Console,
    err: Console,
) -> list[Result]:
    """Run each search with a progress line. Print each finding with its schedule, and the table. Each search
    is recorded with the command's `arguments` as soon as it ends, because the next may take days. `minutes`:
    for all of them; the report says what was not searched by then. `write`: into docs/SIMULATOR.md too."""
    until = math.inf if minutes is None else time.monotonic() + minutes * 60
    results = []
    for configuration in configurations:
        err.print(f"{configuration.name}: {configuration.words}; {_bounds(configuration)}")
        begun = Run("explore", arguments)
        with searching(), err.status("") as status:
            results.append(
                Search(configuration, progress=_Said(err, status)).run(states_max=states_max, until=until)
            )
        begun.record(_figures(results[-1]), of=configuration.name)
        if write:
            write_search(configuration, results[-1], begun.code)
        if time.monotonic() >= until and not results[-1].complete:
            err.print(
                f"{configuration.name}: stopped between two states, {minutes:g} minutes over: not all seen"
            )
        for finding in results[-1].findings:
            out.print(f"FINDING {finding.text}", markup=False, soft_wrap=True)
            for line in readable(finding.steps):
                out.print(line, markup=False, soft_wrap=True)
    out.print(_table(results))
    return results


def _figures(result: Result) -> dict[str, object]:
    counts = {name.replace("_", " "): getattr(result, name) for name in _COUNTS}
    return {**counts, "all seen": result.complete, "findings": len(result.findings)}


class _Said:
    """The progress of one search: a line that changes or, if stdout is not a terminal, a line now and
    then."""

    def __init__(self, err: Console, status: Status) -> None:
        self._err, self._status = err, status
        self._said = 0.0

    def __call__(self, result: Result, frontier: int) -> None:
        speed = result.states / max(result.seconds, 0.001)
        text = f"{result.states} states, {speed:.0f} a second, depth {result.depth}, {frontier} to look at"
        self._status.update(text)
        if not self._err.is_terminal and result.seconds - self._said >= _SAY_EVERY_SECONDS:
            self._said = result.seconds
            self._err.print(f"  {text}")


def _bounds(configuration: Configuration) -> str:
    threads = "threads in any order" if configuration.any_order else "threads in turn"
    kinds = ", ".join(sorted(configuration.kinds)) if configuration.faults else "none"
    return f"at most {configuration.faults} faults of: {kinds}; {threads}"


def _table(results: Sequence[Result]) -> Table:
    table = Table("config", *(name.replace("_", " ") for name in _COUNTS), "all seen", "findings")
    for result in results:
        counts = [f"{getattr(result, name):.0f}" for name in _COUNTS]
        seen = "yes" if result.complete else "no"
        table.add_row(result.configuration, *counts, seen, str(len(result.findings)))
    return table
