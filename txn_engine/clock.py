"""The one place that looks at the wall clock. Everything else is given a `Clock`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


def system_clock() -> int:
    """The machine's clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """For limits on waiting; not related to any date."""
    return time.monotonic_ns() // 1_000_000


def pause_ms(duration_ms: int) -> None:
    """Wait."""
    time.sleep(duration_ms / 1_000)


@dataclass(frozen=True, slots=True)
class Waiting:
    """How an engine measures and spends the time that it waits; given from outside where time is not the machine's."""

    monotonic_ms: Clock = monotonic_ms
    pause_ms: Callable[[int], None] = pause_ms


class ManualClock:
    """A clock that moves only when a test advances it. Milliseconds since the epoch.

    An engine with such a clock takes the store's time to be the clock's: the real times of the store's objects say
    nothing in a test in which a week passes at once.
    """

    stands_for_the_store = True

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def __call__(self) -> int:
        """Return the time that the clock was set to."""
        return self._now_ms

    def advance(self, ms: int) -> int:
        """Move the clock on, or back with a negative number. Return the new time."""
        self._now_ms += ms
        return self._now_ms
