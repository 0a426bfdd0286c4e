"""Hunt one bug: run seed after seed until one has a finding.

Nothing here imports the engine at the top, because a hunt's process puts the bug in first.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from math import inf
from multiprocessing import get_context
from types import FrameType

from tests.simulator.kernel import EndlessError
from tests.simulator.knobs import Knobs
from tests.simulator.mutants.mutation import Mutant, apply_mutant, planted

RUN_LIMIT_SECONDS = 60
"""Of processor time: what runs beside a hunt has no part in what it finds."""


CALM_RUNS = 10
"""So many runs without faults show whether a fault was needed."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """How the search for one mutant ended. `finding` is empty if the mutant was not found.

    `faults`: kinds of fault that the run with the finding injected, and how often. `calm`: the first run with
    a finding in which nothing fails, no clock is off and no process dies. It is empty if `CALM_RUNS` of them
    found nothing.
    """

    mutant: str
    runs: int
    seconds: float
    workload: str = ""
    seed: int = -1
    finding: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    calm: str = ""

    @property
    def found(self) -> bool:
        """Whether a run had a finding."""
        return bool(self.finding)


def hunt(mutant: Mutant, *, first: int, budget: int) -> Hunt:
    """Put the bug into this process for good, and run the mutant's workloads in turn, one seed each, from seed `first`
    on. Seeds without faults are skipped. If the bug is found, look for it without faults as well.
    """
    apply_mutant(mutant)
    signal.signal(signal.SIGPROF, _give_up)
    started = time.monotonic()
    runs = 0
    for workload, seed, knobs in islice(_tries_with_faults(mutant, first), budget):
        runs += 1
        findings, faults = _findings(workload, seed, knobs)
        if findings and faults != {}:
            calm = _calm_finding(mutant, first)
            spent = time.monotonic() - started
            return Hunt(mutant.name, runs, spent, workload, seed, findings[0], faults or {}, calm)
    return Hunt(mutant.name, runs, time.monotonic() - started)


def hunt_again(mutant: Mutant, workload: str, seed: int, *, budget: int) -> Hunt:
    """Hunt a bug beginning with the run that found it once, which may be another run by now because the code
    has changed.

    The hunt runs in this process if the bug can be taken out again, and otherwise in a process of its own. It
    has no runs without faults.
    """
    if mutant.replacements:
        from tests.simulator.patches import engine_modules

        engine_modules()  # what is imported later would keep the bug
        with planted(mutant):
            return _hunt_from(mutant, workload, seed, budget)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_hunt_with_edits, mutant, workload, seed, budget).result()


def _hunt_with_edits(mutant: Mutant, workload: str, seed: int, budget: int) -> Hunt:
    apply_mutant(mutant)
    return _hunt_from(mutant, workload, seed, budget)


def _hunt_from(mutant: Mutant, workload: str, seed: int, budget: int) -> Hunt:
    from tests.simulator.runner import knobs_of

    started, runs = time.monotonic(), 0
    first = workload, seed, _knobs(mutant, knobs_of(workload, seed))
    before = signal.signal(signal.SIGPROF, _give_up)
    try:
        for runs, (name, number, knobs) in enumerate(
            islice(chain([first], _tries_with_faults(mutant, 0)), budget), start=1
        ):
            findings, faults = _findings(name, number, knobs)
            if findings and faults != {}:
                return Hunt(
                    mutant.name, runs, time.monotonic() - started, name, number, findings[0], faults or {}
                )
    finally:
        signal.signal(signal.SIGPROF, before)
    return Hunt(mutant.name, runs, time.monotonic() - started)


def _knobs(mutant: Mutant, knobs: Knobs) -> Knobs:
    return replace(knobs, local_store=True) if mutant.local else knobs


def _tries(mutant: Mutant, first: int) -> Iterator[tuple[str, int, Knobs]]:
    from tests.simulator.runner import knobs_of

    for number in count():
        workload, seed = mutant.workloads[number % len(mutant.workloads)], first + number
        yield workload, seed, _knobs(mutant, knobs_of(workload, seed))


def _tries_with_faults(mutant: Mutant, first: int) -> Iterator[tuple[str, int, Knobs]]:
    return (each for each in _tries(mutant, first) if each[2].intensity > 0)


def _calm_finding(mutant: Mutant, first: int) -> str:
    for workload, seed, knobs in islice(_tries(mutant, first), CALM_RUNS):
        if _findings(workload, seed, replace(knobs, intensity=0.0, skewed_clocks=False))[0]:
            return f"{workload} {seed}"
    return ""


def _findings(workload: str, seed: int, knobs: Knobs) -> tuple[list[str], dict[str, int] | None]:
    """The findings of one run, and the faults that it injected. A run that never ends is a finding too, and
    its faults are unknown."""
    from tests.simulator.runner import run

    signal.setitimer(signal.ITIMER_PROF, RUN_LIMIT_SECONDS, 1)  # again and again, whoever may swallow it
    try:
        result = run(workload, seed, knobs)
    except EndlessError:
        return [f"no end after {RUN_LIMIT_SECONDS} s"], None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return result.findings, dict(result.faults)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise EndlessError


def hunt_all(
    mutants: Sequence[Mutant], *, first: int, budget: int, jobs: int, until: float = inf
) -> Iterator[Hunt]:
    """Hunt every mutant in a process of its own, `jobs` at once, and yield each hunt as it ends. No hunt begins after
    the monotonic clock says `until`.
    """
    queue = iter(mutants)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running: set[Future[Hunt]] = set()
        while True:
            if time.monotonic() < until:
                more = islice(queue, jobs - len(running))
                running |= {pool.submit(hunt, mutant, first=first, budget=budget) for mutant in more}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
