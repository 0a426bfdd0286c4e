"""The one policy by which all calls of a store are retried: how often, with which pauses, and what is logged."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from storage.errors import StorageError, StoreUnreachableError
from storage.reasons import StoreReason

_LOGGER: Final = logging.getLogger(__name__)
_PAUSE_S_FIRST: Final = 0.02
_PAUSE_S_MAX: Final = 5.0
_LOG_EVERY: Final = 10
_OTHER_KEYS_MAX: Final = 3
_SILENT: Final = frozenset(
    {
        StoreReason.CONNECTION_REFUSED,
        StoreReason.CONNECTION_RESET,
        StoreReason.CONNECTION_BROKE,
        StoreReason.NO_ANSWER,
        StoreReason.UNKNOWN_HOST,
    }
)


def pause_ceiling_s(attempt: int) -> float:
    """The longest pause before try `attempt` (1, 2, ...): 20 ms at first, twice as long each time, at most 5 s."""
    return min(_PAUSE_S_MAX, _PAUSE_S_FIRST * 2.0 ** min(attempt - 1, 10))


def jittered_pause(attempt: int) -> None:
    """Sleep before try `attempt`: between half the ceiling and all of it, so that clients do not come back together."""
    time.sleep(random.uniform(0.5, 1.0) * pause_ceiling_s(attempt))


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one call goes on with a store that does not give its answer.

    busy: how often it is tried again where the store says that it is busy or has failed (429, 503 SlowDown, 500).
    broken: how often, where the answer was cut short or cannot be parsed. silent, silent_s: how often,
    and for how many seconds, where no answer comes at all: an unreachable store is to be reported within 20 seconds.
    """

    busy: int
    broken: int = 10
    silent: int = 5
    silent_s: float = 8.0
    pause: Callable[[int], None] = jittered_pause

    def busy_s(self) -> tuple[float, float]:
        """The least and the most that the pauses of a call to a busy store add up to."""
        most = sum(pause_ceiling_s(attempt) for attempt in range(1, self.busy + 1))
        return most / 2, most


JOB_PATIENCE: Final = Patience(busy=31)
"""For work that nobody waits for: 60 to 120 seconds of pauses for a busy store."""
PERSON_PATIENCE: Final = Patience(busy=9, broken=5)
"""For pages and checks, which a person waits for: 5 to 10 seconds."""


class Waits:
    """The pauses of one call. `started` is now: make it when the call begins."""

    def __init__(
        self,
        patience: Patience,
        *,
        pause: Callable[[int], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._pause = pause or patience.pause
        self._monotonic = monotonic
        self._busy = self._broken = self._silent = self._pauses = self._refused = 0
        self._silent_since = monotonic()

    def came_further(self) -> None:
        """A part of the answer came that is kept: what follows is counted from the beginning."""
        self._broken = self._silent = self._pauses = self._refused = 0
        self._silent_since = self._monotonic()

    def may_try_other_keys(self) -> bool:
        """Whether a refused call may be sent with other keys. Who gives the keys may give other ones at each call, so
        a refusal that lasts has to end somewhere.
        """
        self._refused += 1
        return self._refused <= _OTHER_KEYS_MAX

    def again(self, error: StorageError) -> bool:
        """Pause, and return True: the call may be made again. False where that does not help, or was done enough."""
        if not isinstance(error, StoreUnreachableError):
            return False
        patience = self._patience
        if error.reason is StoreReason.BUSY:
            self._busy += 1
            may, self._silent_since = self._busy <= patience.busy, self._monotonic()
        elif error.reason is StoreReason.BROKEN_ANSWER:
            self._broken += 1
            may, self._silent_since = self._broken <= patience.broken, self._monotonic()
        else:
            self._silent += 1
            may = (
                error.reason in _SILENT
                and self._silent <= patience.silent
                and self._monotonic() - self._silent_since + pause_ceiling_s(self._pauses + 1)
                < patience.silent_s
            )
        if may:
            self._pauses += 1
            if self._pauses == 1 or self._pauses % _LOG_EVERY == 0:
                _LOGGER.warning("%s; waiting to try again (wait %d of this call)", error, self._pauses)
            self._pause(self._pauses)
        return may
