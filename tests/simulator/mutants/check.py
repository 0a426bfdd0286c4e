"""`python -m tests.simulator.mutants.check`: say which deliberate bugs no longer fit the code. It takes two seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tests.simulator.explore.producer.bugs import MUTANTS as OF_THE_PRODUCER
from tests.simulator.mutants.catalog import MUTANTS
from tests.simulator.mutants.mutation import DoesNotFitError, Mutant, check_fit


def misfits(mutants: Iterable[Mutant]) -> dict[str, DoesNotFitError]:
    """The bugs that cannot be put into the code as it is, by name, and why."""
    found = {}
    for mutant in mutants:
        try:
            check_fit(mutant)
        except DoesNotFitError as error:
            found[mutant.name] = error
    return found


def main() -> int:
    """Run the command line. Returns 0 if every bug fits."""
    mutants = (*MUTANTS, *OF_THE_PRODUCER)
    wrong = misfits(mutants)
    for name, why in wrong.items():
        print(f"mutant {name}: {why}")
    seams = sum(bool(mutant.replacements) for mutant in mutants)
    print(
        f"{len(mutants) - len(wrong)} of {len(mutants)} mutants fit the code, {seams} of them at named seams"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
