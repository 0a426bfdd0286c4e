"""Which version of a table is the newest, where they follow one another without a gap and none goes."""

from __future__ import annotations

from collections.abc import Callable


def last_version(known: int, is_there: Callable[[int], bool]) -> int:
    """The last one, from one that is there: it costs a look for each doubling of the way."""
    step = 1
    while is_there(known + step):
        known += step
        step *= 2
    while step > 1:
        step //= 2
        if is_there(known + step):
            known += step
    return known
