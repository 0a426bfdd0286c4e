"""`python -m tests.differential`: programs on Apache Kafka and on the engine, and what differs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.differential.comparison import Comparison
from tests.differential.kafka_server import kafka_jars
from tests.differential.laboratory import Laboratory, shrink
from tests.differential.programs import KINDS, generate
from tests.differential.report import Tally, trace
from tests.numbers import Run

PROGRAMS_A_BROKER = 300
PROGRAMS_A_WORD = 50
ENOUGH_FOR_EVERY_DIFFERENCE = 1_000
SHOWN_DIFFERENCES = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, say the figures, and end with 1 where something differs that nobody has reviewed."""
    options = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    options.add_argument("--programs", type=int, default=200)
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
            print(
                f"{done} of {chosen.programs} programs after {time.monotonic() - started:.0f} s", flush=True
            )

    seeds = range(chosen.seed, chosen.seed + chosen.programs)
    for at in range(0, len(seeds), PROGRAMS_A_BROKER):
        programs = [generate(seed, chosen.kind) for seed in seeds[at : at + PROGRAMS_A_BROKER]]
        with Laboratory(jars, programs) as laboratory:
            known = len(tally.differing)
            laboratory.run_all(said, chosen.threads)
            for comparison in tally.differing[known:][:SHOWN_DIFFERENCES]:
                print(trace(comparison if chosen.no_shrink else shrink(laboratory, comparison)), flush=True)
    print("\n".join(tally.lines()))
    if chosen.kind is None:
        begun.record(tally.figures())
    unused = tally.unused if chosen.programs >= ENOUGH_FOR_EVERY_DIFFERENCE and chosen.kind is None else []
    if unused:
        print(f"reviewed differences that no program met: {', '.join(unused)}")
    return 1 if tally.differing or unused else 0


if __name__ == "__main__":
    sys.exit(main())
