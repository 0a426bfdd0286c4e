"""Partitions in the order in which they were named, to which one can be added without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txn_engine.protocol.transaction_rows import TransactionPartition


class PartitionList:
    """An immutable list without duplicates. `with_more` gives a longer one, and takes as long as what is added.

    Longer and shorter ones share their memory: `_places` has the partitions of the longest one, in order, and a shorter
    one is the first `_length` of them. Only who holds the longest one may make it longer; anybody else gets a copy. The
    caller makes sure that no two threads call `with_more` at a time, as the producer's cell does.
    """

    __slots__ = ("_length", "_places")

    def __init__(self, partitions: Iterable[TransactionPartition] = ()) -> None:
        self._places: dict[TransactionPartition, int] = {}
        for partition in partitions:
            self._places.setdefault(partition, len(self._places))
        self._length = len(self._places)

    def with_more(self, partitions: Iterable[TransactionPartition]) -> PartitionList:
        """These and those: the ones that are here already keep their places."""
        is_longest = self._length == len(self._places)
        more = PartitionList(() if is_longest else self)
        if is_longest:
            more._places = self._places
        for partition in partitions:
            more._places.setdefault(partition, len(more._places))
        more._length = len(more._places)
        return more

    def __contains__(self, partition: object) -> bool:
        place = self._places.get(partition)  # type: ignore[call-overload]
        return place is not None and place < self._length

    def __iter__(self) -> Iterator[TransactionPartition]:
        # A longer one may grow meanwhile, which a dict's own iterator does not take.
        return iter(list(self._places)[: self._length])

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionList) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PartitionList({list(self)})"
