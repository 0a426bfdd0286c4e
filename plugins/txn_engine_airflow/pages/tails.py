"""The last rows of an internal log, for time lines and history: a state keeps only the latest row of each id.

A log's rows are read in the background, at most `ROWS_MAX` of them, once somebody asks for that log, and followed until
nobody has asked for `KEPT_MS`. An entry that cannot be read is passed over and named: the state may come from a
snapshot behind it, and all else is as it was.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from txn_engine.errors import OutcomeUnknownError, TxnEngineError
from txn_engine.log.entry_log import EntryLog
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.unreadable import DAMAGE

ROWS_MAX = 400
KEPT_MS = 600_000
DAMAGED_MAX = 20
"""So many entries that cannot be read in one go: then the store refuses them all."""


@dataclass(frozen=True, slots=True)
class TailRows:
    """The last rows of a log, oldest first, and what is wrong with the entries among them that cannot be read."""

    rows: tuple[BatchDescriptor, ...]
    damaged: tuple[str, ...]


@dataclass(slots=True)
class _Tail:
    log: EntryLog
    asked_ms: int
    position: int = -1
    rows: deque[BatchDescriptor] = field(default_factory=lambda: deque(maxlen=ROWS_MAX))
    damaged: dict[int, TxnEngineError] = field(default_factory=dict)  # by the slot's offset

    def read(self, start: int) -> None:
        """Read from that slot to the log's end; `position` is then where the next reading begins."""
        self.position = start
        for slot in [slot for slot in self.damaged if slot >= start]:
            del self.damaged[slot]  # it may have been put back
        for _ in range(DAMAGED_MAX):
            try:
                for batch in self.log.batches(self.position):
                    self.rows.append(batch)
                    self.position = batch.last_offset + 1
                return
            except DAMAGE as error:
                self.damaged[self.position] = error
                behind = self.log.first_slot(self.position + 1)
                if behind is None:
                    return
                self.position = behind


class Tails:
    """Requests ask, the background thread reads."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._tails: dict[str, _Tail] = {}

    def ask(self, log: EntryLog) -> TailRows | None:
        """What is known of the last rows of a log; None until they were read once."""
        with self._lock:
            tail = self._tails.setdefault(log.keys.prefix, _Tail(log, 0))
            tail.asked_ms = self._monotonic_ms()
            if tail.position < 0:
                return None
            return TailRows(tuple(tail.rows), tuple(str(tail.damaged[slot]) for slot in sorted(tail.damaged)))

    def follow(self) -> None:
        """Read what was appended to the logs that were asked for; forget those that nobody asks for any more."""
        oldest_ms = self._monotonic_ms() - KEPT_MS
        with self._lock:
            self._tails = {name: tail for name, tail in self._tails.items() if tail.asked_ms >= oldest_ms}
            tails = list(self._tails.values())
        for tail in tails:
            self._follow(tail)

    def forget(self) -> None:
        """Drop everything: the engine is another one now."""
        with self._lock:
            self._tails.clear()

    def _follow(self, tail: _Tail) -> None:
        """A log of which not even the state can be read is the moment's to name."""
        try:
            state = tail.log.view()
            start = tail.position
            if start < state.entries_start:
                start = tail.log.first_slot(max(state.entries_start, state.log_end_offset - ROWS_MAX)) or 0
        except DAMAGE:
            return
        read = _Tail(tail.log, tail.asked_ms, rows=deque(maxlen=ROWS_MAX), damaged=dict(tail.damaged))
        try:
            read.read(start)
        except OutcomeUnknownError:
            read.position, read.rows = (
                -1,
                deque(),
            )  # sealed while it was read: from where entries start now, next time
        with self._lock:
            tail.rows.extend(read.rows)
            tail.position, tail.damaged = read.position, read.damaged
