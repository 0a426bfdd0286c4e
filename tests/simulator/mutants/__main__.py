"""`python -m tests.simulator.mutants`: hunt every mutant (or the named ones), and write their rows of the table."""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from tests.numbers import Run
from tests.simulator.mutants.catalog import MUTANTS
from tests.simulator.mutants.hunting import Hunt, hunt_again, hunt_all
from tests.simulator.mutants.mutation import Mutant
from tests.simulator.mutants.report import dump, read_rows, recorded_run, write_page

_CONSOLE = Console(stderr=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0 if every mutant was found."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(arguments)
    wanted = [mutant for mutant in MUTANTS if not options.name or mutant.name in options.name]
    unknown = set(options.name) - {mutant.name for mutant in wanted}
    if unknown:
        _CONSOLE.print(f"no such mutant: {', '.join(sorted(unknown))}")
        return 2
    if options.missing:
        wanted = [mutant for mutant in wanted if mutant.name not in read_rows()]
    hunts: dict[str, Hunt] = {}
    begun = Run("mutants", arguments)
    missing: list[str] = []
    until = math.inf
    if options.minutes is not None:
        until = time.monotonic() + options.minutes * 60
        random.shuffle(wanted)  # over time each has its turn
    if options.recorded and options.write:
        _CONSOLE.print("--write is for hunts from a first seed on: the page says how many runs they took")
        return 2
    found = (
        find_again(wanted, options.budget)
        if options.recorded
        else hunt_all(wanted, first=options.first, budget=options.budget, jobs=options.jobs, until=until)
    )
    for hunt in found:
        hunts[hunt.mutant] = hunt
        _say(hunt, len(hunts), len(wanted))
        if options.write:
            missing = write_page(MUTANTS, {hunt.mutant: hunt}, code=begun.code)
    if options.json:
        sys.stdout.write(dump(list(hunts.values())) + "\n")
    if missing:
        _CONSOLE.print(f"docs/MUTANTS.md has no row yet of: {', '.join(missing)}", highlight=False)
    missed = [name for name, hunt in hunts.items() if not hunt.found]
    _CONSOLE.print(f"{len(hunts) - len(missed)} of {len(hunts)} mutants found", highlight=False)
    if options.minutes is not None and len(hunts) < len(wanted):
        _CONSOLE.print(
            f"stopped between two hunts, {options.minutes:g} minutes over: {len(wanted) - len(hunts)} not hunted",
            highlight=False,
        )
    elif not (options.name or options.missing or options.recorded):
        begun.record(
            {
                "mutants hunted": len(hunts),
                "mutants found": len(hunts) - len(missed),
                "not found": missed,
                "runs": sum(hunt.runs for hunt in hunts.values()),
                "found without faults": sum(bool(hunt.calm) for hunt in hunts.values()),
            }
        )
    return 1 if missed else 0


def find_again(mutants: Iterable[Mutant], budget: int) -> Iterator[Hunt]:
    """Hunt each of these, beginning with the run that the page records for it."""
    rows = read_rows()
    for mutant in mutants:
        yield hunt_again(mutant, *recorded_run(rows[mutant.name]), budget=budget)


def _say(hunt: Hunt, done: int, of: int) -> None:
    calm = f"without faults {hunt.calm or 'none'}"
    where = f"{hunt.workload} {hunt.seed}, {calm}: {hunt.finding[:120]!r}" if hunt.found else "NOT FOUND"
    _CONSOLE.print(
        f"[{done}/{of}] {hunt.mutant}: {where} ({hunt.runs} runs, {hunt.seconds:.0f} s)",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.mutants", description=__doc__)
    parser.add_argument("--name", action="append", default=[], help="only this mutant (repeatable)")
    parser.add_argument("--missing", action="store_true", help="only those without a row in docs/MUTANTS.md")
    parser.add_argument(
        "--recorded", action="store_true", help="begin with the run that docs/MUTANTS.md records"
    )
    parser.add_argument("--budget", type=int, default=400, help="seeds a mutant")
    parser.add_argument("--minutes", type=float, help="in random order, and begin no hunt after so long")
    parser.add_argument("--from", type=int, dest="first", default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.add_argument("--write", action="store_true", help="write the rows into docs/MUTANTS.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
