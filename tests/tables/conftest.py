"""A clock that stands still, and an engine with an empty topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import LocalStore
from tests.tables.ledgers import SCHEMA, engine_on
from txn_engine import Engine
from txn_engine.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    """A store on disk with an empty topic `payments` of two partitions."""
    with engine_on(LocalStore(tmp_path / "ledger"), clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        yield engine
