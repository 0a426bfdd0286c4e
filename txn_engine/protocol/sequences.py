"""Sequence numbers: 0 to 2^31-1, then 0 again (`DefaultRecordBatch.incrementSequence`, `decrementSequence`)."""

from __future__ import annotations

MAX_SEQUENCE = 2**31 - 1
NO_SEQUENCE = -1


def increment_sequence(sequence: int, by: int) -> int:
    """The sequence `by` records later, wrapping after 2^31-1 to 0."""
    return (sequence + by) % (MAX_SEQUENCE + 1)


def last_sequence(base_sequence: int, record_count: int) -> int:
    """The last sequence of a batch; -1 for a batch without sequences."""
    if base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return increment_sequence(base_sequence, record_count - 1)


def in_sequence(previous_last: int, following: int) -> bool:
    """Whether `following` is what comes after `previous_last` (-1: nothing yet)."""
    return following == previous_last + 1 or (previous_last == MAX_SEQUENCE and following == 0)
