"""A store from before cuts, tables and field ids can be opened, verified, cut and published, and its records
are the same."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from storage import LocalStore
from tests.support.field_ids import field_ids
from tests.tables.before import rows_of_before, store_of_before
from tests.tables.before.write_store import rows_of
from tests.tables.ledgers import EAGER, engine_on
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.maintain.policy import DAY_MS
from txn_engine.testing import ManualClock

PENDING = [(40, 0), (42, 0), (41, 1), (42, 1)]
"""Account and partition of the records of `load-4`, which was decided and not marked."""


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(1_000)
    return clock


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    with engine_on(LocalStore(store_of_before(tmp_path)), clock) as engine:
        yield engine


def rows(engine: Engine, topic: str) -> list[list[object]]:
    return rows_of(engine.scan(topic).to_table())


def read_back(engine: Engine, topic: str, *formats: str) -> int:
    """Publish the topic, and compare each reader with the scan at that cut. Returns the number of rows."""
    cut = engine.cut()
    uris = engine.tables.publish(topic, formats, cut=cut)
    scanned = engine.scan(topic, cut=cut).to_table()
    expected = Counter(map(str, scanned.select(["account", "amount", "_timestamp"]).to_pylist()))
    found = {}
    if "delta" in formats:
        found["deltalake"] = DeltaTable(uris["delta"]).to_pyarrow_table()
        found["polars"] = pl.scan_delta(uris["delta"]).collect().to_arrow()
    if "iceberg" in formats:
        static = StaticTable.from_metadata(uris["iceberg"])
        found["pyiceberg"] = static.scan().to_arrow()
        found["polars iceberg"] = pl.scan_iceberg(static).collect().to_arrow()
        for name in ("pyiceberg", "polars iceberg"):
            at = pa.compute.add(found[name].column("log_base_offset"), found[name].column("_offset_delta"))
            assert sorted(at.to_pylist()) == sorted(scanned.column("_offset").to_pylist()), name
    for name, table in found.items():
        columns = table.select(["account", "amount", "_timestamp"])
        columns = columns.set_column(
            2, "_timestamp", columns.column("_timestamp").cast(pa.timestamp("ms", "UTC"))
        )
        assert Counter(map(str, columns.to_pylist())) == expected, name
    return scanned.num_rows


def test_it_is_read_as_that_code_read_it(engine: Engine) -> None:
    """The records are those that the old code read, and `verify` finds no fault. A transaction that was
    decided then is completed."""
    for topic in ("payments", "latest", "sides"):
        assert rows(engine, topic) == rows_of_before(topic)
    report = engine.admin.verify()
    assert report.ok
    assert {each.code for each in report.findings} == {"data-file-field-ids", "transaction-pending"}
    cut = engine.cut()
    assert rows_of(engine.scan("payments", cut=cut).to_table()) == rows_of_before("payments")
    engine.coordinator.write_pending_markers()
    new = [row for row in rows(engine, "payments") if row not in rows_of_before("payments")]
    assert sorted((row[0], row[2]) for row in new) == sorted(PENDING)
    assert engine.admin.describe_group("balances")


def test_its_topics_are_published(engine: Engine) -> None:
    """The topics are published: old files without ids, new ones with ids, merges of both, and the old code's
    merges and compaction."""
    assert read_back(engine, "payments", "delta", "iceberg") == 10
    assert read_back(engine, "latest", "delta", "iceberg") == 4
    engine.coordinator.write_pending_markers()
    assert read_back(engine, "payments", "delta", "iceberg") == 14
    old = engine.scan("payments").to_table().select(["account", "amount"])
    with engine.producer() as producer:
        producer.produce("payments", old.slice(0, 3), partition=0).result()
    assert read_back(engine, "payments", "delta", "iceberg") == 17
    assert max(map(len, field_ids(engine.store).values())) == 2
    engine.maintenance.compact("payments", policy=EAGER)
    assert read_back(engine, "payments", "delta", "iceberg") == 17
    assert engine.admin.verify().ok


def test_files_with_ids_of_others_are_refused_as_iceberg(engine: Engine) -> None:
    """Files with a caller's own ids are refused as Iceberg in one line, and nothing is published, because
    some readers would take one column for another. As Delta they are published, because its readers go by
    names."""
    with pytest.raises(InvalidRequestError) as refused:
        engine.tables.publish("sides")
    said = str(refused.value)
    assert "column 'account' with field id 2, not 1, and 2 more such files" in said
    assert "topics/sides/0/0/data/" in said
    assert "txn-engine maintain compact --topic sides" in said
    assert "\n" not in said
    keys = [info.key for info in engine.store.list("topics/sides/")]
    assert not any(part in key for key in keys for part in ("_delta_log", "iceberg", "published"))
    assert read_back(engine, "sides", "delta") == 3


def test_once_they_are_merged_they_are_published(engine: Engine) -> None:
    """After the files were merged, as the error says, the topic is published as Iceberg, and so is a new file
    with the topic's ids."""
    engine.maintenance.compact("sides", policy=EAGER)
    assert read_back(engine, "sides", "delta", "iceberg") == 3
    table = pa.table({"account": [7], "amount": [8]})
    with engine.producer() as producer:
        producer.produce("sides", table, partition=0).result()
    assert read_back(engine, "sides", "delta", "iceberg") == 4


def test_maintenance_goes_over_it(engine: Engine, clock: ManualClock) -> None:
    """Days later maintenance deletes the old code's dead files, and cuts and tables show the same."""
    engine.coordinator.write_pending_markers()
    files = len(field_ids(engine.store))
    clock.advance(2 * DAY_MS)
    engine.maintenance.compact(policy=EAGER)
    engine.admin.snapshot("payments")
    for job in (engine.maintenance.retain, engine.maintenance.clean, engine.maintenance.clean):
        job(policy=EAGER)
    assert read_back(engine, "payments", "delta", "iceberg") == 14
    assert len(field_ids(engine.store)) < files
    assert engine.admin.verify().ok


def test_the_store_is_small() -> None:
    with tarfile.open(Path(__file__).parent / "before" / "store.tar.gz") as held:
        assert sum(each.size for each in held) < 300_000
