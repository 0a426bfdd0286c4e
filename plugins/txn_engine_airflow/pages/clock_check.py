"""Whether the clock that ages are told by can be believed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from txn_engine.clock import Clock
from txn_engine.protocol.measures import CLOCKS_DIFFER_MS
from txn_engine.protocol.partition import PartitionState

WINDOW_MS = 60_000


class ClockCheck:
    """Compares the clock with one that nobody sets, over the last minute, and with the times that logs bear."""

    def __init__(self, clock: Clock, monotonic_ms: Clock) -> None:
        self._clock = clock
        self._monotonic_ms = monotonic_ms
        self._readings: deque[tuple[int, int]] = deque()

    def trouble(self, states: Iterable[PartitionState]) -> str:
        """What is wrong, in a sentence or two; "": nothing that can be seen from here."""
        steady_ms, clock_ms = self._monotonic_ms(), self._clock()
        self._readings.append((steady_ms, clock_ms))
        while len(self._readings) > 2 and self._readings[1][0] <= steady_ms - WINDOW_MS:
            self._readings.popleft()
        then_ms, clock_then_ms = self._readings[0]
        passed_ms, told_ms = steady_ms - then_ms, clock_ms - clock_then_ms
        if abs(passed_ms - told_ms) > CLOCKS_DIFFER_MS:
            return (
                f"The api-server's clock went on by {told_ms / 1_000:.0f} s while {passed_ms / 1_000:.0f} s passed: "
                "it stands still, or was set. Times and ages shown here may be wrong."
            )
        ahead_ms = max((state.last_append_time for state in states), default=0) - clock_ms
        if ahead_ms > CLOCKS_DIFFER_MS:
            return (
                f"A log bears a time {_rough(ahead_ms)} ahead of the api-server's clock: that clock is behind, or a "
                "writer's was ahead. Ages that this makes unknown are shown as a dash; `txn-engine doctor` compares "
                "a machine's clock with the store's."
            )
        return ""


def _rough(duration_ms: int) -> str:
    for unit, ms in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if duration_ms >= 2 * ms:
            return f"{duration_ms // ms:,} {unit}"
    return f"{duration_ms // 1_000} s"
