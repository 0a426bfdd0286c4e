"""A store that was written by the code from before topics and settings could change can be opened, changed
and verified.

`python -m tests.schemas.older_code 53cf40d` checks what that code does with a store that was changed since.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from storage import LocalStore
from tests.schemas.before import rows_of_before, store_of_before
from tests.schemas.before.write_store import TOPICS, payments, rows_of
from tests.support.refusals import refused
from tests.tables.ledgers import EAGER, engine_on
from txn_engine import AddColumn, DropColumn, Engine, InvalidRequestError, RenameColumn, WidenColumn
from txn_engine.quality import Declaration, check_exactly_once
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

LATER_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(LATER_MS)
    return clock


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    with engine_on(LocalStore(store_of_before(tmp_path)), clock) as engine:
        yield engine


def put(engine: Engine, *accounts: int) -> None:
    """Put records in the present columns of the topic."""
    names = engine.logs.topics.look_up("payments").schema.names
    table = payments(*accounts)
    if "value" in names:
        table = table.rename_columns(["account", "value", "size"])
    with engine.producer() as producer:
        producer.produce("payments", table).result()


def prove(engine: Engine, folder: Path, **arguments: bool) -> tuple[int, str]:
    """The proof from which this one went on, and why it began a new chain."""
    result = check_exactly_once(
        engine,
        Declaration("payments", ("account",)),
        report_folder=folder / "report",
        record=True,
        **arguments,  # type: ignore[arg-type]
    )
    assert result.success, result.failed
    assert result.proof is not None
    return result.proof.since, result.proof.began


def test_it_opens_and_is_read_as_that_code_read_it(engine: Engine) -> None:
    for topic in TOPICS:
        assert rows_of(engine.scan(topic).to_table()) == rows_of_before(topic)
        assert engine.logs.topics.look_up(topic).changes == 0
    report = engine.admin.verify()
    assert {each.code for each in report.findings} == {"transaction-pending"}
    inside = engine.scan("payments", cut=0, schema_version="cut").to_table()
    assert rows_of(inside) == rows_of_before("payments")


def test_its_settings_change(engine: Engine) -> None:
    """The settings of the topic and the store can be changed, next to the objects that are there."""
    assert engine.admin.describe_configs("payments")["retention.ms"] == 10**15
    engine.admin.alter_configs({"retention.ms": 10**14, "tables.publish": "delta"}, topic="payments")
    engine.admin.alter_configs({"transaction.max.timeout.ms": 1_800_000})
    assert engine.limits.max_transaction_timeout_ms == 1_800_000
    topic = engine.logs.topics.look_up("payments")
    assert (topic.retention_ms, topic.changes) == (10**14, 1)
    engine.coordinator.write_pending_markers()
    put(engine, 50)
    engine.maintenance.retain("payments", policy=EAGER)
    assert len(rows_of(engine.scan("payments").to_table())) == len(rows_of_before("payments")) + 4 + 1
    assert engine.admin.verify().ok


def test_its_columns_change(engine: Engine, tmp_path: Path) -> None:
    """The topic's columns can be changed: old and new files are read, a transaction of that time is marked,
    files are merged, the old cut is read, and the old proof is continued."""
    changes = [
        RenameColumn("amount", "value"),
        WidenColumn("value", pa.decimal128(20, 2)),
        AddColumn(pa.field("kind", pa.string()), default="old"),
    ]
    engine.admin.alter_topic("payments", changes)
    engine.coordinator.write_pending_markers()
    put(engine, 50, 51)
    table = engine.scan("payments").to_table(["account", "value", "size", "kind"])
    rows = sorted([a, str(v), s, k] for a, v, s, k in zip(*table.to_pydict().values(), strict=True))
    expected = [[*row[:3], "old"] for row in rows_of_before("payments")]
    assert rows[: len(expected)] == expected
    assert [row[0] for row in rows[len(expected) :]] == [40, 41, 42, 43, 50, 51]
    assert prove(engine, tmp_path) == (0, "")
    engine.admin.alter_topic("payments", DropColumn("size"))
    engine.maintenance.compact("payments", policy=EAGER)
    assert prove(engine, tmp_path)[0] == 1
    assert "column 'size' of version" in prove(engine, tmp_path, whole=True)[1]
    assert rows_of(engine.scan("payments", cut=0, schema_version="cut").to_table()) == rows_of_before(
        "payments"
    )
    assert DeltaTable(engine.tables.status("payments")[0].uri).to_pyarrow_table().num_rows == 10
    assert rows_of(engine.scan("untouched").to_table()) == rows_of_before("untouched")
    assert engine.admin.verify().ok


def test_records_of_it_are_erased(engine: Engine) -> None:
    """Records can be erased from the old files, the old cut and the old table."""
    report = engine.erase("payments", "account = 12", execute=True)
    assert (report.records, report.still_held) == (1, ())
    left = [row for row in rows_of_before("payments") if row[0] != 12]
    assert rows_of(engine.scan("payments").to_table()) == left
    assert rows_of(engine.scan("payments", cut=0).to_table()) == left
    assert (
        12
        not in DeltaTable(engine.tables.status("payments")[0].uri).to_pyarrow_table()["account"].to_pylist()
    )
    assert engine.admin.verify().ok


def test_it_evolves_in_every_way_at_once(engine: Engine, clock: ManualClock, tmp_path: Path) -> None:
    """Settings, columns and an erasure can be changed at once, with days of maintenance afterwards."""
    engine.admin.alter_configs({"retention.ms": -1}, topic="payments")
    engine.tables.unpublish("payments")
    engine.admin.alter_topic("payments", RenameColumn("amount", "value"))
    engine.coordinator.write_pending_markers()
    put(engine, 50)
    assert engine.erase("payments", "account = 1 OR value = 40.25", execute=True).records == 2
    clock.advance(3 * 86_400_000)
    for job in (engine.maintenance.compact, engine.maintenance.retain, engine.maintenance.clean):
        job(policy=EAGER)
    accounts = sorted(engine.scan("payments").to_table()["account"].to_pylist())
    assert accounts == [2, 10, 11, 12, 13, 30, 31, 32, 33, 41, 42, 43, 50]
    result = check_exactly_once(
        engine, Declaration("payments", ("account",)), report_folder=tmp_path / "report", record=True
    )
    assert result.success, result.failed
    assert engine.admin.verify().ok


def test_the_store_is_small() -> None:
    with tarfile.open(Path(__file__).parent / "before" / "store.tar.gz") as held:
        assert sum(each.size for each in held) < 500_000


def test_a_version_that_it_never_had(engine: Engine) -> None:
    with refused(InvalidRequestError, Reason.UNKNOWN_SCHEMA_VERSION):
        engine.scan("payments", schema_version=1)
