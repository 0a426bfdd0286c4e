"""Timing ours and the bare limit in turn, so that a machine that slows down slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One number: ours, the bare limit, and what is aimed at; `ratio` is the median of the rounds' own."""

    name: str
    unit: str
    ours: float
    bare: float
    ratio: float
    aim: str
    met: bool
    rounds: int
    note: str = ""

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def paired(
    ours: Callable[[], object], bare: Callable[[], object], rounds: int, warm_up: int = 2
) -> tuple[list[float], list[float]]:
    """Seconds of both, round by round, in turn; which of them goes first alternates."""
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(warm_up + rounds):
        pair = [(ours, mine), (bare, theirs)]
        for work, into in pair if number % 2 else reversed(pair):
            seconds = timed(work)
            if number >= warm_up:
                into.append(seconds)
    return mine, theirs


def ratio_of(mine: list[float], theirs: list[float]) -> float:
    """The median over the rounds of ours over bare."""
    return statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
