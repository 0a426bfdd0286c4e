"""When a writer of a log tries, where others write to it too.

Nothing rests on it: put-if-absent decides who is first. But a put that comes too late was work for nothing, and with as
many tries as there are writers the log is slower the more there are. So who has just lost a race takes turns from then
on: whoever had the log's end longest ago goes first, and the others wait about as long as those before them take.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WRITER_CHARS: Final = 8
"""How much of an entry's write id is its writer's, the same in all of them."""

_RECENT: Final = 128
_TURNS_AFTER_A_LOSS: Final = 16
_AHEAD_MAX: Final = 64
_TRY_MS_MAX: Final = 250.0
_NEWEST_WEIGHS: Final = 0.2


class Turns:
    """What one writer knows of the others, from the entries that it reads anyway.

    at_once: how many try together. The one whose turn it is learns that from a look, and as long as that takes the log
    would stand still.

    Not safe for threads: its log's lock is held by whoever tells it anything.
    """

    def __init__(self, writer: str, at_once: int) -> None:
        self._writer = writer
        self._at_once = at_once
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._try_ms = 0.0
        self._left = 0

    def entry(self, write_id: str) -> None:
        """The next entry of the log, whoever wrote it."""
        self._recent.append(write_id[:WRITER_CHARS])

    def tried(self, took_ms: int, *, won: bool) -> None:
        """A try of this writer's took so long, from judging to the store's answer."""
        took = min(float(took_ms), _TRY_MS_MAX)
        self._try_ms += _NEWEST_WEIGHS * (took - self._try_ms) if self._try_ms else took
        self._left = max(self._left - 1, 0) if won else _TURNS_AFTER_A_LOSS

    def wait_ms(self, silent_ms: float) -> int:
        """How long to wait before the log's end is looked at again; 0: it is this writer's turn.

        silent_ms: for how long nothing had come when it was looked at. Whoever let twice its time pass has nothing to
        write.
        """
        if not self._left:
            return 0
        ahead = min(self.ahead(), _AHEAD_MAX) - int(silent_ms / (2 * self._try_ms or 1))
        waiting_for = ahead - self._at_once + 1
        return max(round(waiting_for * self._try_ms / 2), 1) if waiting_for > 0 else 0

    def ahead(self) -> int:
        """How many writers had their last turn before this one had its own. None for one that had none lately.

        Who counts: as many entries back as each of them could have written two of.
        """
        latest: list[str] = []
        for back, writer in enumerate(reversed(self._recent)):
            if back > 2 * len(latest) + 2:
                break
            if writer not in latest:
                latest.append(writer)
        return len(latest) - 1 - latest.index(self._writer) if self._writer in latest else 0
