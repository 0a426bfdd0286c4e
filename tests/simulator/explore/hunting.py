"""Deliberate bugs of the catalogue are hunted in these configurations, each in a process of its own, in
dives.

Nothing here imports the engine at the top, because a hunt's process puts the bug in first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from tests.simulator.explore.producer.bugs import MUTANTS as OF_THE_PRODUCER
from tests.simulator.mutants.mutation import Mutant, apply_mutant

STATES_MAX = 15_000

PRODUCER = "producer"
"""The name of the search of the producer's machine, which is none of the store's configurations."""

WHERE = {
    "conflict-is-a-lost-race": "e",
    "only-a-part-is-compared": "e",
    "no-write-id-of-its-own": "a",
    "verdict-carried-over": "a",
    "judged-on-the-old-state": "a",
    "no-epoch-check": "a",
    "marker-without-fencing": "a",
    "lso-is-the-log-end": "a",
    "lso-off-by-one": "a",
    "undecided-files-are-live": "a",
    "abort-read-as-commit": "b",
    "reader-to-the-end": "b",
    "aborted-files-are-read": "b",
    "end-ignores-the-epoch": "a",
    "init-does-not-fence": "a",
    "init-does-not-wait": "a",
    "fence-without-a-bump": "b",
    "add-partitions-ignores-the-epoch": "a",
    "complete-without-its-decision": "c",
    "time-out-without-a-second-look": "b",
    "markers-for-the-first-partition": "d",
    "markers-where-data-is": "b",
    "complete-before-the-markers": "f",
    "a-refused-marker-is-done": "f",
    "markers-before-the-decision": "b",
    "append-before-add-partitions": "h",
    "a-fenced-commit-is-a-success": "a",
    "the-end-without-waiting": "b",
    "a-row-stands-for-those-that-wait": PRODUCER,
    "a-failed-write-may-commit": PRODUCER,
    **{mutant.name: PRODUCER for mutant in OF_THE_PRODUCER},
}
"""Which configuration to look for a bug in."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """How the search for one mutant ended. `finding` is empty if the mutant was not found."""

    mutant: str
    configuration: str
    states: int
    steps: int
    seconds: float
    finding: str


def hunt(mutant: Mutant, configuration: str, states_max: int) -> Hunt:
    """Put the bug into this process for good, and search."""
    apply_mutant(mutant)
    if configuration == PRODUCER:
        return _hunt_in_the_machine(mutant.name)
    from tests.simulator.explore.configurations import CONFIGURATIONS
    from tests.simulator.explore.remembering import searching
    from tests.simulator.explore.search import Search

    with searching():
        result = Search(CONFIGURATIONS[configuration]).run(states_max=states_max, dives=True)
    found = result.findings[0] if result.findings else None
    text, steps = (found.text, len(found.steps)) if found is not None else ("", 0)
    return Hunt(mutant.name, configuration, result.states, steps, result.seconds, text)


def _hunt_in_the_machine(name: str) -> Hunt:
    """Search breadth first, so that the schedule is the shortest one."""
    from tests.simulator.explore.producer.report import search_in_turn

    states, seconds = 0, 0.0
    for _, result in search_in_turn():
        states, seconds = states + result.states, seconds + result.seconds
        for found in result.findings:
            return Hunt(name, PRODUCER, states, len(found.steps), seconds, found.text)
    return Hunt(name, PRODUCER, states, 0, seconds, "")


def hunt_all(names: Sequence[str], *, states_max: int = STATES_MAX) -> Iterator[Hunt]:
    """Hunt each of these bugs, one after the other."""
    from tests.simulator.mutants.catalog import MUTANTS  # it imports the engine

    by_name = {mutant.name: mutant for mutant in (*MUTANTS, *OF_THE_PRODUCER)}
    for name in names:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            yield pool.submit(hunt, by_name[name], WHERE[name], states_max).result()
