"""Run the searches of the producer's machine one after the other and print what was seen and what was not."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from tests.numbers import Run
from tests.simulator.explore.page import write_machine
from tests.simulator.explore.producer.rules import CALLS, RULES, Seen
from tests.simulator.explore.producer.searching import Result, Search
from tests.simulator.explore.producer.world import SEARCHES, Sought
from txn_engine.producer.states import ProducerState

_COUNTS = ("states", "moves", "depth", "machines", "seconds")


def search_in_turn(
    faults: int | None = None,
    *,
    states_max: float = math.inf,
    until: float = math.inf,
    searches: Sequence[Sought] = SEARCHES,
) -> Iterator[tuple[Sought, Result]]:
    """Run each search, up to the first finding. `seen` is one for all of them."""
    seen = Seen()
    for own in searches:
        bounds = own.bounds if faults is None else replace(own.bounds, faults=faults)
        result = Search(own.setting, bounds, seen).run(states_max=states_max, until=until)
        yield replace(own, bounds=bounds), result
        if result.findings:
            return


def explore_producer(
    arguments: Sequence[str],
    *,
    faults: int | None,
    states_max: int | None,
    minutes: float | None,
    write: bool,
    out: Console,
    err: Console,
) -> bool:
    """Search, print and record. Returns whether nothing was found and, if everything was searched, nothing
    was missed."""
    until = math.inf if minutes is None else time.monotonic() + minutes * 60
    begun = Run("explore", arguments)
    results = []
    for sought, result in search_in_turn(faults, states_max=states_max or math.inf, until=until):
        results.append((sought, result))
        err.print(f"producer, {sought.name}: {result.states} states, {result.seconds:.0f} s")
        if write:
            write_machine(sought, result, begun.code)
        for finding in result.findings:
            out.print(f"FINDING {finding.text}", markup=False, soft_wrap=True)
            for number, step in enumerate(finding.steps, 1):
                out.print(f"{number:4}  {step}", markup=False, soft_wrap=True)
    found = any(result.findings for _, result in results)
    complete = all(result.complete for _, result in results)
    seen = results[-1][1].seen
    out.print(_counts(results))
    out.print(_seen_table(seen))
    missing = seen.missing()
    for each in missing:
        out.print(f"{'NEVER SEEN' if complete else 'not seen yet'}: {each}", markup=False)
    begun.record(
        {
            **{name: sum(getattr(result, name) for _, result in results) for name in ("states", "moves")},
            "rules": len(RULES),
            "all seen": complete,
            "states of the machine": len(seen.states),
            "moves between them": len(seen.moves),
            "missing": missing,
            "findings": sum(len(result.findings) for _, result in results),
        },
        of="producer",
    )
    return not found and not (complete and missing)


def _counts(results: Sequence[tuple[Sought, Result]]) -> Table:
    table = Table("producer", *_COUNTS, "all seen", "findings")
    for sought, result in results:
        counts = [f"{getattr(result, name):.0f}" for name in _COUNTS]
        seen = "yes" if result.complete else "no"
        table.add_row(f"{sought.name}: {sought.bounds.words}", *counts, seen, str(len(result.findings)))
    return table


def _seen_table(seen: Seen) -> Table:
    """The machine's states, with the states before each and the calls that were made there."""
    table = Table("state", "reached from", *(call.split("_")[0] for call in CALLS))
    for state in ProducerState:
        before = sorted({left for left, reached in seen.moves if reached is state})
        calls = ["x" if (state, call) in seen.calls else "" for call in CALLS]
        table.add_row(state if state in seen.states else f"{state}: never", ", ".join(before), *calls)
    return table
