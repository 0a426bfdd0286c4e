"""The dead letters that somebody looks at, counted by reason. Requests ask, the background thread reads.

A file of letters never changes: each is read once, a few in a look, as long as somebody asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from txn_engine import Engine
from txn_engine.errors import SchemaChangedError
from txn_engine.loading import LetterCounter, LetterCounts
from txn_engine_airflow.pages.moment import Moment

NEWEST = 10_000
FILES_MAX = 500
"""Of each topic the newest letters are counted by reason: so many, in so many files."""
FILE_BYTES_MAX = 64 * 1024 * 1024
TOPICS_MAX = 50
FILES_A_LOOK = 32
"""So many files are read in one look, of however many topics: all else waits meanwhile."""
KEPT_MS = 600_000


class LetterReadings:
    """What was counted, by dead-letter topic."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._asked_ms: int | None = None
        self._counter: LetterCounter | None = None
        self._found: Mapping[str, LetterCounts] = {}

    def ask(self) -> Mapping[str, LetterCounts]:
        """What is known by now; a topic that no look has come to is not there."""
        with self._lock:
            self._asked_ms = self._monotonic_ms()
            return self._found

    def follow(self, engine: Engine, moment: Moment) -> None:
        """Read on, where somebody asks; forget it all where nobody does."""
        with self._lock:
            is_asked = self._asked_ms is not None and self._monotonic_ms() - self._asked_ms < KEPT_MS
        if not is_asked:
            self.forget()
            return
        if self._counter is None:
            self._counter = LetterCounter(
                engine.logs.tools.objects,
                newest=NEWEST,
                newest_files=FILES_MAX,
                file_bytes_max=FILE_BYTES_MAX,
            )
        found = self._counted(self._counter, moment)
        with self._lock:
            self._found = found

    def forget(self) -> None:
        """Drop everything: the engine is another one now, or nobody asks."""
        self._counter = None
        with self._lock:
            self._found = {}

    def _counted(self, counter: LetterCounter, moment: Moment) -> Mapping[str, LetterCounts]:
        found: dict[str, LetterCounts] = {}
        left = FILES_A_LOOK
        topics = moment.dead_letter_topics()[:TOPICS_MAX]
        counter.forget_others(state.topic for state in topics)
        for state in topics:
            name = state.topic.name
            try:
                counted = counter.count(
                    state.topic, state.partitions, moment.replayed_to(state.topic), files=left
                )
            except SchemaChangedError:  # since the moment: the next one knows
                continue
            left = max(left - counted.files_read, 0)
            found[name] = counted
        return found
