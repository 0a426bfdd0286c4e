"""A transaction of many partitions: each call costs as much as it changes, however many there are."""

from __future__ import annotations

import math
import random

import pytest

from storage import MemoryStore
from tests.engine.conftest import SCHEMA, payments
from txn_engine import Engine
from txn_engine.producer.lanes import Lane
from txn_engine.producer.partition_list import PartitionList
from txn_engine.protocol.transaction_rows import (
    StoredRow,
    TransactionPartition,
    TransactionRow,
    TransactionState,
)
from txn_engine.protocol.transactions import add_partitions


class Counted(TransactionPartition):
    """A partition that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: tuple[object, ...]) -> bool:
        Counted.comparisons += 1
        return tuple(self) < tuple(other)

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return isinstance(other, tuple) and tuple(self) == tuple(other)

    __hash__ = TransactionPartition.__hash__


def row_of(partitions: int) -> StoredRow:
    named = tuple(Counted("payments", 0, 2 * number) for number in range(partitions))
    row = TransactionRow("bank", TransactionState.ONGOING, 7, 0, partitions=named)
    return StoredRow(0, row, 0, 0)


@pytest.mark.parametrize("partitions", [250, 4_000, 16_000])
@pytest.mark.parametrize("added", [1, 16])
def test_a_row_compares_what_is_added(partitions: int, added: int) -> None:
    """Adding partitions compares each of them with as many of the row's as a search by halves needs."""
    row = row_of(partitions)
    chance = random.Random(partitions)
    more = [Counted("payments", 0, 2 * number + 1) for number in chance.sample(range(partitions), added)]
    Counted.comparisons = 0
    found = add_partitions(row, producer_id=7, producer_epoch=0, partitions=more, now_ms=0)
    assert Counted.comparisons <= added * (2 * math.log2(partitions) + 2 * math.log2(added + 1) + 8)
    assert found is not None
    assert [*found.partitions] == sorted({*map(tuple, row.row.partitions), *map(tuple, more)})


@pytest.mark.parametrize("seed", range(20))
def test_partitions_stay_in_order_and_each_once(seed: int) -> None:
    """However partitions are added, a row has each of them once and in ascending order, and nothing is written where
    none is new.
    """
    chance = random.Random(seed)
    every = [TransactionPartition(topic, 0, number) for topic in ("a", "b") for number in range(12)]
    row = TransactionRow("bank", TransactionState.EMPTY, 7, 0)
    wanted: set[TransactionPartition] = set()
    for _ in range(12):
        named = chance.choices(every, k=chance.randint(1, 4))
        stored = StoredRow(0, row, 0, 0)
        found = add_partitions(stored, producer_id=7, producer_epoch=0, partitions=named, now_ms=0)
        assert (found is None) == ({*named} <= wanted)
        wanted |= {*named}
        row = found or row
        assert row.partitions == tuple(sorted(wanted))


def test_only_the_lanes_that_joined_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that joins a wide transaction starts its own lane, and not the 40 others."""
    started: list[TransactionPartition] = []
    start = Lane.start

    def noted(lane: Lane) -> None:
        started.append(lane.partition)
        start(lane)

    with Engine(MemoryStore()) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA, partitions=41)
        with engine.producer(transactional_id="bank") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(40):
                producer.produce("payments", payments(number), partition=number)
            producer.flush()
            monkeypatch.setattr(Lane, "start", noted)
            producer.produce("payments", payments(40), partition=40).result()
            assert {partition.partition for partition in started} == {40}
            producer.commit_transaction()
        assert engine.scan("payments").to_table().num_rows == 41


def test_a_list_of_partitions_grows_without_a_copy() -> None:
    """A longer list shares the memory of the shorter one, which stays as it was. Two that grow from one do not mix."""
    named = [TransactionPartition("payments", 0, number) for number in range(5)]
    none = PartitionList()
    two = none.with_more(named[:2])
    four = two.with_more([*named[1:4], named[2]])
    other = two.with_more([named[4]])
    assert [*two] == named[:2]
    assert [*four] == named[:4]
    assert [*other] == [*named[:2], named[4]]
    assert four._places is two._places
    assert other._places is not two._places
    assert (named[3] in two, named[3] in four, named[3] in other) == (False, True, False)
    assert (len(none), len(two), len(four)) == (0, 2, 4)
    assert two == PartitionList(named[:2])
    assert hash(two) == hash(PartitionList(named[:2]))
    assert two != four
