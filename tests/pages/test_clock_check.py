"""The pages' clock is checked, and the pages say so if it cannot be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from txn_engine.protocol.partition import PartitionState
from txn_engine_airflow.pages.clock_check import ClockCheck

HOUR_MS = 3_600_000


@dataclass
class Clocks:
    wall: int = 1_800_000_000_000
    steady: int = 0

    def check(self) -> ClockCheck:
        return ClockCheck(lambda: self.wall, lambda: self.steady)

    def passes(self, steady_ms: int, wall_ms: int) -> None:
        self.steady += steady_ms
        self.wall += wall_ms


def test_a_clock_that_goes_is_believed() -> None:
    clocks = Clocks()
    check = clocks.check()
    for _ in range(100):
        clocks.passes(3_000, 3_001)
        assert check.trouble([PartitionState(last_append_time=clocks.wall + 900)]) == ""


def test_a_clock_that_stands_still_is_told_of() -> None:
    clocks = Clocks()
    check = clocks.check()
    told = []
    for _ in range(4):
        clocks.passes(3_000, 0)
        told.append(check.trouble([]))
    assert told[0] == ""
    assert "went on by 0 s while 9 s passed" in told[-1]


def test_a_clock_that_was_set_is_told_of_for_a_minute() -> None:
    clocks = Clocks()
    check = clocks.check()
    assert check.trouble([]) == ""
    clocks.passes(3_000, -HOUR_MS)
    assert "went on by -3600 s while 3 s passed" in check.trouble([])
    told = []
    for _ in range(40):
        clocks.passes(3_000, 3_000)
        told.append(check.trouble([]) != "")
    assert told == [True] * 19 + [False] * 21


def test_a_log_that_is_ahead_is_told_of() -> None:
    clocks = Clocks()
    ahead = PartitionState(last_append_time=clocks.wall + 2 * HOUR_MS)
    assert "2 hours ahead" in clocks.check().trouble([PartitionState(), ahead])
