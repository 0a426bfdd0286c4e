"""An erasure in a topic whose columns changed leaves the other records as they were, by every version of the
schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from storage import MemoryStore
from tests.erasing.dying import attempt, erase
from tests.erasing.persons import EAGER, NAME, PERSON, SCHEMA, TOPIC, WHERE, objects_with, open_engine, rows
from tests.suite.tiers import in_shard
from tests.support.stores import assert_sound, copy_of
from txn_engine import AddColumn, DropColumn, Engine, RenameColumn, WidenColumn
from txn_engine.maintain.policy import DAY_MS
from txn_engine.quality.digest import digest_of
from txn_engine.testing import ManualClock

Seen = Sequence[tuple[int | None, int | Literal["cut"] | None]]
_SEEN: Seen = ((None, None), (0, "cut"), (0, 0), (1, "cut"), (2, "cut"))
"""Cuts, and the versions of the columns by which they are read."""


def _produce(engine: Engine, table: pa.Table) -> None:
    with engine.producer() as producer:
        producer.produce(TOPIC, table, partition=0).result()


def _digests(engine: Engine, seen: Seen = _SEEN, *, without: bool = False) -> list[str]:
    """The digests of all columns that a scan returns as of each cut by the columns of that time, or of the
    records without the person."""
    tables = [engine.scan(TOPIC, cut=cut, schema_version=version).to_table() for cut, version in seen]
    if without:
        tables = [table.filter(pc.field("account_id") != PERSON) for table in tables]
    return [str(digest_of(table)) for table in tables]


def _changed(engine: Engine, clock: ManualClock) -> None:
    """A topic with files of three versions, live and replaced, and cuts of each. One column was dropped, one
    renamed and one widened."""
    engine.admin.create_topic(
        TOPIC, partitions=1, schema=SCHEMA.append(pa.field("share", pa.float32())), key="account_id"
    )
    for account in (PERSON, 3):
        table = rows(1, account, 2)
        _produce(engine, table.append_column("share", pa.array([0.5, 0.25, 2.0], pa.float32())))
    engine.cut()
    engine.admin.alter_topic(TOPIC, [DropColumn("amount"), RenameColumn("name", "full_name")])
    _produce(engine, pa.table({"account_id": [PERSON, 4], "full_name": [NAME, None], "share": [1.0, 2.0]}).cast(
        engine.admin.describe_topic(TOPIC).schema
    ))  # fmt: skip
    engine.cut()
    engine.admin.alter_topic(
        TOPIC, [WidenColumn("share", pa.float64()), AddColumn(pa.field("city", pa.string()), default="Ulm")]
    )
    _produce(
        engine,
        pa.table({"account_id": [5, PERSON], "full_name": ["e", NAME], "share": [1.5, 2.5], "city": ["a", "b"]},
                 schema=engine.admin.describe_topic(TOPIC).schema),
    )  # fmt: skip
    engine.cut()
    clock.advance(DAY_MS // 2)


@pytest.mark.parametrize("merged", [False, True])
def test_a_file_keeps_its_own_columns(*, merged: bool) -> None:
    """Other records keep their values of a dropped column too, for cuts, in live files and in files that a
    merge has replaced."""
    clock = ManualClock()
    with open_engine(MemoryStore(), clock) as engine:
        _changed(engine, clock)
        if merged:
            engine.maintenance.compact(policy=EAGER)
        others, all_of_them = _digests(engine, without=True), _digests(engine)
        versions = [file.schema_version for file in engine.scan(TOPIC).files()]
        assert len(objects_with(engine.store)) > 2
        assert erase(engine).is_complete
        assert _digests(engine) == others != all_of_them
        assert [file.schema_version for file in engine.scan(TOPIC).files()] == versions
        assert objects_with(engine.store) == []
        assert_sound(engine)


# --- tables that the columns keep from being published ----------------------------------------------------


def _published(change: AddColumn | RenameColumn) -> tuple[MemoryStore, ManualClock]:
    """A topic whose columns were changed after both its tables were published, and which has later
    records."""
    store, clock = MemoryStore(), ManualClock()
    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        _produce(engine, rows(1, PERSON, 2))
        engine.cut()
        engine.tables.publish(TOPIC)
        after = engine.admin.alter_topic(TOPIC, change).after
        _produce(engine, rows(3, PERSON).rename_columns(after.names[:3]))
    return store, clock


_DEFAULT = AddColumn(pa.field("city", pa.string()), default="Ulm")
_RENAME = RenameColumn("name", "full_name")


@pytest.mark.parametrize(("change", "gone"), [(_DEFAULT, {"delta", "iceberg"}), (_RENAME, {"delta"})])
def test_a_table_that_cannot_be_published_is_withdrawn(
    change: AddColumn | RenameColumn, gone: set[str]
) -> None:
    """A look reports the table and writes nothing. An erasure withdraws it, and the other table shows the
    remaining records."""
    store, clock = _published(change)
    with open_engine(store, clock) as engine:
        before = [info.key for info in store.list("")]
        look = engine.erase(TOPIC, WHERE)
        assert look.withdrawn.keys() == gone
        assert [info.key for info in store.list("")] == before
        report = erase(engine)
        assert report.is_complete
        assert report.withdrawn == look.withdrawn
        assert report.tables.keys() == {"delta", "iceberg"} - gone
        assert {each.format for each in engine.tables.status(TOPIC) if each.cut < 0} == gone
        assert objects_with(store) == []
        assert engine.erase(TOPIC, WHERE).withdrawn == {}
        assert_sound(engine)


def test_a_table_that_shows_none_of_the_records_stays() -> None:
    """A table does not show records after its cut, so it stays if only those are erased."""
    store, clock = _published(_DEFAULT)
    with open_engine(store, clock) as engine:
        where = f"{WHERE} AND _offset > 2"
        assert engine.erase(TOPIC, where).withdrawn == {}
        report = engine.erase(TOPIC, where, execute=True)
        assert (report.withdrawn, report.records, report.is_complete) == ({}, 1, True)
        assert all(each.cut >= 0 for each in engine.tables.status(TOPIC))


def test_a_table_that_has_shown_them_stays() -> None:
    """The newest version of the table does not show the records, because their file was trimmed before it.
    Older versions name a file that is gone."""
    with open_engine(MemoryStore(), clock := ManualClock()) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, retention_ms=DAY_MS)
        _produce(engine, rows(1, PERSON))
        engine.tables.publish(TOPIC, "delta")
        clock.advance(2 * DAY_MS)
        _produce(engine, rows(3))
        engine.maintenance.retain(policy=EAGER)
        engine.tables.publish(TOPIC, "delta")
        engine.admin.alter_topic(TOPIC, _DEFAULT)
        look = engine.erase(TOPIC, WHERE)
        assert (look.pins, look.withdrawn) == (("delta version 0",), {})
        report = erase(engine)
        assert (report.withdrawn, report.is_complete) == ({}, True)
        assert objects_with(engine.store) == []


@pytest.mark.parametrize(
    ("fault", "step"), in_shard("kills", [("dies after", 6), ("dies after", 1), ("before", 3)], keep=1)
)
def test_withdrawn_at_every_write(fault: str, step: int) -> None:
    """If an erasure was cut off at any write, the next one finds the table as it was or withdrawn, and
    finishes."""
    made, clock = _published(_DEFAULT)
    with open_engine(copy_of(made), clock) as engine:
        others = _digests_of(engine, without=True)
    for at in range(0, attempt(copy_of(made), clock()), step):
        store = copy_of(made)
        attempt(store, clock(), fault, at)
        with open_engine(store, clock) as engine:
            assert erase(engine).is_complete
            assert objects_with(store) == []
            assert _digests_of(engine) == others
            assert_sound(engine)


def _digests_of(engine: Engine, *, without: bool = False) -> list[str]:
    return _digests(engine, ((None, None), (0, None), (0, "cut")), without=without)
