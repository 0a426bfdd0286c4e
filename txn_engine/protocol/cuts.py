"""The rule of a cut: a vector of offsets, one a partition, that no committed transaction straddles (PROTOCOL.md,
section 7).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.controls import KEEPS_ALL, Expire, Rewrite, decode_control
from txn_engine.protocol.offset_commits import OffsetCommit
from txn_engine.protocol.transaction_rows import TransactionPartition

P = TypeVar("P", bound=Hashable)
T = TypeVar("T", bound=tuple[Any, ...])

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


class CommitSeen(NamedTuple):
    """A row of group offsets: where it stands, and the partition and the offset up to which its reader has read."""

    row: int
    partition: TransactionPartition
    position: int


class MarkerSeen(NamedTuple):
    """A marker, by its offset."""

    offset: int
    producer_id: int
    committed: bool


@dataclass(slots=True)
class SpansSeen:
    """The transactions of one partition, by its rows in their order.

    `is_whole`: the rows begin where the partition does, or where another cut has. Where they do not, what a
    transaction that reaches behind them has there is `HIDDEN`. `left_out`: where the rows stand by which compaction by
    key left records out.
    """

    is_whole: bool
    spans: dict[TransactionKey, Span] = field(default_factory=dict)
    markers: list[MarkerSeen] = field(default_factory=list)
    commits: list[CommitSeen] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    _open: dict[int, TransactionKey] = field(default_factory=dict)

    def see(self, batch: BatchDescriptor) -> None:
        """The next row."""
        if batch.control.is_marker:
            self._see_marker(batch)
            return
        if batch.control in (Control.REWRITE, Control.CLEAN, Control.EXPIRE):
            self._see_control(batch)
        if isinstance(batch.row, OffsetCommit):
            key = batch.row.key
            at = TransactionPartition(key.topic, key.incarnation, key.partition)
            self.commits.append(CommitSeen(batch.base_offset, at, batch.row.offset))
        if batch.control is Control.NONE and batch.is_transactional:
            self._see_records(batch)

    def first_open(self) -> int | None:
        """The first offset of the earliest transaction that has no marker yet; None with none open."""
        return min((self.spans[key].first for key in self._open.values()), default=None)

    def _see_control(self, batch: BatchDescriptor) -> None:
        value = decode_control(batch)
        if isinstance(value, Expire):
            for producer_id in value.producer_ids:
                self._open.pop(producer_id, None)
        elif not isinstance(value, Rewrite) or value.tombstones_to != KEEPS_ALL:
            self.left_out.append(batch.base_offset)

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
    positions: Mapping[P, Sequence[tuple[int, P, int]]],
) -> dict[P, int]:
    """The highest vector at or below `stable` that cuts none of these transactions in two, and is below no position.

    Every transaction of `spans` lies wholly below the vector, or wholly at or above it, in all its partitions.
    `positions`: of a partition, offsets to which somebody has read it, each with the partition and the row that say so:
    where the vector is below such an offset, it is not above that row. `boundaries`: for those partitions that have
    some, ascending, the offsets that are allowed there; 0 always is. Ends after at most one step for each transaction
    in each of its partitions, and for each position. A transaction whose first record is `HIDDEN` and that must lie
    above makes the offset there `HIDDEN`.
    """
    places: dict[TransactionKey, list[tuple[P, Span]]] = defaultdict(list)
    inside: dict[P, list[tuple[int, TransactionKey]]] = {}
    for partition, found in spans.items():
        inside[partition] = sorted((span.end, key) for key, span in found.items())
        for key, span in found.items():
            places[key].append((partition, span))
    vector = {partition: _aligned(offset, boundaries.get(partition)) for partition, offset in stable.items()}
    read_to = {partition: sorted(found) for partition, found in positions.items()}
    above: set[TransactionKey] = set()
    todo = list(vector)

    def lower(place: P, offset: int) -> None:
        if offset < vector[place]:
            vector[place] = _aligned(offset, boundaries.get(place))
            todo.append(place)

    while todo:
        partition = todo.pop()
        for _, key in _reaching(inside.get(partition, []), vector, partition):
            if key not in above:
                above.add(key)
                for place, span in places[key]:
                    lower(place, span.first)
        for _, place, row in _reaching(read_to.get(partition, []), vector, partition):
            lower(place, row)
    return vector


def _reaching(found: list[T], vector: Mapping[P, int], partition: P) -> Iterable[T]:
    """Those whose first number is above the vector there; each is given once."""
    while found and found[-1][0] > vector[partition]:
        yield found.pop()


def _aligned(offset: int, boundaries: Sequence[int] | None) -> int:
    if boundaries is None or offset < 0:
        return offset
    place = bisect_right(boundaries, offset)
    return boundaries[place - 1] if place else 0
