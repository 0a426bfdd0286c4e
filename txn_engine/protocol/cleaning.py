"""How far a compacted partition is clean, and which of its tombstones may go (`LogCleanerManager`, KIP-534)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

DELETE_RETENTION_MS: Final = 86_400_000
"""Kafka's default of `delete.retention.ms`."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What the log says of compaction by key.

    cleaned_to: below it no two live records have the same key; Kafka's first dirty offset.
    tombstones_to: below it no tombstone is left; what is due above it is still to be done.
    horizon_to, horizon_ms: since that time of the log the tombstones below `horizon_to` stand alone: the records that
        they supersede are gone. They may go once that was long enough ago; the next horizon begins then.

    All but the time only grow.
    """

    cleaned_to: int = 0
    tombstones_to: int = 0
    horizon_to: int = 0
    horizon_ms: int = -1

    def due_tombstones_to(self, now_ms: int, delete_retention_ms: int) -> int:
        """Below which offset tombstones may go now."""
        if self.horizon_to > self.tombstones_to and now_ms - self.horizon_ms >= delete_retention_ms:
            return self.horizon_to
        return self.tombstones_to

    def without_tombstones(self, tombstones_to: int) -> Self:
        """After a row that let the tombstones below that offset go."""
        return replace(self, tombstones_to=max(self.tombstones_to, tombstones_to))

    def with_clean(self, cleaned_to: int, time_ms: int) -> Self:
        """After a `clean` row of that time: a new horizon begins where none is waiting."""
        after = replace(self, cleaned_to=max(self.cleaned_to, cleaned_to))
        if after.horizon_to > after.tombstones_to:
            return after
        return replace(after, horizon_to=after.cleaned_to, horizon_ms=time_ms)
