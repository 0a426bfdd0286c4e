"""What ages are judged by: the log's time (docs/ARCHITECTURE.md, "Time")."""

from __future__ import annotations


def time_of(append_time: int, writer_ms: int, now_ms: int) -> int:
    """When a row was written, as far as ages go: its append time, the log's time (docs/ARCHITECTURE.md, "Time").

    A log whose time is ahead of ours once had a writer whose clock ran ahead; what is written after it bears that time
    too. There, and only there, the row's own time counts, unless that lies ahead as well.
    """
    return writer_ms if append_time > now_ms >= writer_ms >= 0 else append_time
