"""Every decision the coordinator's log holds, kept small: about 50 bytes each, whatever the number of records."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from txn_engine.verify.findings import Place

MAX_EPOCH: Final = 2**15 - 1

_COMMITTED, _COMPLETE, _DUE = 1, 2, 4
_EPOCH_SHIFT = 3


class Decision(NamedTuple):
    """A PrepareCommit or PrepareAbort row: what every partition in its list must show."""

    producer_id: int
    offset: int
    producer_epoch: int
    committed: bool
    partitions: tuple[Place, ...]
    append_time: int

    @property
    def kind(self) -> str:
        """The control of its markers."""
        return "commit" if self.committed else "abort"


@dataclass(slots=True)
class OfProducer:
    """Parallel columns, by ascending offset of the Prepare row."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    facts: array[int] = field(default_factory=lambda: array("i"))
    partition_sets: array[int] = field(default_factory=lambda: array("l"))
    append_times: array[int] = field(default_factory=lambda: array("q"))
    shown: list[int] = field(default_factory=list)

    def sets_of(self, index: int, sets: list[tuple[Place, ...]]) -> tuple[Place, ...]:
        """The partitions of the decision at that index."""
        return sets[self.partition_sets[index]]

    def find(self, offset: int) -> int:
        """The index of the decision at that offset, -1 for none."""
        index = bisect_left(self.offsets, offset)
        return index if index < len(self.offsets) and self.offsets[index] == offset else -1


class DecisionTable:
    """The decisions by producer id and Prepare row, and which partitions have shown each."""

    def __init__(self) -> None:
        self._of_producer: dict[int, OfProducer] = {}
        self._sets: list[tuple[Place, ...]] = []
        self._set_index: dict[tuple[Place, ...], int] = {}

    def add(
        self,
        producer_id: int,
        offset: int,
        producer_epoch: int,
        *,
        committed: bool,
        partitions: tuple[Place, ...],
        append_time: int,
    ) -> None:
        """Note a Prepare row; offsets come in ascending order."""
        index = self._set_index.get(partitions)
        if index is None:
            index = self._set_index[partitions] = len(self._sets)
            self._sets.append(partitions)
        held = self._of_producer.get(producer_id)
        if held is None:
            held = self._of_producer[producer_id] = OfProducer()
        if held.offsets and held.offsets[-1] >= offset:
            return  # noted before, or two transactional ids share this producer id: a finding of its own
        held.offsets.append(offset)
        held.facts.append(producer_epoch << _EPOCH_SHIFT | (_COMMITTED if committed else 0))
        held.partition_sets.append(index)
        held.append_times.append(append_time)
        held.shown.append(0)

    def complete(self, producer_id: int, offset: int, *, due: bool) -> None:
        """Note a Complete row that names the Prepare row at `offset`.

        due: it was read before the partitions were, so all of them show it by now.
        """
        held = self._of_producer.get(producer_id)
        index = held.find(offset) if held is not None else -1
        if held is not None and index >= 0:
            held.facts[index] |= _COMPLETE | (_DUE if due else 0)

    def find(self, producer_id: int, offset: int) -> Decision | None:
        """The decision of that producer's transaction written at `offset`."""
        held = self._of_producer.get(producer_id)
        index = held.find(offset) if held is not None else -1
        return None if held is None or index < 0 else self._view(producer_id, held, index)

    def of_epoch(self, producer_id: int, producer_epoch: int, place: Place) -> Decision | None:
        """The latest decision of that producer's transaction of that epoch, if any names this partition one that does.

        Its markers carry the next epoch; at the last one, which has no next, there may be a second decision.
        """
        held = self._of_producer.get(producer_id)
        if held is None:
            return None
        marked = min(producer_epoch + 1, MAX_EPOCH)
        found = [
            self._view(producer_id, held, index)
            for index in reversed(range(len(held.offsets)))
            if held.facts[index] >> _EPOCH_SHIFT == marked
        ]
        return next((each for each in found if place in each.partitions), found[0] if found else None)

    def show(self, decision: Decision, place: Place) -> None:
        """Note that this partition has the decision's marker."""
        held = self._of_producer[decision.producer_id]
        held.shown[held.find(decision.offset)] |= 1 << decision.partitions.index(place)

    def shown_in(self, place: Place) -> array[int]:
        """Producer id and offset of each decision that this partition shows, one after the other."""
        found = array("q")
        for producer_id, held in self._of_producer.items():
            for index, shown in enumerate(held.shown):
                places = self._sets[held.partition_sets[index]] if shown else ()
                if place in places and shown >> places.index(place) & 1:
                    found.extend((producer_id, held.offsets[index]))
        return found

    def hide(self, place: Place) -> None:
        """Forget that this partition has markers: it is read again from the start."""
        for held in self._of_producer.values():
            for index, number in enumerate(held.partition_sets):
                if place in (places := self._sets[number]):
                    held.shown[index] &= ~(1 << places.index(place))

    def take_over(self, before: DecisionTable) -> None:
        """Note of the decisions that another table of the same log has, too, who has shown them there."""
        for producer_id, known in before._of_producer.items():
            held = self._of_producer.get(producer_id)
            for at, offset in enumerate(known.offsets if held else ()):
                index = held.find(offset) if held else -1
                if held and index >= 0 and known.sets_of(at, before._sets) == held.sets_of(index, self._sets):
                    held.shown[index] |= known.shown[at]

    def become_due(self) -> None:
        """What is complete by now, every partition that is read from now on shows."""
        for held in self._of_producer.values():
            for index, fact in enumerate(held.facts):
                if fact & _COMPLETE:
                    held.facts[index] = fact | _DUE

    def owed(self, producer_id: int, place: Place, after: int) -> list[Decision]:
        """The producer's decisions behind offset `after` that are due in this partition, which does not show them."""
        held = self._of_producer.get(producer_id)
        if held is None:
            return []
        return [
            self._view(producer_id, held, index)
            for index in range(bisect_right(held.offsets, after), len(held.offsets))
            if self._is_owed(held, index, place)
        ]

    def __iter__(self) -> Iterator[Decision]:
        for producer_id, held in self._of_producer.items():
            for index in range(len(held.offsets)):
                yield self._view(producer_id, held, index)

    def places(self) -> Iterator[Place]:
        """Every partition that a decision names."""
        for places in self._sets:
            yield from places

    def aborted(self) -> Iterator[tuple[int, int]]:
        """Producer id and epoch of each transaction that was aborted; not of the last epochs, which come twice."""
        for producer_id, held in self._of_producer.items():
            for fact in held.facts:
                if not fact & _COMMITTED and 0 < fact >> _EPOCH_SHIFT < MAX_EPOCH:
                    yield producer_id, (fact >> _EPOCH_SHIFT) - 1

    def not_shown(self) -> Iterator[tuple[Decision, tuple[Place, ...]]]:
        """The decisions that are due, each with the partitions that do not show it."""
        for producer_id, held in sorted(self._of_producer.items()):
            for index, fact in enumerate(held.facts):
                places = self._sets[held.partition_sets[index]]
                if fact & _DUE and held.shown[index] != (1 << len(places)) - 1:
                    shown = held.shown[index]
                    missing = tuple(place for bit, place in enumerate(places) if not shown >> bit & 1)
                    yield self._view(producer_id, held, index), missing

    def count(self, transactions: Counter[str]) -> None:
        """Add the decisions by state: the Complete row's where it was read, else the Prepare row's."""
        for held in self._of_producer.values():
            for fact in held.facts:
                stage = "Complete" if fact & _COMPLETE else "Prepare"
                transactions[f"{stage}{'Commit' if fact & _COMMITTED else 'Abort'}"] += 1

    def _is_owed(self, held: OfProducer, index: int, place: Place) -> bool:
        places = self._sets[held.partition_sets[index]]
        due = held.facts[index] & _DUE and place in places
        return bool(due) and not held.shown[index] >> places.index(place) & 1

    def _view(self, producer_id: int, held: OfProducer, index: int) -> Decision:
        fact = held.facts[index]
        return Decision(
            producer_id,
            held.offsets[index],
            fact >> _EPOCH_SHIFT,
            bool(fact & _COMMITTED),
            self._sets[held.partition_sets[index]],
            held.append_times[index],
        )
