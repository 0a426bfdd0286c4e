"""`python -m tests.differential` runs programs on Apache Kafka and on the engine, and shows what differs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.differential.comparison import Comparison
from tests.differential.laboratory import Laboratory, shrink
from tests.differential.programs import KINDS, generate
from tests.differential.report import Tally, trace
from tests.numbers import Run
from tests.support.kafka_server import kafka_jars

PROGRAMS_A_BROKER = 300
PROGRAMS_A_BROKER_IN_TIME = 60
PROGRAMS_A_WORD = 50
ENOUGH_FOR_EVERY_DIFFERENCE = 1_000
SHOWN_DIFFERENCES = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs and print the figures. The exit code is 1 if there is a difference that nobody has
    reviewed."""
    options = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    options.add_argument("--programs", type=int, default=200)
    options.add_argument(
        "--minutes", type=float, help="instead: as many as fit, and stop before the next broker"
    )
    options.add_argument("--seed", type=int, default=1, help="the first program's; the others follow")
    options.add_argument("--threads", type=int, default=6)
    options.add_argument("--kind", choices=KINDS, help="only programs of this kind")
    options.add_argument("--no-shrink", action="store_true", help="show differing programs as they are")
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    chosen = options.parse_args(arguments)
    jars = kafka_jars()
    if jars is None:
        print("no jars of Kafka: run .ci/setup-kafka")
        return 2
    tally, started, begun = Tally(), time.monotonic(), Run("differential", arguments)

    def said(comparison: Comparison) -> None:
        tally.add(comparison)
        done = tally.programs.total()
        if done % PROGRAMS_A_WORD == 0 or done == chosen.programs:
            print(f"{done} programs after {time.monotonic() - started:.0f} s", flush=True)

    in_time = chosen.minutes is not None
    seeds = range(chosen.seed, chosen.seed + (sys.maxsize >> 1 if in_time else chosen.programs))
    size = PROGRAMS_A_BROKER_IN_TIME if in_time else PROGRAMS_A_BROKER
    for at in range(0, len(seeds), size):
        if in_time and time.monotonic() - started >= chosen.minutes * 60:
            print(f"stopped between two brokers, {chosen.minutes:g} minutes over")
            break
        programs = [generate(seed, chosen.kind) for seed in seeds[at : at + size]]
        with Laboratory(jars, programs) as laboratory:
            known = len(tally.differing)
            laboratory.run_all(said, chosen.threads)
            for comparison in tally.differing[known:][:SHOWN_DIFFERENCES]:
                print(trace(comparison if chosen.no_shrink else shrink(laboratory, comparison)), flush=True)
    print("\n".join(tally.lines()))
    if chosen.kind is None:
        begun.record(tally.figures())
    unused = (
        tally.unused if tally.programs.total() >= ENOUGH_FOR_EVERY_DIFFERENCE and chosen.kind is None else []
    )
    if unused:
        print(f"reviewed differences that no program met: {', '.join(unused)}")
    if tally.is_cut_too_much:
        print("reviewed differences cut too much of the programs: bring both sides to one state behind them")
    return 1 if tally.differing or unused or tally.is_cut_too_much else 0


if __name__ == "__main__":
    sys.exit(main())
