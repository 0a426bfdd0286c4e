"""The tests make a few cuts under load (`python -m tests.cuts_under_load` makes thousands), and a torn cut is
reported."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console

from storage import MemoryStore
from tests.cuts_under_load.bank import PAYER, FastClock, Seen, pay, read_since, rows, set_up, transfer
from tests.cuts_under_load.run import run
from tests.suite.tiers import in_shard
from tests.support.faults import no_pause
from txn_engine import Engine, OffsetAndMetadata, TopicPartition

_NAMES = count()


@pytest.mark.parametrize("cuts", in_shard("kills", [4, 12], keep=1))
def test_cuts_while_processes_die(cuts: int, tmp_path: Path) -> None:
    """Cuts are made and read while the processes that use the store are killed. None is torn."""
    toll = run(tmp_path / "bank", cuts=cuts, minutes=10, seed=3, console=Console(quiet=True))
    assert toll.findings == []
    assert toll.counts["torn"] == 0
    assert toll.counts["cuts made and read"] >= cuts
    assert toll.counts["cuts read at last"] >= 2
    assert toll.counts["transactions of tellers"] > 0
    assert toll.counts["objects audited"] >= toll.counts["objects kept"]


@pytest.fixture
def bank() -> Iterator[Engine]:
    store, clock = MemoryStore(f"bank-{next(_NAMES)}"), FastClock(1_700_000_000_000, 1)
    set_up(store, clock)
    with Engine(store, clock=clock, pause=no_pause) as engine:
        with engine.producer(transactional_id="teller-0") as producer:
            producer.init_transactions()
            for _ in range(3):
                producer.begin_transaction()
                transfer(producer, 0, random.Random(5))
                producer.commit_transaction()
        yield engine


def test_what_is_whole_is_not_torn(bank: Engine) -> None:
    """A cut is whole when it is read from the beginning, and when it is read on top of an earlier one."""
    with bank.producer(transactional_id="payer-0") as payer:
        payer.init_transactions()
        while pay(bank, payer, random.Random(1)):
            pass
    seen = Seen()
    first = read_since(bank, bank.cut(), seen)
    assert (first.rows, first.torn) == (15, [])
    with bank.producer(transactional_id="teller-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        transfer(producer, 1, random.Random(6))
        producer.commit_transaction()
    second = read_since(bank, bank.cut(), seen)
    assert (second.rows, second.torn) == (7, [])  # the compacted topic is read whole


@pytest.mark.parametrize(
    ("topic", "row", "says"),
    [
        ("taken", (0, 1, -5), "transfer 1 of teller 0 is there with [-5]"),
        ("given", (0, 1, 5), "transfer 1 of teller 0 is there with [5]"),
        ("notes", (0, 1, 0), "transfer 1 of teller 0 is noted, and not inside"),
        ("paid", (2, 1, 0), "paid: partition 2, offset 1, +1 times"),
        ("latest", (7, 1, 0), "the latest are"),
    ],
)
def test_what_is_torn_is_reported(bank: Engine, topic: str, row: tuple[int, int, int], says: str) -> None:
    """A row without the other rows of its transaction is reported."""
    bank.partition(topic, 0).append(rows(row))
    found = read_since(bank, bank.cut(), Seen())
    assert len(found.torn) == 1
    assert says in found.torn[0]


def test_a_position_without_its_output_is_reported(bank: Engine) -> None:
    with bank.consumer(group_id=PAYER) as consumer:
        ends = {at.partition: end for at, end in bank.cut().offsets.items() if at.topic == "taken" and end}
        at, end = next(iter(ends.items()))
        consumer.assign([TopicPartition("taken", at)])
        consumer.poll()
        consumer.commit({TopicPartition("taken", at): OffsetAndMetadata(end)})
    found = read_since(bank, bank.cut(), Seen())
    assert found.torn
    assert all(f"paid: partition {at}, offset" in wrong for wrong in found.torn)
