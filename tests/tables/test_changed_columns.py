"""Tables of topics whose columns change show the rows of a naive model at each version, or are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError
from pyiceberg.table import StaticTable

import txn_engine
from storage import LocalStore
from tests.schemas.model import ModelTopic
from tests.suite.tiers import in_shard
from tests.support.faults import FaultyStore
from tests.support.kills import Death, ProcessDiedError, die
from tests.support.refusals import refused
from txn_engine import (
    AddColumn,
    DropColumn,
    Engine,
    InvalidRequestError,
    MakeNullable,
    RenameColumn,
    ReorderColumns,
    WidenColumn,
)
from txn_engine.errors import ConcurrentTransactionsError, TxnEngineError
from txn_engine.maintain import MaintenancePolicy
from txn_engine.reasons import Reason
from txn_engine.schemas import evolving
from txn_engine.schemas.changes import Change
from txn_engine.tables.delta import DeltaView

EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
OWN = ("_offset_delta", "_timestamp", "log_partition", "log_base_offset")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("size", pa.int32()), ("note", pa.string())])
FOLDER = "topics/t/0"
Rows = list[dict[str, Any]]


def by_id(table: pa.Table) -> Rows:
    names = [name for name in table.schema.names if name not in OWN]
    return sorted(table.select(names).to_pylist(), key=lambda row: row["id"])


def delta(uri: str, version: int | None = None) -> Rows:
    """The rows with their columns in order, as deltalake and Polars agree."""
    found = by_id(DeltaTable(uri, version=version).to_pyarrow_table())
    frame = pl.scan_delta(uri, version=version).collect()
    assert by_id(frame.to_arrow()) == found
    assert not found or [name for name in frame.columns if name not in OWN] == list(found[0])
    return found


def iceberg(uri: str, snapshot: int | None = None) -> Rows:
    """The rows with their columns in order, as pyiceberg and Polars agree."""
    table = StaticTable.from_metadata(uri)
    found = by_id(table.scan(snapshot_id=snapshot).to_arrow())
    frame = pl.scan_iceberg(table, snapshot_id=snapshot).collect()
    assert by_id(frame.to_arrow()) == found
    return found


READERS: dict[str, Callable[[str, int | None], Rows]] = {"delta": delta, "iceberg": iceberg}
CANNOT: dict[str, frozenset[str]] = {"delta": frozenset({"rename", "widen"}), "iceberg": frozenset()}


@pytest.mark.parametrize("table_format", READERS)
@pytest.mark.parametrize("seed", in_shard("engines", range(6), keep=[3]))
def test_readers_give_the_models_rows(tmp_path: Path, table_format: str, seed: int) -> None:
    """Readers see the model's rows at each version, with the columns that the topic had then, even if only
    the columns have changed."""
    model = ModelTopic(random.Random(100 + seed), with_defaults=False, without=CANNOT[table_format])
    read = READERS[table_format]
    with txn_engine.connect(str(tmp_path)) as engine:
        engine.admin.create_topic("t", partitions=1, schema=model.schema)
        producer = engine.producer()
        shown: list[tuple[int, Rows]] = []
        for step in range(5):
            producer.produce("t", model.produce(3)).result()
            if step % 2:
                publish(engine, table_format)
            engine.admin.alter_topic("t", model.change())
            if step == 3:
                engine.maintenance.compact("t", policy=EAGER)
            uri = publish(engine, table_format)
            assert read(uri, None) == model.expected()
            shown.append((place_of(engine, table_format, uri), model.expected()))
        for place, rows in shown:
            assert [list(row.items()) for row in read(uri, place)] == [list(row.items()) for row in rows]
        assert engine.admin.verify().findings == ()


def publish(engine: Engine, table_format: str) -> str:
    return engine.tables.publish("t", [table_format])[table_format]


def place_of(engine: Engine, table_format: str, uri: str) -> int:
    """The newest version for time travel: Delta's own number, or Iceberg's snapshot."""
    if table_format == "delta":
        return engine.tables.status("t")[0].version
    return int(StaticTable.from_metadata(uri).metadata.current_snapshot_id or 0)


# --- one table, step by step --------------------------------------------------------------------------------------


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A topic with two records."""
    with txn_engine.connect(str(tmp_path / "ledger")) as engine:
        engine.admin.create_topic("t", partitions=1, schema=SCHEMA, tables_publish="delta,iceberg")
        put(engine, 1)
        put(engine, 2)
        yield engine


def put(engine: Engine, *numbers: int, **more: Sequence[Any]) -> None:
    """Put records in the present columns, with nulls in those that are not known here."""
    known = {"id": numbers, "size": [each * 10 for each in numbers], "note": [f"n{each}" for each in numbers]}
    known |= more
    schema = engine.logs.topics.look_up("t").schema
    rows = {name: known.get(name, [None] * len(numbers)) for name in schema.names}
    with engine.producer() as producer:
        producer.produce("t", pa.table(rows, schema=schema)).result()


def versions(engine: Engine) -> dict[str, tuple[int, int]]:
    """For each format the newest version, and its version of the columns."""
    return {each.format: (each.version, each.schema_version) for each in engine.tables.status("t")}


def test_new_columns_are_a_version_though_nothing_else_is_new(engine: Engine) -> None:
    """New columns alone make one new version, however often the topic is published. A dry run says so before.
    Older versions keep their columns."""
    uris = engine.tables.publish("t")
    engine.admin.alter_topic("t", [AddColumn(pa.field("kind", pa.string())), DropColumn("note")])
    due = engine.tables.publish_due(dry_run=True)
    assert [(each.topic, each.format) for each in due.partitions] == [("t", "delta"), ("t", "iceberg")]
    assert versions(engine) == {"delta": (0, 0), "iceberg": (0, 0)}
    assert len(engine.tables.publish_due().partitions) == 2
    assert engine.tables.publish_due().partitions == engine.tables.publish_due(dry_run=True).partitions == ()
    assert versions(engine) == {"delta": (1, 1), "iceberg": (1, 1)}
    new = [{"id": 1, "size": 10, "kind": None}, {"id": 2, "size": 20, "kind": None}]
    uris = engine.tables.publish("t")
    assert delta(uris["delta"]) == iceberg(uris["iceberg"]) == new
    old = [{"id": 1, "size": 10, "note": "n1"}, {"id": 2, "size": 20, "note": "n2"}]
    assert delta(uris["delta"], 0) == iceberg(uris["iceberg"], 1) == old
    tagged = StaticTable.from_metadata(uris["iceberg"]).metadata
    assert {tagged.snapshot_by_id(ref.snapshot_id).schema_id for ref in tagged.refs.values()} == {0, 1}  # type: ignore[union-attr]
    assert engine.admin.verify().findings == ()


def test_columns_of_a_table_without_records(tmp_path: Path) -> None:
    with txn_engine.connect(str(tmp_path)) as engine:
        engine.admin.create_topic("t", partitions=1, schema=SCHEMA)
        engine.tables.publish("t")
        engine.admin.alter_topic("t", AddColumn(pa.field("kind", pa.string())))
        uris = engine.tables.publish("t")
        assert DeltaTable(uris["delta"]).to_pyarrow_table().schema.names[:4] == [*SCHEMA.names, "kind"]
        assert StaticTable.from_metadata(uris["iceberg"]).scan().to_arrow().schema.names[:4] == [
            *SCHEMA.names,
            "kind",
        ]
        assert engine.admin.verify().findings == ()


def test_widened_columns_ask_readers_for_a_feature(engine: Engine) -> None:
    """After a column was widened, Delta readers without the feature refuse the new version, but no older one.
    When the column is dropped, the feature is no longer needed."""
    engine.tables.publish("t")
    told = engine.admin.alter_topic("t", WidenColumn("size", pa.int64())).effects
    assert any("typeWidening" in each.what for each in told if each.reader == "delta table")
    put(engine, 3, size=[2**40])
    uris = engine.tables.publish("t")
    for read in (lambda: DeltaTable(uris["delta"]).to_pyarrow_table(), lambda: delta(uris["delta"])):
        with pytest.raises((DeltaError, DeltaProtocolError, pl.exceptions.PolarsError), match="typeWidening"):
            read()
    assert [row["size"] for row in delta(uris["delta"], 0)] == [10, 20]
    assert [row["size"] for row in iceberg(uris["iceberg"])] == [10, 20, 2**40]
    assert engine.admin.verify().findings == ()
    engine.admin.alter_topic("t", DropColumn("size"))
    assert [row["note"] for row in delta(engine.tables.publish("t")["delta"])] == ["n1", "n2", "n3"]
    assert engine.admin.verify().findings == ()


def test_each_step_of_a_type_is_told(engine: Engine) -> None:
    engine.admin.alter_topic("t", AddColumn(pa.field("small", pa.int8())))
    engine.admin.alter_topic("t", WidenColumn("small", pa.int16()))
    engine.admin.alter_topic("t", MakeNullable("id"))
    engine.admin.alter_topic("t", WidenColumn("small", pa.int64()))
    publish(engine, "delta")
    (said,) = (each["metadata"] for each in delta_fields(engine, 0) if each["name"] == "small")
    steps = [("byte", "short"), ("short", "long")]
    assert said["delta.typeChanges"] == [{"fromType": old, "toType": new} for old, new in steps]
    assert engine.admin.verify().findings == ()


def test_spark_is_asked_to_read_rows_where_its_batches_fail(engine: Engine) -> None:
    """Spark has to read rows instead of batches after an int16 became an int64, because its files have 16
    bits. This stays so for older versions after the column is dropped."""
    engine.admin.alter_topic("t", [AddColumn(pa.field("small", pa.int16())), WidenColumn("size", pa.int64())])
    for kind, asked in ((pa.int32(), None), (pa.int64(), "false")):
        assert asked_of_spark(engine) is None
        engine.admin.alter_topic("t", WidenColumn("small", kind))
        assert asked_of_spark(engine) == asked
    engine.admin.alter_topic("t", DropColumn("small"))
    assert asked_of_spark(engine) == "false"


def asked_of_spark(engine: Engine) -> str | None:
    properties = StaticTable.from_metadata(publish(engine, "iceberg")).metadata.properties
    return properties.get("read.parquet.vectorization.enabled")


def delta_fields(engine: Engine, version: int) -> list[dict[str, Any]]:
    lines = engine.store.get(f"{FOLDER}/_delta_log/{version:020d}.json").splitlines()
    (said,) = (action["metaData"] for action in map(json.loads, lines) if "metaData" in action)
    return list(json.loads(said["schemaString"])["fields"])


def test_tables_that_somebody_published_by_hand_are_told_of(engine: Engine) -> None:
    """A change reports the tables that somebody published by hand, whatever the topic's settings say, but not
    those that were unpublished or never existed."""
    engine.admin.create_topic("by-hand", partitions=1, schema=SCHEMA, tables_publish="iceberg")

    def told(*changes: Change) -> dict[str, str]:
        found = engine.admin.alter_topic("by-hand", changes, dry_run=True).effects
        return {each.reader: each.what for each in found if each.reader.endswith(" table")}

    rename = RenameColumn("note", "text")
    assert set(told(rename)) == {"iceberg table"}
    engine.tables.publish("by-hand", ["delta"])
    found = told(rename)
    assert set(found) == {"delta table", "iceberg table"}
    assert "is not published again" in found["delta table"]
    assert "by hand" not in found["iceberg table"]
    assert "by hand: `tables publish`" in told(AddColumn(pa.field("more", pa.int8())))["delta table"]
    key = f"topics/by-hand/0/_delta_log/{0:020d}.json"
    whole = engine.store.get(key)
    engine.store.put(key, b"{}")
    assert set(told(rename)) == {"delta table", "iceberg table"}  # nobody knows who reads it
    engine.store.put(key, whole)
    engine.tables.unpublish("by-hand", ["delta"])
    assert set(told(rename)) == {"iceberg table"}


CANNOT_BE_SAID: dict[str, tuple[list[Change], Reason, bool]] = {
    "renamed": ([RenameColumn("note", "text")], Reason.COLUMN_WAS_RENAMED, True),
    "renamed, and back": (
        [RenameColumn("note", "text"), RenameColumn("text", "note")],
        Reason.COLUMN_WAS_RENAMED,
        True,
    ),
    "renamed in its case": ([RenameColumn("note", "Note")], Reason.COLUMN_WAS_RENAMED, True),
    "a dropped name in another case": (
        [DropColumn("note"), AddColumn(pa.field("Note", pa.string()))],
        Reason.COLUMN_NAMES_ALIKE,
        True,
    ),
    "a default": (
        [AddColumn(pa.field("kind", pa.string()), default="x")],
        Reason.COLUMN_WITH_DEFAULT,
        False,
    ),
    "an unsigned number": ([AddColumn(pa.field("kind", pa.uint32()))], Reason.UNSUPPORTED_TYPE, False),
}


def test_a_dropped_name_in_another_case_is_refused_at_once(engine: Engine) -> None:
    """A column whose name differs from a dropped one only in case is refused at once, because readers that go
    by names could not distinguish them."""
    with refused(InvalidRequestError, Reason.COLUMN_NAMES_ALIKE):
        engine.admin.alter_topic("t", [DropColumn("note"), AddColumn(pa.field("Note", pa.string()))])
    assert engine.admin.describe_topic("t").schema.names.count("note") == 1


@pytest.mark.parametrize(
    "case", in_shard("engines", CANNOT_BE_SAID, keep=["renamed, and back", "a default", "an unsigned number"])
)
def test_what_a_format_cannot_say_is_refused_in_one_line(
    engine: Engine, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that a format cannot represent says so, and publishing is then refused in one line. The
    published versions stay readable. When the column is dropped, publishing goes on."""
    changes, reason, is_icebergs = CANNOT_BE_SAID[case]
    monkeypatch.setattr(
        evolving, "are_alike", lambda *_: False
    )  # a store in which an older version changed columns
    before = engine.tables.publish("t")
    told = {each.reader: each.what for each in engine.admin.alter_topic("t", changes).effects}
    put(engine, 3)
    for name, is_refused in (("delta", True), ("iceberg", not is_icebergs)):
        assert ("is not published again" in told[f"{name} table"]) == is_refused
        if is_refused:
            with refused(InvalidRequestError, reason) as caught:
                publish(engine, name)
            assert "\n" not in str(caught.value)
            wanted = "publish it in another format" if case == "an unsigned number" else "topics copy"
            assert wanted in str(caught.value.action)
    assert [row["id"] for row in delta(before["delta"])] == [1, 2]
    assert versions(engine)["delta"] == (0, 0)
    engine.admin.alter_topic("t", DropColumn(engine.logs.topics.look_up("t").schema.names[-1]))
    uris = engine.tables.publish("t")
    assert [row["id"] for row in delta(uris["delta"])] == [row["id"] for row in iceberg(uris["iceberg"])]
    assert engine.admin.verify().findings == ()


@pytest.mark.parametrize("case", CANNOT_BE_SAID)
def test_no_topic_is_given_a_format_that_cannot_say_its_columns(
    engine: Engine, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic with such columns cannot get the format as a setting, because maintenance would fail each time.
    If it had the format before, its other settings can be changed."""
    changes, reason, is_icebergs = CANNOT_BE_SAID[case]
    monkeypatch.setattr(evolving, "are_alike", lambda *_: False)  # as above
    engine.admin.create_topic("given", partitions=1, schema=SCHEMA, tables_publish="delta")
    engine.admin.create_topic("not-given", partitions=1, schema=SCHEMA)
    for topic in ("given", "not-given"):
        engine.admin.alter_topic(topic, changes)
    for name, is_refused in (("delta", True), ("iceberg", not is_icebergs)):
        if is_refused:
            with refused(InvalidRequestError, reason):
                engine.admin.alter_configs({"tables.publish": name}, topic="not-given")
        else:
            engine.admin.alter_configs({"tables.publish": name}, topic="not-given")
            engine.tables.publish("not-given", name)
    engine.admin.alter_configs({"retention.ms": 1000, "tables.publish": "delta"}, topic="given")
    assert engine.admin.describe_configs("given")["tables.publish"] == "delta"


def stop_between_versions(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a publisher of a merge die after the first of its two versions."""
    publish(engine, "delta")
    put(engine, 3)
    engine.maintenance.compact("t", policy=EAGER)
    commit = DeltaView.commit
    monkeypatch.setattr(
        DeltaView, "commit", lambda view, each: commit(view, each) and not each.is_complete and die()
    )
    with suppress(ProcessDiedError):
        publish(engine, "delta")
    monkeypatch.undo()


def test_what_was_begun_is_finished_with_the_columns_that_it_had(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a publisher stops between two versions and the columns change, the second version is finished with
    the old columns and a third one has the new ones."""
    stop_between_versions(engine, monkeypatch)
    assert not engine.tables.status("t")[0].is_complete
    engine.admin.alter_topic("t", DropColumn("note"))
    uri = publish(engine, "delta")
    assert [list(row) for row in delta(uri, 2)] == [["id", "size", "note"]] * 3
    assert [list(row) for row in delta(uri)] == [["id", "size"]] * 3
    assert versions(engine)["delta"] == (3, 1)
    assert engine.admin.verify().findings == ()


def test_what_was_begun_can_be_unpublished_though_it_could_not_go_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_between_versions(engine, monkeypatch)
    engine.admin.alter_topic("t", RenameColumn("note", "text"))
    assert engine.tables.unpublish("t") == ["delta"]
    engine.admin.alter_topic("t", DropColumn("text"))
    assert [list(row) for row in delta(publish(engine, "delta"))] == [["id", "size"]] * 3
    assert engine.admin.verify().findings == ()


@pytest.mark.parametrize("table_format", READERS)
def test_who_has_not_heard_of_a_change_puts_no_older_columns(engine: Engine, table_format: str) -> None:
    old = engine.logs.topics.look_up("t")
    cut = engine.cut()
    engine.admin.alter_topic("t", AddColumn(pa.field("kind", pa.string())))
    publish(engine, table_format)
    tables = engine.tables
    at = txn_engine.log.topic_cut.topic_cut(cut, "t", 0)
    with refused(ConcurrentTransactionsError, Reason.TABLE_HAS_NEWER_COLUMNS):
        tables._publisher(old).publish(tables._view(table_format, old), at, or_newer=True)
    assert versions(engine)[table_format] == (0, 1)


def test_columns_come_at_the_cut_that_is_shown_where_that_is_a_later_one(engine: Engine) -> None:
    """If a publisher with an older cut knows newer columns, it publishes them at the newer cut that the table
    shows."""
    cut = engine.cut()
    put(engine, 3)
    uris = engine.tables.publish("t")
    engine.admin.alter_topic("t", AddColumn(pa.field("kind", pa.string())))
    at = txn_engine.log.topic_cut.topic_cut(cut, "t", 0)
    topic, tables = engine.logs.topics.look_up("t"), engine.tables
    for name in READERS:
        tables._publisher(topic).publish(tables._view(name, topic), at, or_newer=True)
    assert [list(row) for row in delta(uris["delta"])] == [["id", "size", "note", "kind"]] * 3
    assert versions(engine) == {"delta": (1, 1), "iceberg": (1, 1)}
    with refused(InvalidRequestError, Reason.TABLE_SHOWS_NEWER_CUT):
        engine.tables.publish("t", cut=cut)
    assert engine.admin.verify().findings == ()


@pytest.mark.parametrize("table_format", in_shard("kills", READERS, keep=["delta"]))
def test_whoever_dies_leaves_columns_that_the_next_one_finishes(tmp_path: Path, table_format: str) -> None:
    """If a publisher of new columns dies at any put, the next one finishes."""
    puts: list[int] = []
    for at in (-1, *range(10)):
        death = Death("dies after", puts[at] if at >= 0 else None)
        faulty = FaultyStore(LocalStore(str(tmp_path / f"{at}")), error=death.error)
        with Engine(faulty) as engine:
            engine.admin.create_topic("t", partitions=1, schema=SCHEMA)
            put(engine, 1)
            publish(engine, table_format)
            engine.admin.alter_topic("t", [DropColumn("note"), AddColumn(pa.field("kind", pa.string()))])
            cut = engine.cut()
            faulty.calls.clear()
            faulty.decide = death.client()
            with suppress(ProcessDiedError, TxnEngineError):
                engine.tables.publish("t", [table_format], cut=cut)
            faulty.decide = None
            puts = puts or [at for at, call in enumerate(faulty.calls) if call[0] == "put_if_absent"]
            uri = publish(engine, table_format)
            assert READERS[table_format](uri, None) == [{"id": 1, "size": 10, "kind": None}]
            assert versions(engine)[table_format] == (1, 1)
            assert engine.admin.verify().findings == ()
        if at == len(puts) - 1:
            break
    assert len(puts) == {"delta": 2, "iceberg": 3}[table_format]


def test_a_checkpoint_has_the_columns_of_its_version(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txn_engine.tables.delta.view.COMMITS_A_CHECKPOINT", 2)
    publish(engine, "delta")
    engine.admin.alter_topic("t", ReorderColumns(["note", "size", "id"]))
    publish(engine, "delta")
    engine.admin.alter_topic("t", AddColumn(pa.field("kind", pa.string())))
    uri = publish(engine, "delta")
    assert engine.store.get(f"{FOLDER}/_delta_log/{2:020d}.checkpoint.parquet")
    for version in (0, 1):
        engine.store.delete(f"{FOLDER}/_delta_log/{version:020d}.json")
    assert [list(row) for row in delta(uri)] == [["note", "size", "id", "kind"]] * 2
