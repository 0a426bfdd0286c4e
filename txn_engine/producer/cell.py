"""Where a producer's machine is kept: moved by one thread at a time, looked at by all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from txn_engine.errors import IllegalStateError
from txn_engine.producer.machine import Effect, Machine, Step, callback_begins
from txn_engine.producer.waiters import Waiters

P = ParamSpec("P")


class Cell:
    """The present state of a machine. Each move is judged on the state that it is made from.

    `ender` is the call that ends the transaction, as long as it runs, and `is_handing_over` says whether a `produce` is
    under way. A call that was broken off clears them without calling anything: an interrupt could land there.
    """

    def __init__(self, machine: Machine) -> None:
        self.now = machine
        self.ender: object | None = None
        self.is_handing_over = False
        self._lock = threading.RLock()
        self._waiters = Waiters()

    def move(
        self, event: Callable[Concatenate[Machine, P], Step], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[Effect, ...]:
        """Let the event happen; what it asks for. Nothing has happened where it raises."""
        with self._lock:
            self.now, effects = event(self.now, *args, **kwargs)
        self._waiters.wake()
        return effects

    def wait_for(self, holds: Callable[[Machine], bool]) -> None:
        """Return once the machine is so, or, for what is not the machine's, once `wake` was called."""
        self._waiters.wait_for(lambda: holds(self.now))

    def wake(self) -> None:
        """Let all who wait look again."""
        self._waiters.wake()

    def begin_ending(self, call: object) -> None:
        """From now on nothing else may begin."""
        with self._lock:
            self.refuse_while_ending()
            self.ender = call

    def begin_callback(self) -> None:
        """A callback produces: an end that begins now waits for it, one that has begun refuses it."""
        with self._lock:
            self.refuse_while_ending()
            self.now, _ = callback_begins(self.now)

    def refuse_while_ending(self) -> None:
        """Another thread's call that ends the transaction goes by what it began in: nobody moves that meanwhile."""
        if self.ender is not None:
            raise IllegalStateError("a call while the transaction is being ended", actor=self.now.actor)
