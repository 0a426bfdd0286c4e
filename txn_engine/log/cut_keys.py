"""The numbers of cuts, told by keys alone: where they end, and which objects each of them has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from txn_engine.errors import StoreAccessError
from txn_engine.log.cut_format import CUTS_PREFIX, Part, cut_key, parse_cut_key
from txn_engine.log.objects import Objects

Parts = frozenset[Part]

_NEXT: Final = 2
_DOUBLINGS: Final = 24
_PROBES: Final = 16
_A_LISTING: Final = 300
"""So many numbers have fewer keys than a page of a listing has."""
_LISTINGS_AT_ONCE: Final = 64


class CutKeys:
    """Numbers are claimed one after the other, without a gap. A listing says what there is; that something is not there
    only the store's word for its very key.
    """

    def __init__(self, objects: Objects, executor: Executor) -> None:
        self._objects = objects
        self._executor = executor

    def first_free(self, start: int) -> int:
        """The first number from `start` on that nobody had claimed at some moment of this call, in a few rounds.

        One that the store refuses to tell of counts as claimed; raises that refusal where it seems to have no end.
        """
        if self._claimed(start) is False:
            return start
        taken, free = start, None
        while free is None or free - taken > 1:
            probes = _probes(taken, free, _DOUBLINGS if taken > start else _NEXT)
            claimed = list(self._executor.map(self._claimed, probes))
            refused = [each for each in claimed if isinstance(each, StoreAccessError)]
            if free is None and len(refused) == len(probes):
                raise refused[0]
            taken = max([taken, *(number for number, told in zip(probes, claimed, strict=True) if told)])
            free = min((number for number in probes if number > taken), default=free)
        return free

    def first_unused(self, start: int) -> int:
        """The first free number from `start` on of which there is nothing else either: somebody may have removed a
        claim. Not for readers' tasks: it waits for them.
        """
        number = self.first_free(start)
        while any(self._executor.map(partial(self._is_there, number), (Part.CUT, Part.DELETED))):
            number = self.first_free(number + 1)
        return number

    def listed(self, start: int, end: int | None = None) -> dict[int, Parts]:
        """Of each number from `start` on (up to `end`) that has any: its parts, as listings say."""
        found: dict[int, Parts] = {}
        for each in self._listings(start, end):
            found |= each
        return found

    def parts(self, number: int) -> Parts:
        """One of the number's parts, by the store's word: the cut, else that it was deleted, else the claim. A refusal
        leaves the worst: a cut that nobody can read, or a claim that is open.
        """
        for part, refused in ((Part.CUT, Part.CUT), (Part.DELETED, Part.CLAIM), (Part.CLAIM, Part.CLAIM)):
            try:
                if self._is_there(number, part):
                    return frozenset({part})
            except StoreAccessError:
                return frozenset({refused})
        return frozenset()

    def _listings(self, start: int, end: int | None) -> Iterator[Mapping[int, Parts]]:
        """Several at once, where each page is a round trip."""
        if self._objects.is_near:
            yield self._list((start, end))
            return
        known_end = self.first_free(start) if end is None else end
        lows = [*range(start, known_end, _A_LISTING)] or [start]
        bounds = list(zip(lows, [*lows[1:], end], strict=True))
        for at in range(0, len(bounds), _LISTINGS_AT_ONCE):
            yield from self._executor.map(self._list, bounds[at : at + _LISTINGS_AT_ONCE])

    def _list(self, bounds: tuple[int, int | None]) -> dict[int, Parts]:
        """The parts of the numbers between these; one set for all that have the same."""
        low, high = bounds
        found: dict[int, Parts] = {}
        shared: dict[Parts, Parts] = {}
        after = cut_key(low - 1, Part.DELETED) if low else None
        for _, (number, part) in self._objects.ours(CUTS_PREFIX, parse_cut_key, start_after=after):
            if high is not None and number >= high:
                break
            parts = found.get(number, frozenset()) | {part}
            found[number] = shared.setdefault(parts, parts)
        return found

    def _claimed(self, number: int) -> bool | StoreAccessError:
        try:
            return self._is_there(number, Part.CLAIM)
        except StoreAccessError as error:
            return error

    def _is_there(self, number: int, part: Part) -> bool:
        return self._objects.exists(cut_key(number, part))


def _probes(taken: int, free: int | None, doublings: int) -> Sequence[int]:
    """Numbers to ask for at once: ever further away, or, where a free one is known, evenly up to that."""
    if free is None:
        return [taken + (1 << power) for power in range(doublings)]
    between = (taken + (free - taken) * step // (_PROBES + 1) for step in range(1, _PROBES + 1))
    return sorted({max(number, taken + 1) for number in between})
