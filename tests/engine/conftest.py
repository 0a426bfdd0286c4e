"""An engine on a store of the test's own, and payments to put into it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pytest

from storage import open_store
from txn_engine import Engine, errors
from txn_engine.clock import Waiting, monotonic_ms
from txn_engine.producer import Producer
from txn_engine.testing import ManualClock

SCHEMA = pa.schema([("account_id", pa.int64()), ("amount", pa.decimal128(18, 2))])
_STORES = count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url() -> str:
    """A memory store that no other test uses."""
    return f"memory://engine-test-{next(_STORES)}"


class Later:
    """The clock by which an engine measures how long it waits. A test moves it on where an engine may look
    again later."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self.waiting = Waiting(lambda: monotonic_ms() + self._ahead_ms)

    def advance(self, ms: int) -> None:
        """Let this much time pass for the engines that use this clock."""
        self._ahead_ms += ms


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def engine(url: str, clock: ManualClock, later: Later) -> Iterator[Engine]:
    with Engine(open_store(url, create=True), clock=clock, waiting=later.waiting) as connected:
        connected.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        yield connected


def payments(*accounts: int, amount: str = "1.00") -> pa.Table:
    """One payment for each of these accounts."""
    return pa.table(
        {"account_id": pa.array(accounts, pa.int64()), "amount": pa.array([Decimal(amount)] * len(accounts))},
        schema=SCHEMA,
    )


def load(engine: Engine) -> None:
    """Six transactions, every other one aborted, and a zombie whose commit is refused."""
    zombie = engine.producer(transactional_id="load")
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.produce("payments", payments(666)).result()
    producer = engine.producer(transactional_id="load")
    producer.init_transactions()
    for turn in range(6):
        producer.begin_transaction()
        producer.produce("payments", payments(turn, turn + 10))
        producer.flush()
        if turn % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    with pytest.raises(errors.ProducerFencedError):
        zombie.commit_transaction()


def at_rest(producer: Producer) -> None:
    """Wait until the Complete row of the producer's last transaction is settled. Nobody else needs to wait
    for it."""
    producer._effects.wait_for_completion()
