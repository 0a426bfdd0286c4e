"""`python -m tests.fuzz`: cases in a process of their own, as long as asked for; each failure with its seed.

--minutes 60          as long; by default 1
--cases 1000          as many, instead
--seed today          the first part of each case's name; by default a fresh one
--case SEED/NUMBER    this one alone, here, with all it does
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.cases import run_case
from tests.fuzz.ledger import build
from tests.fuzz.running import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", default=f"{int(time.time())}")
    parser.add_argument("--case")
    asked = parser.parse_args()
    if asked.case:
        result = run_case(asked.case, build())
        print(
            result.what,
            *result.outcomes,
            f"{result.memory >> 20} MiB",
            result.failure or "as it should be",
            sep="\n",
        )
        return bool(result.failure)
    return run(asked.seed, minutes=asked.minutes, cases=asked.cases)


if __name__ == "__main__":
    sys.exit(main())
