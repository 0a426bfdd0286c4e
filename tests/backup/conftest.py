"""A store with few internal partitions, a place for its backups, and helpers of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest

from storage import MemoryStore, ObjectStore
from tests.support.faults import no_pause
from txn_engine import Engine, TopicPartition
from txn_engine.backup import restore
from txn_engine.log.objects import Objects
from txn_engine.log.store_config import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    StoreConfig,
    create_store_config,
)
from txn_engine.producer import Producer
from txn_engine.testing import ManualClock

SCHEMA = pa.schema([("account_id", pa.int64()), ("amount", pa.int64())])
P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
_STORES = count()
_PRODUCERS = count()


def fresh_store() -> MemoryStore:
    """An empty store in memory for this test only."""
    return MemoryStore(f"backup-{next(_STORES)}")


def set_up(store: ObjectStore) -> None:
    """Set the store up with two partitions of each internal topic, because tests open a store many times."""
    counts = {TRANSACTION_STATE_TOPIC: 2, CONSUMER_OFFSETS_TOPIC: 2}
    config = StoreConfig(f"{next(_STORES):032x}", 0, {"tested": True}, internal_partitions=counts)
    create_store_config(Objects(store, no_pause), config)


def opened(store: ObjectStore, clock: ManualClock) -> Engine:
    return Engine(store, clock=clock, pause=no_pause)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place() -> MemoryStore:
    return fresh_store()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    store = fresh_store()
    set_up(store)
    with opened(store, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        yield engine


def payments(*accounts: int) -> pa.Table:
    return pa.table({"account_id": list(accounts), "amount": [1] * len(accounts)}, schema=SCHEMA)


def begun(engine: Engine, transactional_id: str | None = None, run_id: str | None = None) -> Producer:
    """A producer with an open transaction. Nobody writes the markers of its transactions."""
    name = transactional_id or f"load-{next(_PRODUCERS)}"
    producer = engine.producer(transactional_id=name, markers="deferred")
    producer.init_transactions()
    producer.begin_transaction(run_id)
    return producer


def write(producer: Producer, *accounts: int, partition: int = 0, topic: str = "payments") -> None:
    producer.produce(topic, payments(*accounts), partition=partition).result()


def load(engine: Engine, run_id: str, *accounts: int, transactional_id: str = "loader") -> None:
    """Commit one run with these payments in both partitions."""
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction(run_id=run_id):
            for partition in (0, 1):
                producer.produce("payments", payments(*accounts), partition=partition)


def has_committed(engine: Engine, transactional_id: str, *runs: str) -> list[bool | None]:
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        return [producer.has_committed(run) for run in runs]


def places_in(engine: Engine, topic: str = "payments") -> list[tuple[int, int, int]]:
    """The partition, offset and account of each record."""
    table = engine.scan(topic).to_table(["_partition", "_offset", "account_id"])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def restored(place: ObjectStore, clock: ManualClock, number: int | None = None) -> Engine:
    """An engine on a restored copy, in which `verify` finds nothing."""
    target = fresh_store()
    restore(place, target, number=number, clock=clock)
    engine = opened(target, clock)
    assert not engine.admin.verify().findings
    return engine
