"""The days still to be loaded, dealt out to several loaders at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator

from txn_engine.demo.payments import Day


class DayQueue:
    """Days in order, each dealt to one loader.

    `kept` days at its end are not dealt in turn: they are for those who must do something particular with a day, and
    find one however fast the others were. Threads may share it.
    """

    def __init__(self, days: Iterable[Day], *, kept: int) -> None:
        self._days = deque(days)
        self._total = len(self._days)
        self._kept = kept
        self._lock = threading.Lock()

    def deal(self, until: float) -> Iterator[Day]:
        """Days one by one, until this share of all days is dealt out or only kept ones are left."""
        while True:
            with self._lock:
                dealt = self._total - len(self._days)
                if dealt >= until * self._total or len(self._days) <= self._kept:
                    return
                day = self._days.popleft()
            yield day

    def take_kept(self) -> Day:
        """The next day, for one of those that days were kept for."""
        with self._lock:
            self._kept -= 1
            return self._days.popleft()
