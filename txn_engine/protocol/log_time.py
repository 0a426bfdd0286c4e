"""What ages are judged by: the log's time (docs/ARCHITECTURE.md, "Time")."""

from __future__ import annotations

EARLIEST_MS = -62_135_596_800_000
LATEST_MS = 253_402_300_799_999
"""0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z: what every calendar that shows these times can hold."""


def bounded_time(time_ms: int) -> int:
    """The time as it counts: one beyond the calendar is its end (docs/FORMAT.md, "Limits").

    An entry of a clock gone mad must not stop its log for ever. It is read as the latest time there is, and so is what
    is written after it.
    """
    return min(max(time_ms, EARLIEST_MS), LATEST_MS)


def time_of(append_time: int, writer_ms: int, now_ms: int) -> int:
    """When a row was written, as far as ages go: its append time, the log's time (docs/ARCHITECTURE.md, "Time").

    A log whose time is ahead of ours once had a writer whose clock ran ahead; what is written after it bears that time
    too. There, and only there, the row's own time counts, unless that lies ahead as well.
    """
    return writer_ms if append_time > now_ms >= writer_ms >= 0 else append_time
