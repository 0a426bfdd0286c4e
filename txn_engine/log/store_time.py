"""What time it is, as far as anything is removed by its age: the store's time, never one machine's alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from storage import read_store_clock
from txn_engine.clock import Clock
from txn_engine.errors import InvalidTimestampError
from txn_engine.ids import IdSource
from txn_engine.log.objects import Objects, write_errors
from txn_engine.reasons import Reason

CLOCK_LIMIT_MS = 300_000
"""A machine whose clock differs from the store's by more removes nothing."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time of the store's clock. `dates_objects`: whether the modified times of its objects are of the same clock."""

    now_ms: int
    dates_objects: bool


class StoreTime(Protocol):
    """The store's clock, as one engine has it."""

    def now(self) -> Moment:
        """The time now. Raises `InvalidTimestampError` where this machine's clock is too far from it to write what
        others go by.
        """

    def estimate(self) -> Moment:
        """The time by this machine's clock, which nobody has compared: for a dry run, which writes nothing."""


class MeasuredStoreTime:
    """The time that the store gives to an object that is put now."""

    def __init__(self, objects: Objects, clock: Clock, new_id: IdSource) -> None:
        self._objects = objects
        self._clock = clock
        self._new_id = new_id

    def now(self) -> Moment:
        """The store's time. `InvalidTimestampError`: this machine's differs by more than five minutes, or the store
        gives its objects no time.
        """
        with write_errors():
            key = f"probes/clock-{self._new_id()}"
            # Beside a restored store's folder: the probes of the place are what a maintainer's rights are for.
            reading = read_store_clock(self._objects.place, self._clock, key)
        url = self._objects.store.url
        if reading.store_ms <= 0:
            raise InvalidTimestampError(
                "the store gives its objects no modified time, so the age of what is in it is unknown",
                place=url,
                action="use a store that dates its objects; nothing was removed",
                reason=Reason.STORE_CLOCK_UNKNOWN,
            )
        if abs(reading.skew_ms) > CLOCK_LIMIT_MS:
            way = "ahead of" if reading.skew_ms > 0 else "behind"
            raise InvalidTimestampError(
                f"this machine's clock is {abs(reading.skew_ms) // 1_000} s {way} the store's",
                place=url,
                expected=f"at most {CLOCK_LIMIT_MS // 1_000} s apart",
                action="set the clock of this machine (NTP) and run it again; nothing was removed",
                reason=Reason.CLOCK_DIFFERS,
            )
        return Moment(reading.store_ms, dates_objects=True)

    def estimate(self) -> Moment:
        """This machine's time; the store is not written to."""
        return Moment(self._clock(), dates_objects=True)


class ClockAsStoreTime:
    """The engine's clock, where that stands for the store's: time is simulated, or set by a test."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> Moment:
        """The clock's time."""
        return Moment(self._clock(), dates_objects=False)

    def estimate(self) -> Moment:
        """The same."""
        return self.now()


def store_time_of(objects: Objects, clock: Clock, new_id: IdSource) -> StoreTime:
    """How an engine with this clock knows the store's time."""
    if getattr(clock, "stands_for_the_store", False):
        return ClockAsStoreTime(clock)
    return MeasuredStoreTime(objects, clock, new_id)
