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
