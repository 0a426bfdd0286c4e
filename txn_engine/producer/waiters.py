"""Waiting for what other threads do, so that Ctrl-C in the middle of it leaves nothing locked."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Waiters:
    """Threads that wait until something holds, each asleep on a lock that nobody else needs.

    `threading.Condition` and `Future` take their lock in Python code: an interrupt that lands there leaves it held for
    ever, and the next thread that has something to tell waits for it.
    """

    def __init__(self) -> None:
        self._asleep: dict[threading.Lock, None] = {}

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Return once `holds()` is true. Who makes it true calls `wake` afterwards."""
        while not holds():
            sleeper = threading.Lock()
            sleeper.acquire()
            try:
                self._asleep[sleeper] = None
                if not holds():  # it may have come true before anybody could know of this sleeper
                    sleeper.acquire()
            finally:
                self._asleep.pop(sleeper, None)

    def wake(self) -> None:
        """Let all who wait look again."""
        for sleeper in tuple(self._asleep):
            try:
                sleeper.release()
            except RuntimeError:
                continue  # another thread has woken it
