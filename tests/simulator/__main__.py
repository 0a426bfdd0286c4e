"""`python -m tests.simulator run | replay | shrink`: run many seeds, replay one seed, or make one seed's run
short."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from rich.console import Console

from tests.numbers import Run
from tests.simulator.many import run_many
from tests.simulator.runner import RunResult, knobs_of, run
from tests.simulator.shrink import shrink
from tests.simulator.tracing import readable
from tests.simulator.workloads import WORKLOADS

_CONSOLE = Console(stderr=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0 if nothing was found."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(arguments)
    if options.command == "run":
        begun = Run("simulator", arguments)
        summary = run_many(
            options.workload or sorted(WORKLOADS),
            first=options.first,
            seeds=options.seeds,
            minutes=options.minutes,
            jobs=options.jobs,
            console=_CONSOLE,
        )
        if not options.workload:
            begun.record(summary.figures())
        return 1 if summary.failed else 0
    knobs = replace(knobs_of(options.workload, options.seed), **_given(options.knobs))
    result = run(options.workload, options.seed, knobs)
    if options.command == "shrink" and not result.ok:
        result = shrink(
            result, seconds_max=options.seconds, say=lambda line: _CONSOLE.print(f"  {line}", highlight=False)
        )
    _print_run(result, every_event=options.trace)
    return 0 if result.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("run", help="many seeds, each under the next workload in turn")
    many.add_argument("--seeds", type=int, default=100, help="how many runs")
    many.add_argument(
        "--from", type=int, dest="first", default=None, help="the first seed; fresh ones if not given"
    )
    many.add_argument(
        "--workload", choices=sorted(WORKLOADS), action="append", help="only this one (repeatable)"
    )
    many.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    many.add_argument(
        "--minutes", type=float, default=None, help="stop after so long, however many seeds that is"
    )
    for name, words in (("replay", "one run again"), ("shrink", "make a failing run short")):
        one = commands.add_parser(name, help=words)
        one.add_argument("workload", choices=sorted(WORKLOADS))
        one.add_argument("seed", type=int)
        one.add_argument("--knobs", default="{}", help="JSON: knobs that differ from the seed's own")
        one.add_argument("--trace", action="store_true", help="print every event, those that only read too")
        one.add_argument("--seconds", type=float, default=180, help="how long shrinking may take")
    return parser


def _given(text: str) -> dict[str, object]:
    sets = ("only_sites", "without_clients")
    return {name: frozenset(value) if name in sets else value for name, value in json.loads(text).items()}


# --- one run ----------------------------------------------------------------------------------------------


def _print_run(result: RunResult, *, every_event: bool) -> None:
    out = sys.stdout
    if every_event or not result.ok:
        for line in readable(result.trace, every_event=every_event):
            out.write(f"{line}\n")
    own = knobs_of(result.workload, result.seed)
    changed = {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in asdict(result.knobs).items()
        if value != getattr(own, name)
    }
    knobs = f" --knobs '{json.dumps(changed)}'" if changed else ""
    out.write(
        f"{result.workload} {result.seed}: {result.operations} operations, {sum(result.faults.values())} faults "
        f"{dict(result.faults)}, {result.crashes} crashes, transactions {dict(result.transactions)}\n"
        f"trace {result.trace_hash} ({len(result.trace)} events)\n"
        f"again: python -m tests.simulator replay {result.workload} {result.seed}{knobs}\n"
    )
    for finding in result.findings:
        out.write(f"FINDING {finding}\n")
    out.write("nothing found\n" if result.ok else f"{len(result.findings)} findings\n")


if __name__ == "__main__":
    sys.exit(main())
