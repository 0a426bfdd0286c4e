"""`python -m tests.torture --rounds N --seed S [--store minio|local]` runs many rounds and prints their
results."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from collections.abc import Sequence

from tests.numbers import Run
from tests.torture.run import STORES, figures, torture

ROUNDS = 20
LIVES_PER_ROUND = 10
DATABASE_KILLS_PER_ROUND = 25


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds. The exit code is 0 if there are no findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=None, help="rounds on each store (20)")
    parser.add_argument(
        "--minutes", type=float, help="instead of rounds: as many as fit, then stop between two"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a round's storm lasts (5)")
    parser.add_argument(
        "--seed", type=int, default=None, help="what is killed when; timing is the machine's (random)"
    )
    parser.add_argument("--store", choices=[*STORES, "both"], default="both")
    parser.add_argument("--keep", action="store_true", help="leave store and journals where they are")
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    chosen = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    stores = STORES if chosen.store == "both" else (chosen.store,)
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background too: whatever was started is ended
        signal.signal(number, signal.default_int_handler)
    rounds = chosen.rounds
    if rounds is None:
        rounds = ROUNDS if chosen.minutes is None else sys.maxsize
    begun = Run("torture", arguments)
    try:
        toll = torture(
            stores,
            rounds=rounds,
            minutes=chosen.minutes,
            seconds=chosen.seconds,
            seed=seed,
            keep=chosen.keep,
            lives_per_round=LIVES_PER_ROUND,
            database_kills_per_round=DATABASE_KILLS_PER_ROUND,
        )
    except KeyboardInterrupt:
        print("stopped; what was started is ended", file=sys.stderr)
        return 130
    if chosen.store == "both":
        begun.record({"seed": str(seed), **figures(toll)})
    return 1 if toll.findings else 0


if __name__ == "__main__":
    sys.exit(main())
