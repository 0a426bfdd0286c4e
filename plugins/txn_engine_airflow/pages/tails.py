"""The last rows of an internal log, for time lines and history: a state keeps only the latest row of each id.

A log's rows are read in the background, at most `ROWS_MAX` of them, once somebody asks for that log, and followed until
nobody has asked for `KEPT_MS`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from txn_engine.errors import OutcomeUnknownError
from txn_engine.log.entry_log import EntryLog
from txn_engine.protocol.batches import BatchDescriptor

ROWS_MAX = 400
KEPT_MS = 600_000


@dataclass(slots=True)
class _Tail:
    log: EntryLog
    asked_ms: int
    position: int = -1
    rows: deque[BatchDescriptor] = field(default_factory=lambda: deque(maxlen=ROWS_MAX))


class Tails:
    """Requests ask, the background thread reads."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._tails: dict[str, _Tail] = {}

    def ask(self, log: EntryLog) -> tuple[BatchDescriptor, ...] | None:
        """The rows known of a log, oldest first; None until they were read once."""
        with self._lock:
            tail = self._tails.setdefault(log.keys.prefix, _Tail(log, 0))
            tail.asked_ms = self._monotonic_ms()
            return None if tail.position < 0 else tuple(tail.rows)

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
        state = tail.log.view()
        first_time = tail.position < 0
        start = tail.position
        if first_time or start < state.entries_start:
            start = tail.log.first_slot(max(state.entries_start, state.log_end_offset - ROWS_MAX)) or 0
        rows: list[BatchDescriptor] = []
        position = start
        try:
            for batch in tail.log.batches(start):
                rows.append(batch)
                position = batch.last_offset + 1
        except OutcomeUnknownError:
            position, rows = -1, []  # sealed while it was read: from where entries start now, the next time
        with self._lock:
            tail.rows.extend(rows)
            tail.position = position
