"""`python -m tests.cuts_under_load --cuts 10000 --folder F` makes and reads this many cuts. Meanwhile real
processes write transactions and are killed, and maintenance compacts, trims, seals and deletes."""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.cuts_under_load.run import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cuts. The exit code is 0 if there are no findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.cuts_under_load", description=__doc__)
    parser.add_argument("--cuts", type=int, default=10_000, help="end after so many (10,000)")
    parser.add_argument("--minutes", type=float, default=600.0, help="or after so long")
    parser.add_argument("--folder", type=Path, required=True, help="for store and journals; must not exist")
    parser.add_argument(
        "--seed", type=int, default=None, help="who is killed; timing is the machine's (random)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the folder where it is, as with findings")
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    console = Console()
    console.print(f"cuts under load: seed {seed}")
    try:
        toll = run(chosen.folder, cuts=chosen.cuts, minutes=chosen.minutes, seed=seed, console=console)
    except KeyboardInterrupt:
        print("stopped; what was started is ended", file=sys.stderr)
        return 130
    if toll.findings or chosen.keep:
        console.print(f"store and journals stay in {chosen.folder}")
    else:
        shutil.rmtree(chosen.folder)
    return 1 if toll.findings else 0


if __name__ == "__main__":
    sys.exit(main())
