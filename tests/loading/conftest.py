"""A store with the topic of payments and its dead-letter topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.loading.ledgers import new_url, set_up
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, connect


@pytest.fixture
def engine() -> Iterator[Engine]:
    with connect(new_url(), configs=FEW_INTERNAL) as found:
        set_up(found)
        yield found
