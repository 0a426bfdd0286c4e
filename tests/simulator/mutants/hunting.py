"""Looking for one bug: runs under seed after seed, until one has a finding.

Nothing here imports the engine at the top: a hunt's process puts the bug in first.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from types import FrameType

from tests.simulator.kernel import EndlessError
from tests.simulator.mutants.mutation import Mutant, apply_mutant

RUN_LIMIT_SECONDS = 60
"""Of processor time: what runs beside a hunt has no part in what it finds."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """How the search for one mutant ended; `finding` is empty where it got away."""

    mutant: str
    runs: int
    seconds: float
    workload: str = ""
    seed: int = -1
    finding: str = ""

    @property
    def found(self) -> bool:
        """Whether a run had a finding."""
        return bool(self.finding)


def hunt(mutant: Mutant, *, first: int, budget: int) -> Hunt:
    """Put the bug into this process for good, and run the mutant's workloads in turn, one seed each."""
    apply_mutant(mutant)
    from tests.simulator.runner import run

    signal.signal(signal.SIGPROF, _give_up)
    started = time.monotonic()
    for number in range(budget):
        workload, seed = mutant.workloads[number % len(mutant.workloads)], first + number
        signal.setitimer(signal.ITIMER_PROF, RUN_LIMIT_SECONDS, 1)  # again and again, whoever may swallow it
        try:
            findings = run(workload, seed).findings
        except EndlessError:
            findings = [f"no end after {RUN_LIMIT_SECONDS} s"]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if findings:
            spent = time.monotonic() - started
            return Hunt(mutant.name, number + 1, spent, workload, seed, findings[0])
    return Hunt(mutant.name, budget, time.monotonic() - started)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise EndlessError


def hunt_all(mutants: Sequence[Mutant], *, first: int, budget: int, jobs: int) -> Iterator[Hunt]:
    """Every mutant in a process of its own, so many at once; as they end."""
    queue = list(mutants)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running: set[Future[Hunt]] = {
            pool.submit(hunt, mutant, first=first, budget=budget) for mutant in queue
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
