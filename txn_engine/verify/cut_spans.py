"""Whether a cut tears a transaction: where each one's rows lie in each log, against the offsets of all cuts.

A transaction lies between two neighbouring offsets of the cuts through a log, or one of them goes through it. Between
the same two everywhere is not asked for: what counts is which cuts it lies below in each log, and that is one set of
cuts, of which 64 bits are kept.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from txn_engine.verify.audited_partition import AuditedPartition
from txn_engine.verify.decisions import MAX_EPOCH
from txn_engine.verify.descriptors import Batch
from txn_engine.verify.findings import Place

Numbers = npt.NDArray[np.int64]
Sets = npt.NDArray[np.uint64]

_EPOCH_BITS: Final = 15
_IDS_MAX: Final = 1 << (63 - _EPOCH_BITS)


@dataclass(slots=True)
class Spans:
    """Where committed transactions lie in one log, in columns: producer and epoch, first offset, offset behind the last
    row. `ends`: of a producer without a marker yet, the offset behind its last row.

    What begins or ends in entries that nobody reads is left out.
    """

    keys: array[int] = field(default_factory=lambda: array("q"))
    firsts: array[int] = field(default_factory=lambda: array("q"))
    behind: array[int] = field(default_factory=lambda: array("q"))
    ends: dict[int, int] = field(default_factory=dict)

    def note(self, state: AuditedPartition, batch: Batch) -> None:
        """The log's next row, and the state before it."""
        if batch.is_marker:
            end, first = self.ends.pop(batch.producer_id, None), state.open.get(batch.producer_id)
            if batch.control == "commit" and end is not None and first is not None:
                self.add(batch.producer_id, state.producers[batch.producer_id].producer_epoch, first, end)
        elif batch.is_transactional and batch.control == "none":
            self.ends[batch.producer_id] = batch.last_offset + 1

    def add(self, producer_id: int, producer_epoch: int, first: int, end: int) -> None:
        """One transaction: its producer's next one has another epoch, unless that is the last there is."""
        if producer_id < _IDS_MAX and producer_epoch < MAX_EPOCH:
            self.keys.append(producer_id << _EPOCH_BITS | producer_epoch)
            self.firsts.append(first)
            self.behind.append(end)


@dataclass(frozen=True, slots=True)
class Torn:
    """A transaction that lies half inside a cut: where it was seen, and on which side of the cut its rows are there."""

    number: int
    place: Place
    producer_id: int
    first: int
    last: int
    side: str


@dataclass(frozen=True, slots=True)
class _Log:
    """The cuts of one kind through one log: their offsets ascending, the number of each, and of what lies between two
    of these offsets the set of the cuts that it is below.
    """

    offsets: Numbers
    numbers: Numbers
    inside: Sets

    @classmethod
    def of(cls, offsets: array[int], numbers: array[int]) -> _Log:
        found = np.frombuffer(offsets, np.int64) if offsets else np.empty(0, np.int64)
        order = np.argsort(found, kind="stable")
        sorted_numbers = (np.frombuffer(numbers, np.int64) if numbers else np.empty(0, np.int64))[order]
        sets = np.zeros(len(order) + 1, np.uint64)
        np.bitwise_xor.accumulate(_hashed(sorted_numbers)[::-1], out=sets[:-1][::-1])
        return cls(found[order], sorted_numbers, sets)


class TornCuts:
    """Compares, of each transaction, which cuts it lies below in one log after the other. Memory: 16 bytes for each
    committed transaction, and 24 for each log of each cut.

    Cuts of the same topics are compared together: a partition that such a cut does not have came later, and lies
    wholly above it.
    """

    def __init__(self) -> None:
        self._kinds: dict[frozenset[tuple[str, int]] | None, _Kind] = {}

    def add(
        self, number: int, topics: frozenset[tuple[str, int]] | None, logs: Iterator[tuple[Place, int]]
    ) -> None:
        """A cut of these topics (None: of all that there were), and its offset in each log."""
        kind = self._kinds.setdefault(topics, _Kind())
        for place, offset in logs:
            offsets, numbers = kind.vectors[place]
            offsets.append(offset)
            numbers.append(number)

    def see(self, place: Place, spans: Spans, groups: str) -> Iterator[Torn]:
        """The transactions of one more log: those that a cut tears, by it alone or by the logs before it."""
        for topics, kind in self._kinds.items():
            if topics is None or place.topic == groups or (place.topic, place.incarnation) in topics:
                yield from kind.see(place, spans)


@dataclass(slots=True)
class _Kind:
    """The cuts of the same topics, and what was seen of transactions."""

    vectors: dict[Place, tuple[array[int], array[int]]] = field(
        default_factory=lambda: defaultdict(lambda: (array("q"), array("q")))
    )
    keys: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    inside: Sets = field(default_factory=lambda: np.empty(0, np.uint64))

    def see(self, place: Place, spans: Spans) -> Iterator[Torn]:
        if not spans.keys:
            return
        log = self._log(place)
        keys, firsts, behind = (
            np.frombuffer(column, np.int64) for column in (spans.keys, spans.firsts, spans.behind)
        )
        gaps = np.searchsorted(
            log.offsets, firsts, side="right"
        )  # of each: how many cuts go through at or below it
        through = np.zeros(len(keys), np.bool_)
        if len(log.offsets):
            through = (gaps < len(log.offsets)) & (
                log.offsets[np.minimum(gaps, len(log.offsets) - 1)] < behind
            )
        for at in np.flatnonzero(through):
            yield _torn(
                int(log.numbers[gaps[at]]), place, keys[at], firsts[at], behind[at], "on both sides of it"
            )
        whole = np.flatnonzero(~through)
        for at, number, is_below in self._compare(log, gaps[whole], keys[whole]):
            side = "below it, and not everywhere" if is_below else "at or above it, and not everywhere"
            yield _torn(number, place, keys[whole[at]], firsts[whole[at]], behind[whole[at]], side)

    def _compare(
        self, log: _Log, gaps: npt.NDArray[np.intp], keys: Numbers
    ) -> Iterator[tuple[np.intp, int, bool]]:
        """Which of them lie below other cuts than in the logs before: the first such cut, and whether they are below it
        here.
        """
        inside = log.inside[gaps]
        if len(self.keys):
            at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            known = self.keys[at] == keys
            told: dict[tuple[int, int], tuple[int, bool]] = {}
            for each in np.flatnonzero(known & (self.inside[at] != inside)):
                sets = int(gaps[each]), int(self.inside[at[each]])
                if sets not in told:
                    told[sets] = self._first_of_one(log, *sets)
                yield each, *told[sets]
            keys, inside = keys[~known], inside[~known]
        merged = np.concatenate([self.keys, keys])
        order = np.argsort(merged, kind="stable")
        self.keys, self.inside = merged[order], np.concatenate([self.inside, inside])[order]

    def _first_of_one(self, log: _Log, gap: int, elsewhere: int) -> tuple[int, bool]:
        """The lowest cut that only one of two sets has, and whether that is the one here."""
        here, there = set(log.numbers[gap:].tolist()), set[int]()
        for place in self.vectors:
            other = self._log(place)
            found = np.flatnonzero(other.inside == np.uint64(elsewhere))
            if len(found):
                there = set(other.numbers[found[0] :].tolist())
                break
        number = min(here ^ there)
        return number, number in here

    def _log(self, place: Place) -> _Log:
        offsets, numbers = self.vectors[place] if place in self.vectors else (array("q"), array("q"))
        return _Log.of(offsets, numbers)


def _torn(number: int, place: Place, key: np.int64, first: np.int64, end: np.int64, side: str) -> Torn:
    return Torn(number, place, int(key) >> _EPOCH_BITS, int(first), int(end) - 1, side)


def _hashed(numbers: Numbers) -> Sets:
    """64 bits for each number (splitmix64), so that sets are told apart by their sums without carry."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
