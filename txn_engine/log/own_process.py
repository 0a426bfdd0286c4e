"""What belongs to the process that made it. A forked child is refused before it waits for a lock that a thread of its
parent held at the fork, and that nobody in the child will let go.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager

from txn_engine.errors import IllegalStateError
from txn_engine.log.signal_handlers import refuse_in_a_signal_handler
from txn_engine.reasons import Reason


class OwnProcess:
    """The process that something was made in. `what` and `action` are for the one who is refused."""

    def __init__(self, what: str = "an engine", action: str = "connect again in the child") -> None:
        self._what = what
        self._action = action
        self._made_in = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process, and not a child of it."""
        return os.getpid() == self._made_in

    def check(self) -> None:
        """Raise `IllegalStateError` in a forked child."""
        if not self.is_here:
            raise IllegalStateError(
                f"{self._what} was carried over a fork",
                expected=f"{self._what} for each process",
                action=self._action,
                reason=Reason.CARRIED_OVER_A_FORK,
            )


class OwnLock:
    """A re-entrant lock for the threads of one process; a forked child is refused."""

    def __init__(self) -> None:
        self._process = OwnProcess()
        self._lock = threading.RLock()

    def here(self) -> AbstractContextManager[object]:
        """The lock, for `with`: entered and left by nobody else, because Ctrl-C inside an `__enter__` or `__exit__` of
        Python's would leave it held for ever. Refused in a signal handler, which would find what the lock protects half
        changed.
        """
        self._process.check()
        refuse_in_a_signal_handler()
        return self._lock
