"""The rule of a cut: a vector of offsets, one a partition, that no committed transaction straddles (PROTOCOL.md,
section 7).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from txn_engine.protocol.batches import BatchDescriptor, Control

P = TypeVar("P", bound=Hashable)

HIDDEN = -1
"""Where a transaction's first record stands that the entries which were read do not hold."""


class TransactionKey(NamedTuple):
    """A transaction as a partition knows it: every end of one bumps the epoch, so no other bears the same."""

    producer_id: int
    producer_epoch: int


class Span(NamedTuple):
    """Where a transaction's records stand in one partition: the first one's offset, and the offset behind the last."""

    first: int
    end: int


class MarkerSeen(NamedTuple):
    """A marker, by its offset."""

    offset: int
    producer_id: int
    committed: bool


@dataclass(slots=True)
class SpansSeen:
    """The transactions of one partition, by its rows in their order.

    `is_whole`: the rows begin where the partition does, or where another cut has. Where they do not, what a
    transaction that reaches behind them has there is `HIDDEN`.
    """

    is_whole: bool
    spans: dict[TransactionKey, Span] = field(default_factory=dict)
    markers: list[MarkerSeen] = field(default_factory=list)
    _open: dict[int, TransactionKey] = field(default_factory=dict)

    def see(self, batch: BatchDescriptor) -> None:
        """The next row."""
        if batch.control.is_marker:
            self._see_marker(batch)
        elif batch.control is Control.NONE and batch.is_transactional:
            self._see_records(batch)

    def _see_records(self, batch: BatchDescriptor) -> None:
        key = TransactionKey(batch.producer_id, batch.producer_epoch)
        begun = self.spans.get(key)
        first = batch.base_offset if begun is None else begun.first
        if begun is None and not self.is_whole and batch.base_sequence > 0:
            first = HIDDEN
        self.spans[key] = Span(first, batch.last_offset + 1)
        self._open[batch.producer_id] = key

    def _see_marker(self, marker: BatchDescriptor) -> None:
        committed = marker.control is Control.COMMIT
        self.markers.append(MarkerSeen(marker.base_offset, marker.producer_id, committed))
        key = self._open.pop(marker.producer_id, None)
        if key is None:
            if committed and not self.is_whole:
                ended = TransactionKey(marker.producer_id, marker.producer_epoch - 1)
                self.spans[ended] = Span(HIDDEN, marker.base_offset)
        elif not committed:
            del self.spans[key]  # nobody sees it, so that it may lie anywhere


def lowered(
    stable: Mapping[P, int],
    spans: Mapping[P, Mapping[TransactionKey, Span]],
    boundaries: Mapping[P, Sequence[int]],
) -> dict[P, int]:
    """The highest vector at or below `stable` that cuts none of these transactions in two.

    Every transaction of `spans` lies wholly below the vector, or wholly at or above it, in all its partitions.
    `boundaries`: for those partitions that have some, ascending, the offsets that are allowed there; 0 always is.
    Ends after at most one step for each transaction in each of its partitions. A transaction whose first record is
    `HIDDEN` and that must lie above makes the offset there `HIDDEN`.
    """
    places: dict[TransactionKey, list[tuple[P, Span]]] = defaultdict(list)
    inside: dict[P, list[tuple[int, TransactionKey]]] = {}
    for partition, found in spans.items():
        inside[partition] = sorted((span.end, key) for key, span in found.items())
        for key, span in found.items():
            places[key].append((partition, span))
    vector = {partition: _aligned(offset, boundaries.get(partition)) for partition, offset in stable.items()}
    above: set[TransactionKey] = set()
    todo = list(inside)
    while todo:
        partition = todo.pop()
        for key in _reaching(inside[partition], vector[partition]):
            if key in above:
                continue
            above.add(key)
            for place, span in places[key]:
                if span.first < vector[place]:
                    vector[place] = _aligned(span.first, boundaries.get(place))
                    todo.append(place)
    return vector


def _reaching(inside: list[tuple[int, TransactionKey]], offset: int) -> Iterable[TransactionKey]:
    """Those that reach above the offset; each is given once."""
    while inside and inside[-1][0] > offset:
        yield inside.pop()[1]


def _aligned(offset: int, boundaries: Sequence[int] | None) -> int:
    if boundaries is None or offset < 0:
        return offset
    place = bisect_right(boundaries, offset)
    return boundaries[place - 1] if place else 0
