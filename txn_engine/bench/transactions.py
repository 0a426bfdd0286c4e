"""Transactions over four partitions, one after the other: when each returned, was visible, and complete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from txn_engine.bench.bare import BareTransaction
from txn_engine.bench.marks import entry_kinds, objects_put, wait_until_complete
from txn_engine.bench.payments import payments
from txn_engine.bench.watched import Call, WatchedStore
from txn_engine.producer import Producer

PARTITIONS = 4
ROWS = 100
"""Of a transaction, in each partition."""
_QUIET_S = 0.005


def batches(first_id: int = 0) -> list[pa.Table]:
    """The records of a transaction: a table for each partition."""
    return [payments(ROWS, first_id + ROWS * number) for number in range(PARTITIONS)]


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one transaction, from its beginning."""

    returned: float
    visible: float
    complete: float


@dataclass(slots=True)
class Ours:
    """A producer, initialised, over a watched store; what it did is told at the end."""

    store: WatchedStore
    producer: Producer
    topic: str
    parts: Sequence[pa.Table]
    _done: list[tuple[float, float, list[Call]]] = field(default_factory=list)

    def transact(self) -> None:
        """One transaction: a call of `produce` for each partition, none awaited."""
        self.producer.begin_transaction()
        for number, part in enumerate(self.parts):
            self.producer.produce(self.topic, part, partition=number)
        self.producer.commit_transaction()

    def rest(self) -> None:
        """Wait until the last one is complete, and what it left running is done."""
        wait_until_complete(self.store)
        self.store.wait_until_quiet(_QUIET_S)

    def timed(self) -> None:
        """One transaction, noted; and its rest."""
        self.store.take()
        began = time.perf_counter()
        self.transact()
        returned = time.perf_counter()
        self.rest()
        self._done.append((began, returned, self.store.take()))

    def seconds(self) -> list[Seconds]:
        """Of those that were noted, in their order."""
        kinds = entry_kinds(self.store.watched, [call for *_, calls in self._done for call in calls])
        found = []
        for began, returned, calls in self._done:
            marks = kinds.marks(calls)
            if marks.visible is None or marks.complete is None:
                raise RuntimeError("bench: a transaction that is not complete")
            found.append(Seconds(returned - began, marks.visible - began, marks.complete - began))
        return found

    def bare(self) -> BareTransaction:
        """The objects of the last noted transaction, for a program that makes them anew."""
        calls = self._done[-1][2]
        return BareTransaction.of(self.store.watched, calls, entry_kinds(self.store.watched, calls))

    def objects(self) -> int:
        """That the last noted transaction put."""
        return objects_put(self._done[-1][2])
