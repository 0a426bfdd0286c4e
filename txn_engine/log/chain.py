"""Objects that are numbered from 0 on without a gap, each put if absent: the last one counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from txn_engine.errors import CorruptObjectError
from txn_engine.log.read_ahead import ReadAhead

_AHEAD_MAX: Final = 64


def last_of(
    ahead: ReadAhead, key_of: Callable[[int], str], *, known: int = 0, is_near: bool
) -> tuple[int, Sequence[bytes]]:
    """How many there are, and those from the last one on that is `known`: so many have been seen before.

    A number that is missing before one that is there is damage, not the end: what an older object says may be the
    reverse of what counts. One look behind the end tells it.
    """
    first = max(known - 1, 0)
    found: list[bytes] = []
    step = 1
    if not is_near:
        expect_from(ahead, key_of, known)
    while True:
        number = first + len(found)
        data = ahead.find(key_of(number))
        if data is None and ahead.find(key_of(number + 1)) is not None:
            data = ahead.find(key_of(number))  # put just now
            if data is None:
                raise _gap(key_of, number)
        if data is None:
            break
        found.append(data)
        if not is_near and number >= known:
            step = min(2 * step, _AHEAD_MAX)
            ahead.expect(*map(key_of, range(number + 1, number + step + 2)))
    if not found and first > 0:
        raise _gap(key_of, first)
    return first + len(found), found


def expect_from(ahead: ReadAhead, key_of: Callable[[int], str], known: int) -> None:
    """Ask for what `last_of` will want where nothing has come since: the last one known, and the two behind it."""
    first = max(known - 1, 0)
    ahead.expect(*map(key_of, range(first, known + 2)))


def _gap(key_of: Callable[[int], str], number: int) -> CorruptObjectError:
    return CorruptObjectError(
        "no such object, and a later one of its numbers is there, or was",
        place=key_of(number),
        expected="one after the other from 0 on",
        action="restore it from a copy; `txn-engine verify` names all that are missing",
    )
