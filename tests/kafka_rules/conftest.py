"""The fixtures give a small engine in memory for each test, and one that the cells of a table share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import txn_engine
from tests.kafka_rules.driver import SCHEMA, TOPIC, Partition
from txn_engine import Engine
from txn_engine.testing import ManualClock

_STORES = count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url() -> str:
    """The URL of a memory store that nobody else uses."""
    return f"memory://kafka-rules-{next(_STORES)}"


@pytest.fixture
def engine(url: str, clock: ManualClock) -> Iterator[Engine]:
    with txn_engine.connect(url, clock=clock) as connected:
        connected.admin.create_topic(TOPIC, partitions=4, schema=SCHEMA)
        yield connected


@pytest.fixture
def log(engine: Engine) -> Partition:
    """The first partition of the topic, with its leader's rules."""
    return Partition(engine.partition(TOPIC, 0))


@pytest.fixture(scope="module")
def table_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def table_engine(table_clock: ManualClock) -> Iterator[Engine]:
    """One engine for all cells of a table. Each cell has a transactional id of its own."""
    with txn_engine.connect(f"memory://kafka-rules-table-{next(_STORES)}", clock=table_clock) as connected:
        connected.admin.create_topic(TOPIC, partitions=4, schema=SCHEMA)
        yield connected
