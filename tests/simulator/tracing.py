"""A run's events as lines that people can follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

HEALED = "healed"
_READS = ("get", "get_range", "head", "list", "list_folders")


def readable(trace: Iterable[tuple[Any, ...]], *, every_event: bool) -> Iterator[str]:
    """Virtual seconds, process, thread, operation, key, outcome and fault.

    Unless every event is asked for, successful reads are left out, and so is everything after the faults were
    over.
    """
    for at, who, thread, operation, *rest in trace:
        if not every_event and operation == HEALED:
            yield f"{at / 1e6:14.6f}  the faults are over; what follows finishes, reads and judges"
            return
        fault = rest[-1] if rest else ""
        if not every_event and operation in _READS and not fault:
            continue
        words = [who, thread, operation, *(str(part) for part in rest)]
        yield f"{at / 1e6:14.6f}  " + "  ".join(word for word in words if word)
