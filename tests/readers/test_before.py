"""Engines that open tables read a store that is older than tables and field ids (tests/tables/before)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import LocalStore
from tests.readers.environments import SESSION, run
from tests.readers.test_views import Shown, expected, note
from tests.tables.before import store_of_before
from tests.tables.ledgers import EAGER, engine_on, rows
from txn_engine import Engine

pytestmark = [pytest.mark.shard("engines"), pytest.mark.timeout(600)]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with engine_on(LocalStore(store_of_before(tmp_path))) as engine:
        yield engine


READERS = [
    pytest.param("tables", "duckdb_tables"),
    pytest.param("delta", "delta_spark", marks=SESSION["delta"]),
    pytest.param("iceberg", "iceberg_spark", marks=SESSION["iceberg"]),
]


@pytest.mark.parametrize(("environment", "program"), READERS)
def test_its_files_go_by_name(engine: Engine, environment: str, program: str) -> None:
    """Readers find the columns of its files by name, in these files alone, next to files with ids, and merged
    with them."""
    shown = note(engine)
    engine.coordinator.write_pending_markers()
    with engine.producer() as producer:
        producer.produce("payments", rows(50, 51), partition=0).result()
    note(engine, shown)
    engine.maintenance.compact("payments", policy=EAGER)
    note(engine, shown)
    found = run(environment, program, shown.request(tags=shown.tags))
    if environment != "iceberg":
        assert found["versions"] == shown.by_version
    if environment != "delta":
        assert found["root"] == shown.by_snapshot[-1]
        assert found["snapshots"] == shown.by_snapshot


@pytest.mark.parametrize(("environment", "program"), READERS[:2])
def test_deltas_readers_do_not_go_by_ids(engine: Engine, environment: str, program: str) -> None:
    """If files have the ids of two columns exchanged, Delta's readers still find each column. As an Iceberg
    table the topic is refused."""
    uri = engine.tables.publish("sides", "delta")["delta"]
    request: dict[str, Any] = Shown(uri, "").request(versions=[0])
    without, _ = expected(engine, topic="sides")
    assert run(environment, program, request)["delta"] == without
