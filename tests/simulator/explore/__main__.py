"""`python -m tests.simulator.explore`: search the small configurations, or hunt deliberate bugs with them.

The engine is imported late, because a hunt's process puts its bug in first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from tests.numbers import Run
from tests.simulator.explore.hunting import PRODUCER, STATES_MAX, WHERE, hunt_all

_CONSOLE = Console(stderr=True, highlight=False)
_OUT = Console(width=120, highlight=False)
_KINDS = ("late", "lost", "conflict", "taken-after", "unread", "crash")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0 if nothing was found or, with --mutants, if each bug was found."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(arguments)
    if options.mutants or options.name:
        return _hunt(options, Run("explore-mutants", arguments))
    if options.write and (options.faults is not None or options.kind or options.any_order or options.minutes):
        _CONSOLE.print("--write is for the configurations' own bounds: the page says no others")
        return 2
    from tests.simulator.explore.configurations import CONFIGURATIONS
    from tests.simulator.explore.page import STATES_MAX as WRITTEN_STATES_MAX
    from tests.simulator.explore.producer.report import explore_producer
    from tests.simulator.explore.report import search_all

    names = options.config or [*CONFIGURATIONS, PRODUCER]
    configurations = [CONFIGURATIONS[name] for name in names if name != PRODUCER]
    chosen = [
        replace(
            own,
            faults=own.faults if options.faults is None else options.faults,
            kinds=frozenset(options.kind or own.kinds),
            any_order=own.any_order or options.any_order,
        )
        for own in configurations
    ]
    is_well = True
    if PRODUCER in names:
        is_well = explore_producer(
            arguments,
            faults=options.faults,
            states_max=options.limit_states,
            minutes=options.minutes,
            write=options.write,
            out=_OUT,
            err=_CONSOLE,
        )
    if not chosen:
        return 0 if is_well else 1
    results = search_all(
        chosen,
        arguments,
        states_max=options.limit_states or (WRITTEN_STATES_MAX if options.write else None),
        write=options.write,
        minutes=options.minutes,
        out=_OUT,
        err=_CONSOLE,
    )
    return 1 if not is_well or any(result.findings for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.explore", description=__doc__)
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        help="only this one (repeatable); producer: its machine",
    )
    parser.add_argument("--faults", type=int, help="faults a schedule, instead of the configuration's own")
    parser.add_argument("--kind", action="append", choices=_KINDS, help="kinds of faults (repeatable)")
    parser.add_argument("--any-order", action="store_true", help="threads of one process interleave as well")
    parser.add_argument("--limit-states", type=int, help="stop after so many: then it is no whole search")
    parser.add_argument("--minutes", type=float, help="stop after so long: then it is no whole search either")
    parser.add_argument("--mutants", action="store_true", help="hunt deliberate bugs instead")
    parser.add_argument(
        "--name", action="append", default=[], choices=sorted(WHERE), help="this bug (repeatable)"
    )
    parser.add_argument("--write", action="store_true", help="write the rows into docs/SIMULATOR.md")
    return parser


def _hunt(options: argparse.Namespace, begun: Run) -> int:
    from tests.simulator.explore.page import write_hunt

    hunts = []
    for hunt in hunt_all(options.name or list(WHERE), states_max=options.limit_states or STATES_MAX):
        hunts.append(hunt)
        if options.write:
            write_hunt(hunt, begun.code)
        _OUT.print(
            f"{hunt.mutant} | {hunt.configuration} | {hunt.states} states | {hunt.seconds:.1f} s | "
            + (f"{hunt.steps} steps | {hunt.finding[:110]}" if hunt.finding else "NOT FOUND"),
            markup=False,
            soft_wrap=True,
        )
    missed = [hunt.mutant for hunt in hunts if not hunt.finding]
    if not options.name:
        begun.record(
            {
                "mutants hunted": len(hunts),
                "mutants found": len(hunts) - len(missed),
                "not found": missed,
                "states": sum(hunt.states for hunt in hunts),
            }
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
