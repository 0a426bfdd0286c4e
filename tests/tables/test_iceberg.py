"""Iceberg tables over the log's own files are read back by other engines, published by several processes, and
protected against other writers."""

from __future__ import annotations

import datetime
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyiceberg.types import IntegerType

import txn_engine
from storage import BucketStore, LocalStore, MemoryStore, ObjectStore, decode_json, encode_json
from tests.conftest import S3Bucket
from tests.engine.test_field_ids import produce_as_before
from tests.suite.tiers import in_shard
from tests.support.faults import FaultyStore
from tests.support.kills import Death, ProcessDiedError
from tests.support.refusals import damaged_at, refused
from tests.support.stores import copy_of
from tests.tables.ledgers import EAGER, SCHEMA, Ledger, append, engine_on, rows
from tests.tables.readers import Options, Rows, rows_of
from txn_engine import Engine
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    InvalidRequestError,
    MissingPackageError,
    TxnEngineError,
)
from txn_engine.maintain.policy import DAY_MS
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import TIMESTAMP_TYPE, Layout
from txn_engine.tables.iceberg import snapshots, view
from txn_engine.testing import ManualClock

COLUMNS = ["account", "amount", "_timestamp", "log_partition", "offset"]
FOLDER = "topics/payments/0/"
METADATA = f"{FOLDER}iceberg/metadata/"
_STORES = count()


def publish(engine: Engine) -> str:
    return engine.tables.publish("payments", "iceberg")["iceberg"]


def with_offsets(table: pa.Table, columns: list[str]) -> Rows:
    offsets = pa.compute.add(table.column("log_base_offset"), table.column("_offset_delta"))
    return rows_of(table.append_column("offset", offsets), columns)


def with_pyiceberg(
    uri: str, snapshot: int | None, columns: list[str] = COLUMNS, options: Options = None
) -> Rows:
    table = StaticTable.from_metadata(uri, dict(options or {}))
    return with_offsets(table.scan(snapshot_id=snapshot).to_arrow(), columns)


def with_polars(
    uri: str, snapshot: int | None, columns: list[str] = COLUMNS, options: Options = None
) -> Rows:
    table = StaticTable.from_metadata(uri, dict(options or {}))
    frame = pl.scan_iceberg(table, snapshot_id=snapshot, storage_options=dict(options or {}) or None)
    return with_offsets(frame.collect().to_arrow(), columns)


def with_pyiceberg_filtered(
    uri: str, snapshot: int | None, columns: list[str] = COLUMNS, options: Options = None
) -> Rows:
    """Files are left out by their bounds: two filters on the column `account`, for all rows."""
    table = StaticTable.from_metadata(uri, dict(options or {}))
    one, other = (
        table.scan(test, snapshot_id=snapshot).to_arrow() for test in ("account <= 1", "account > 1")
    )
    return with_offsets(one, columns) + with_offsets(other, columns)


def with_polars_filtered(
    uri: str, snapshot: int | None, columns: list[str] = COLUMNS, options: Options = None
) -> Rows:
    table = StaticTable.from_metadata(uri, dict(options or {}))
    frame = pl.scan_iceberg(table, snapshot_id=snapshot, storage_options=dict(options or {}) or None)
    one, other = (
        frame.filter(test).collect().to_arrow() for test in (pl.col("account") <= 1, pl.col("account") > 1)
    )
    return with_offsets(one, columns) + with_offsets(other, columns)


READERS: dict[str, Callable[..., Rows]] = {
    "pyiceberg": with_pyiceberg,
    "pyiceberg with filters": with_pyiceberg_filtered,
    "polars": with_polars,
    "polars with filters": with_polars_filtered,
}


def scanned(engine: Engine, cut: int | None = None) -> Rows:
    found = engine.scan("payments", cut=cut).to_table()
    names = {"_partition": "log_partition", "_offset": "offset"}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    return rows_of(found, COLUMNS)


def accounts(uri: str, snapshot: int | None = None) -> list[int]:
    return sorted(row[0] for row in with_pyiceberg(uri, snapshot, ["account"]).elements())


def metadata(engine: Engine, version: int | None = None) -> dict[str, Any]:
    number = versions(engine)[-1] if version is None else version
    found: dict[str, Any] = json.loads(engine.store.get(f"{METADATA}v{number}.metadata.json"))
    return found


def versions(engine: Engine) -> list[int]:
    names = (info.key.removeprefix(METADATA) for info in engine.store.list(METADATA))
    return sorted(int(name[1:-14]) for name in names if name.startswith("v") and name.endswith("a.json"))


# --- read back --------------------------------------------------------------------------------------------------


def read_back_everything(
    engine: Engine, clock: ManualClock, seed: int, rounds: int, options: Options = None
) -> None:
    ledger = Ledger(engine, clock, seed)
    shown: list[int] = []
    uri = ""
    for _ in range(rounds):
        for _ in range(ledger.random.randint(1, 4)):
            ledger.step()
        try:
            uri = publish(engine)
        except ConcurrentTransactionsError:
            continue  # a cut cannot be made, or goes through a file, until the open ones are ended
        (status,) = engine.tables.status("payments")
        assert (status.uri, status.is_complete) == (uri, True)
        shown.append(status.cut)
        for reader in READERS.values():
            assert reader(uri, None, COLUMNS, options) == scanned(engine, status.cut)
    table = StaticTable.from_metadata(uri, dict(options or {}))
    young = [cut for cut in shown[-10:] if f"cut-{cut}" in table.metadata.refs]  # days go by, seven are kept
    assert young[-1] == shown[-1]
    for cut in young:
        snapshot = table.metadata.refs[f"cut-{cut}"].snapshot_id
        for reader in READERS.values():
            assert reader(uri, snapshot, COLUMNS, options) == scanned(engine, cut)
    ledger.close()


@pytest.mark.parametrize(
    ("seed", "rounds"), in_shard("engines", [(5, 6), (1, 12), (2, 12), (5, 12), (6, 12)], keep=1)
)
def test_each_version_is_what_a_scan_at_its_cut_is(
    tmp_path: Path, clock: ManualClock, seed: int, rounds: int
) -> None:
    """Each version shows what a scan at its cut shows, after appends, aborts, merges, compaction by key,
    retention and new partitions. The last ten versions are read again."""
    with engine_on(LocalStore(tmp_path / "ledger"), clock) as engine:
        read_back_everything(engine, clock, seed, rounds)


@pytest.mark.minio
def test_on_s3(minio_bucket: S3Bucket, clock: ManualClock) -> None:
    """pyiceberg reads the table on S3 with the options that the store gives."""
    with txn_engine.connect(
        f"{minio_bucket.url}/ledger",
        endpoint=minio_bucket.endpoint,
        access_key=minio_bucket.access_key,
        secret_key=minio_bucket.secret_key,
        clock=clock,
    ) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        for account in range(4):
            append(engine, account)
        publish(engine)
        engine.maintenance.compact(policy=EAGER)
        uri = publish(engine)
        assert uri.startswith("s3://")
        assert isinstance(engine.store, BucketStore)
        options = engine.store.iceberg_properties()
        assert with_pyiceberg(uri, None, COLUMNS, options) == scanned(engine)


def test_a_stream_that_follows_is_given_each_new_record_once(engine: Engine) -> None:
    """A stream that follows the table by Iceberg's rule gets each new record once: what is added in a
    snapshot that appends. Other snapshots change no records, or are not read."""
    given: list[int] = []
    for account in range(0, 30, 3):
        for each in range(3):
            append(engine, account + each)
        if account % 2:
            engine.maintenance.compact(policy=EAGER)
        uri = publish(engine)
    table = StaticTable.from_metadata(uri)
    operations = [snapshot.summary.operation.value for snapshot in table.metadata.snapshots]
    assert set(operations) == {"append", "replace"}
    for snapshot in table.metadata.snapshots:
        if snapshot.summary.operation.value != "append":
            continue
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.snapshot_id == snapshot.snapshot_id and entry.status == 1:
                    data = pa.parquet.read_table(entry.data_file.file_path.removeprefix("file://"))
                    given += data.column("account").to_pylist()
    assert sorted(given) == list(range(30))


EVERY_TYPE = pa.schema(
    [
        pa.field("int8", pa.int8()),
        pa.field("int16", pa.int16()),
        pa.field("int32", pa.int32(), nullable=False),
        pa.field("int64", pa.int64()),
        pa.field("float32", pa.float32()),
        pa.field("float64", pa.float64()),
        pa.field("bool", pa.bool_()),
        pa.field("small", pa.decimal128(9, 2)),
        pa.field("middle", pa.decimal128(18, 4)),
        pa.field("large", pa.decimal128(38, 10)),
        pa.field("text", pa.large_string()),
        pa.field("bytes", pa.binary()),
        pa.field("fixed", pa.binary(3)),
        pa.field("day", pa.date32()),
        pa.field("ms", pa.timestamp("ms", tz="UTC")),
        pa.field("us", pa.timestamp("us", tz="UTC")),
        pa.field("naive", pa.timestamp("us")),
        pa.field("time", pa.time64("us")),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
        pa.field("list", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))),
        pa.field("map", pa.map_(pa.string(), pa.struct([("c", pa.float64())]))),
    ]
)
STAMP = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)  # noqa: DTZ001 - of a column without a time zone
VALUES: dict[str, Any] = {
    "int8": -128,
    "int16": 32767,
    "int32": -(2**31),
    "int64": 2**63 - 1,
    "float32": 0.5,
    "float64": -1e300,
    "bool": True,
    "small": Decimal("1234567.89"),
    "middle": Decimal("-12345678901234.5678"),
    "large": Decimal("1234567890123456789012345678.0123456789"),
    "text": "ß\N{GRINNING FACE}",
    "bytes": b"\x00\xff",
    "fixed": b"abc",
    "day": datetime.date(1, 1, 1),
    "ms": STAMP.replace(microsecond=123000, tzinfo=datetime.UTC),
    "us": STAMP.replace(tzinfo=datetime.UTC),
    "naive": STAMP,
    "time": datetime.time(23, 59, 59, 999999),
    "kind": "PRIJEM",
    "list": [{"a": 1, "b": ["x", None]}, {"a": None, "b": None}],
    "map": [("k", {"c": 1.5})],
}


def every_type(engine: Engine) -> str:
    """A topic with a value and a null of each type, published."""
    engine.admin.create_topic("types", partitions=1, schema=EVERY_TYPE)
    nothing = dict.fromkeys(VALUES) | {"int32": 7}
    engine.partition("types", 0).append(pa.Table.from_pylist([VALUES, nothing], schema=EVERY_TYPE))
    return engine.tables.publish("types", "iceberg")["iceberg"]


def test_every_type_is_what_it_was(engine: Engine) -> None:
    uri = every_type(engine)
    found = StaticTable.from_metadata(uri).scan().to_arrow().select(EVERY_TYPE.names).to_pylist()
    by_polars = pl.scan_iceberg(uri).select(EVERY_TYPE.names).collect().to_arrow().to_pylist()
    assert found[0] == VALUES
    assert by_polars[0]["large"] == VALUES["large"]
    assert by_polars[0]["us"] == VALUES["us"]
    # Where a list of structs is null, pyiceberg gives an empty one.
    assert {name: value for name, value in by_polars[1].items() if value is not None} == {"int32": 7}


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        (pa.uint32(), "unsigned"),
        (pa.timestamp("ns"), "nanoseconds"),
        (pa.duration("us"), "durations"),
        (pa.time64("ns"), "nanoseconds"),
        (pa.decimal256(50, 2), "decimals"),
        (pa.list_(pa.uint8()), "unsigned"),
        (pa.float16(), "floats"),
    ],
)
def test_a_type_that_iceberg_has_not_is_refused(engine: Engine, kind: pa.DataType, family: str) -> None:
    """A type that Iceberg does not have is refused in one line that names the column, before anything is
    written."""
    engine.admin.create_topic("odd", partitions=1, schema=pa.schema([("column", kind)]))
    before = [info.key for info in engine.store.list("")]
    with refused(InvalidRequestError, Reason.UNSUPPORTED_TYPE) as caught:
        engine.tables.publish("odd", "iceberg")
    assert "'column" in caught.value.seen
    assert family in str(caught.value.expected)
    assert "\n" not in str(caught.value)
    assert [info.key for info in engine.store.list("")] == before


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))]),
        pa.schema([("v", pa.struct([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))]))]),
        pa.schema([("v", pa.list_(pa.int64())), ("v.element", pa.int64())]),
        pa.schema([("v", pa.map_(pa.string(), pa.int64())), ("v.key", pa.int64())]),
    ],
    ids=["columns", "fields", "list", "map"],
)
def test_names_that_a_dot_makes_alike_are_refused(engine: Engine, schema: pa.Schema) -> None:
    """Iceberg has one name for `a.b` and for `b` inside `a`. Such a topic is published as a Delta table."""
    engine.admin.create_topic("odd", partitions=1, schema=schema)
    with refused(InvalidRequestError, Reason.COLUMN_NAMES_ALIKE):
        engine.tables.publish("odd", "iceberg")
    engine.tables.publish("odd", "delta")


def test_a_column_of_the_views_own_name_is_refused(engine: Engine) -> None:
    engine.admin.create_topic("odd", partitions=1, schema=pa.schema([("log_partition", pa.int64())]))
    with refused(InvalidRequestError, Reason.NAME_TAKEN_BY_TABLE):
        engine.tables.publish("odd", "iceberg")


def test_without_pyiceberg_one_line_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("pyiceberg", "txn_engine.tables.iceberg."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with refused(MissingPackageError, Reason.MISSING_PACKAGE) as caught:
        publish(engine)
    assert "txn-engine[tables]" in str(caught.value.action)


def test_ids_are_those_of_the_files_and_old_files_go_by_name(engine: Engine) -> None:
    """Files with ids are read by their ids and older files by name, side by side and merged."""
    produce_as_before(engine, rows(1, 2))
    append(engine, 3)
    uri = publish(engine)
    for reader in READERS.values():
        assert reader(uri, None) == scanned(engine)
    produce_as_before(engine, rows(4))
    engine.maintenance.compact(policy=EAGER)
    uri = publish(engine)
    for reader in READERS.values():
        assert reader(uri, None) == scanned(engine)
    assert accounts(uri) == [1, 2, 3, 4]


def opened(store: FaultyStore) -> list[str]:
    """The data files that were read since the last call."""
    found = [
        key for operation, key, _ in store.calls if operation in ("get", "get_range") and "/data/" in key
    ]
    store.calls.clear()
    return sorted(found)


def test_no_file_is_opened_to_publish_it(clock: ManualClock) -> None:
    """Publishing opens no data file, neither the first time nor later."""
    store = FaultyStore(MemoryStore(f"iceberg-{next(_STORES)}"))
    with engine_on(store, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        for account in range(3):
            append(engine, account)
            if account:
                publish(engine)
        assert opened(store) == []


def test_of_a_topic_of_before_each_footer_is_read_once(clock: ManualClock) -> None:
    """For a topic from before field ids, each footer is read once, when its file is first published, because
    only the footer says whether it has a caller's ids."""
    store = FaultyStore(MemoryStore(f"iceberg-{next(_STORES)}"))
    with engine_on(store, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
    as_before(store, "topics/payments/0.json")
    with engine_on(store, clock) as engine:
        append(engine, 1)
        append(engine, 2)
        publish(engine)
        first = opened(store)
        assert len(first) == len(set(first)) == 2
        publish(engine)
        append(engine, 3)
        publish(engine)
        (third,) = opened(store)
        assert third not in first


def as_before(store: ObjectStore, key: str) -> None:
    """Make the topic's object as it was before it said anything about field ids."""
    fields = decode_json(store.get(key), key=key, kind="topic")
    del fields["field_ids"]
    store.put(key, encode_json(fields, "topic"))


def test_new_files_with_ids_of_others_are_not_shown_as_they_came(clock: ManualClock) -> None:
    """A new file with a caller's own ids is refused. After it was merged with an old one, only the merged
    file is shown."""
    store = MemoryStore(f"iceberg-{next(_STORES)}")
    with engine_on(store, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
    as_before(store, "topics/payments/0.json")
    with engine_on(store, clock) as engine:
        append(engine, 1)
        publish(engine)
        with_ids_of_others(engine, rows(2, 3))
        with refused(InvalidRequestError, Reason.OTHER_FIELD_IDS):
            publish(engine)
        engine.maintenance.compact(policy=EAGER)
        publish(engine)
        (merged,) = (file.uri for file in engine.scan("payments").files())
        snapshot = metadata(engine)["snapshots"][-1]
        assert snapshot["summary"]["operation"] == "overwrite"
        assert (snapshot["summary"]["added-data-files"], merged.count("p-1-e-1")) == ("1", 1)


def with_ids_of_others(engine: Engine, records: pa.Table) -> None:
    """Write records into `payments-0` with a caller's own ids, as older versions stored them."""
    others = [field.with_metadata({"PARQUET:field_id": str(7 + at)}) for at, field in enumerate(SCHEMA)]
    own = [pa.field("_offset_delta", pa.int64(), False), pa.field("_timestamp", TIMESTAMP_TYPE, False)]
    with mock.patch.object(Layout, "physical", property(lambda _: pa.schema([*others, *own]))):
        engine.producer().produce("payments", records, partition=0).result()


def test_what_the_log_knows_prunes(engine: Engine) -> None:
    """A filter on partition, offset or time leaves out files before any is opened."""
    for account in range(4):
        append(engine, account, partition=account % 2)
    table = StaticTable.from_metadata(publish(engine))

    def planned(where: str) -> int:
        return len(list(table.scan(row_filter=where).plan_files()))

    assert planned("log_partition >= 0") == 4
    assert planned("log_partition = 1") == 2
    assert planned("log_partition = 1 and log_base_offset >= 1") == 1
    assert planned("_timestamp < '2000-01-01T00:00:00+00:00'") == 0
    assert planned("_offset_delta > 0") == 0
    assert [task.file.record_count for task in table.scan().plan_files()] == [1] * 4


def test_what_a_snapshot_did_is_in_its_summary(engine: Engine, clock: ManualClock) -> None:
    for account in range(4):
        append(engine, account)
    publish(engine)
    engine.maintenance.compact(policy=EAGER)
    publish(engine)
    first, second = metadata(engine)["snapshots"]
    assert first["summary"].items() >= {
        "operation": "append", "added-data-files": "4", "added-records": "4", "total-records": "4",
        "total-data-files": "4", "txn-engine.cut": "0",
    }.items()  # fmt: skip
    assert second["summary"].items() >= {
        "operation": "replace", "added-data-files": "1", "deleted-data-files": "4", "deleted-records": "4",
        "total-records": "4", "total-data-files": "1", "txn-engine.cut": "1",
    }.items()  # fmt: skip
    assert int(second["summary"]["total-files-size"]) > 0
    assert (second["parent-snapshot-id"], second["sequence-number"]) == (1, 2)


# --- several publishers, and those who die ----------------------------------------------------------------------


def test_the_same_cut_twice_is_nothing(engine: Engine) -> None:
    append(engine, 1)
    cut = engine.cut()
    first = engine.tables.publish("payments", "iceberg", cut=cut)
    before = [info.key for info in engine.store.list(FOLDER)]
    assert engine.tables.publish("payments", "iceberg", cut=cut.number) == first
    assert [info.key for info in engine.store.list(FOLDER)] == before


def test_a_topic_without_records_is_a_table_without_rows(engine: Engine) -> None:
    uri = publish(engine)
    for reader in READERS.values():
        assert not reader(uri, None)
    append(engine, 1)
    assert accounts(publish(engine)) == [1]


def test_a_hint_that_is_old_or_wrong_does_no_harm(engine: Engine) -> None:
    """An old or wrong version hint does no harm: publishing looks at the versions themselves and corrects
    it."""
    for account in range(6):
        append(engine, account)
        publish(engine)
    for hint in (b"3", b"999999", b"", b"x" * 5_000, b"-1"):
        engine.store.put(f"{METADATA}version-hint.text", hint)
        append(engine, 9)
        uri = publish(engine)
        assert uri.endswith(f"v{versions(engine)[-1]}.metadata.json")
        assert engine.store.get(f"{METADATA}version-hint.text") == str(versions(engine)[-1]).encode()
    assert accounts(uri) == [0, 1, 2, 3, 4, 5, *[9] * 5]
    assert versions(engine) == list(range(1, 12))


def prepared(clock: ManualClock) -> MemoryStore:
    """A table, and after it new records and merges of old ones with new ones."""
    store = MemoryStore(f"iceberg-deaths-{next(_STORES)}")
    with engine_on(store, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        append(engine, 1)
        append(engine, 2)
        publish(engine)
        append(engine, 3)
        engine.maintenance.compact(policy=EAGER)
        append(engine, 4, partition=1)
    return store


def copied(store: MemoryStore) -> MemoryStore:
    """A copy of the store with the same address, because the table names it."""
    copy = copy_of(store)
    copy.uri = store.uri  # type: ignore[method-assign]
    return copy


def live_paths(engine: Engine) -> list[str]:
    """The files that the newest version shows, in order."""
    topic = engine.logs.topics.look_up("payments")
    found = view.IcebergView(engine.logs.tools.objects, topic, engine.config, lambda: 0, lambda: "")
    manifests = found._manifests(view.first_state(found._name, topic))
    newest = metadata(engine)["snapshots"][-1]
    entries = [
        entry for each in manifests.listed(newest["manifest-list"]) for entry in manifests.entries(each)
    ]
    return sorted(manifests.path_of(entry) for entry in entries)


FAULTS = ("dies before", "dies after", "before", "after", "taken_after")
"""What happens at a store operation: the process dies, or the store fails before it, after it, or after another put."""


@pytest.mark.shard("kills")
@pytest.mark.parametrize("fault", FAULTS)
def test_whoever_dies_leaves_what_the_next_one_finishes(fault: str, clock: ManualClock) -> None:
    """If a publisher dies at any store operation, the next one finishes: all files are there once, and there
    are two versions."""
    store = prepared(clock)
    with engine_on(store, clock) as engine:
        cut = engine.cut()
        folder = f"{store.uri(FOLDER)}"
        wanted = sorted(file.uri.removeprefix(folder) for file in engine.scan("payments").files())
    counted = FaultyStore(copied(store))
    counted.uri = store.uri  # type: ignore[method-assign]
    with engine_on(counted, clock) as engine:
        counted.calls.clear()
        engine.tables.publish("payments", "iceberg", cut=cut.number)
        calls = len(counted.calls)
        assert live_paths(engine) == wanted
    assert 10 < calls < 100
    for at in range(calls):
        death = Death(fault, at)
        faulty = FaultyStore(copied(store), error=death.error)
        faulty.uri = store.uri  # type: ignore[method-assign]
        with engine_on(faulty, clock) as engine:
            faulty.calls.clear()
            faulty.decide = death.client()
            with suppress(ProcessDiedError, TxnEngineError):
                engine.tables.publish("payments", "iceberg", cut=cut.number)
            faulty.decide = None
        with engine_on(faulty.inner, clock) as engine:
            engine.tables.publish("payments", "iceberg", cut=cut.number)
            assert live_paths(engine) == wanted, at
            assert versions(engine) == [1, 2], at
            assert engine.store.get(f"{METADATA}version-hint.text") == b"2", at


# --- what is kept -----------------------------------------------------------------------------------------------


def test_a_publish_reads_the_newest_version_once(clock: ManualClock) -> None:
    """A publish reads only the newest version's metadata, which is its largest object, and only once."""
    store = FaultyStore(MemoryStore(f"iceberg-{next(_STORES)}"))
    with engine_on(store, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        for account in range(3):
            append(engine, account)
            store.calls.clear()
            publish(engine)
        read = [
            key for operation, key, _ in store.calls if operation == "get" and key.endswith(".metadata.json")
        ]
    assert read == [f"{METADATA}v2.metadata.json"]


@pytest.mark.shard("engines")
def test_metadata_does_not_grow_without_bound(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old versions are sealed, and files that only they needed are deleted, so metadata does not grow without
    a bound. The kept versions can be read."""
    monkeypatch.setattr("txn_engine.tables.iceberg.metadata.VERSIONS_KEPT", 10)
    monkeypatch.setattr(view, "VERSIONS_A_CLEANUP", 5)
    for account in range(41):
        append(engine, account)
        uri = publish(engine)
    said = metadata(engine)
    assert len(said["snapshots"]) == 11
    assert set(said["refs"]) == {"main", *(f"cut-{number}" for number in range(30, 41))}
    assert accounts(uri) == list(range(41))
    assert accounts(uri, said["refs"]["cut-30"]["snapshot-id"]) == list(range(31))
    assert versions(engine) == list(range(1, 42))
    sizes = {info.key: info.size for info in engine.store.list(METADATA)}
    assert all(sizes[f"{METADATA}v{number}.metadata.json"] < 100 for number in range(1, 31))
    assert accounts(engine.store.uri(f"{METADATA}v32.metadata.json")) == list(range(32))
    names = [key.removeprefix(METADATA) for key in sizes if key.endswith(".avro")]
    assert sum("-list-" in name for name in names) == 11
    assert sum("-manifest-" in name for name in names) <= 11 + 32
    assert engine.admin.verify().findings == ()


def test_versions_that_only_move_the_cut_keep_what_they_show(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If versions only move the cut over aborts, their snapshot is kept, although it is older than all kept
    versions."""
    monkeypatch.setattr("txn_engine.tables.iceberg.metadata.VERSIONS_KEPT", 3)
    monkeypatch.setattr(view, "VERSIONS_A_CLEANUP", 1)
    append(engine, 1)
    publish(engine)
    for _ in range(6):
        with engine.producer(transactional_id="aborts") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("payments", rows(9), partition=0).result()
            producer.abort_transaction()
        uri = publish(engine)
    assert versions(engine) == list(range(1, 8))
    assert len(metadata(engine)["refs"]) == 1 + 4
    append(engine, 2)
    assert accounts(publish(engine)) == [1, 2]
    for version in (5, 6, 7):
        assert accounts(uri.replace("v7.", f"v{version}.")) == [1]
    assert engine.admin.verify().findings == ()


def test_time_ends_a_version_too(engine: Engine, clock: ManualClock) -> None:
    append(engine, 1)
    publish(engine)
    clock.advance(DAY_MS)
    append(engine, 2)
    publish(engine)
    clock.advance(6 * DAY_MS)
    append(engine, 3)
    publish(engine)
    assert len(metadata(engine)["snapshots"]) == 3
    clock.advance(DAY_MS)
    append(engine, 4)
    publish(engine)
    assert [each["snapshot-id"] for each in metadata(engine)["snapshots"]] == [2, 3, 4]


@pytest.mark.shard("engines")
def test_a_publish_behind_many_costs_what_is_new(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    """A publish after many others costs only what is new: manifests are merged by size, so that there are
    few."""
    monkeypatch.setattr(snapshots, "TOGETHER", 4)
    monkeypatch.setattr(snapshots, "SMALL_FILES", 4)
    monkeypatch.setattr(snapshots, "LARGE_FILES", 16)
    for account in range(36):
        append(engine, account)
        uri = publish(engine)
    last = metadata(engine)["snapshots"][-1]
    manifests = StaticTable.from_metadata(uri).current_snapshot().manifests(StaticTable.from_metadata(uri).io)  # type: ignore[union-attr]
    assert len(manifests) <= 10
    assert accounts(uri) == list(range(36))
    assert last["summary"]["total-data-files"] == "36"
    engine.maintenance.compact(policy=EAGER)
    uri = publish(engine)
    assert accounts(uri) == list(range(36))
    assert metadata(engine)["snapshots"][-1]["summary"]["total-data-files"] == "1"


def test_a_publisher_whose_clock_is_behind_does_not_turn_time_back(
    engine: Engine, clock: ManualClock
) -> None:
    """A publisher with a clock that is behind does not set the table's time back, because readers refuse
    snapshots that are not in order."""
    append(engine, 1)
    publish(engine)
    first = metadata(engine)["last-updated-ms"]
    with engine_on(engine.store, ManualClock(first - 3 * DAY_MS)) as another:
        append(another, 2)
        publish(another)
    assert metadata(engine)["last-updated-ms"] == first
    assert [each["timestamp-ms"] for each in metadata(engine)["snapshot-log"]] == [first, first]


def test_unpublish_and_publish_again(engine: Engine) -> None:
    """After unpublishing, readers are refused. Publishing again gives the same table with all records
    once."""
    append(engine, 1)
    uri = publish(engine)
    uuid = metadata(engine)["table-uuid"]
    assert engine.tables.unpublish("payments") == ["iceberg"]
    (status,) = engine.tables.status("payments")
    assert (status.version, status.cut, status.pins) == (1, -1, 0)
    with pytest.raises(Exception, match=r"1000|version"):
        StaticTable.from_metadata(status.uri)
    assert engine.store.get(f"{METADATA}version-hint.text") == b"2"
    append(engine, 2)
    uri = publish(engine)
    assert accounts(uri) == [1, 2]
    assert metadata(engine)["table-uuid"] == uuid
    assert [each["snapshot-id"] for each in metadata(engine)["snapshots"]] == [2]
    assert engine.admin.verify().findings == ()


def test_a_deleted_topics_table_goes_with_it(engine: Engine, clock: ManualClock) -> None:
    append(engine, 1)
    publish(engine)
    engine.admin.delete_topic("payments")
    clock.advance(DAY_MS)
    engine.maintenance.remove_deleted_topics()
    assert [info.key for info in engine.store.list(FOLDER)] == []


# --- everybody else ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreign", [b"", b"{}", b"[]", b"\xff", None])
def test_a_version_of_somebody_elses_is_refused(engine: Engine, foreign: bytes | None) -> None:
    """A version of another writer is refused, and so is one of ours with a changed byte. The topic itself is
    not affected."""
    append(engine, 1)
    publish(engine)
    if foreign is None:
        foreign = engine.store.get(f"{METADATA}v1.metadata.json").replace(b'"account', b'"Account')
    engine.store.put(f"{METADATA}v2.metadata.json", foreign)
    append(engine, 2)
    with refused(CorruptObjectError, Reason.NOT_WRITTEN_BY_US) as caught:
        publish(engine)
    assert "\n" not in str(caught.value)
    assert engine.scan("payments").to_table().num_rows == 2
    engine.store.delete(f"{METADATA}v2.metadata.json")
    assert accounts(publish(engine)) == [1, 2]


def test_metadata_of_another_table_is_refused(engine: Engine) -> None:
    append(engine, 1)
    publish(engine)
    engine.admin.create_topic("refunds", partitions=1, schema=SCHEMA)
    key = "topics/refunds/0/iceberg/metadata/v1.metadata.json"
    engine.store.put(key, engine.store.get(f"{METADATA}v1.metadata.json"))
    with refused(CorruptObjectError, Reason.OF_ANOTHER_TABLE):
        engine.tables.publish("refunds", "iceberg")


@pytest.mark.parametrize("damage", ["gone", "another", "cut"])
def test_a_damaged_manifest_is_named(engine: Engine, damage: str) -> None:
    append(engine, 1)
    publish(engine)
    for kind in ("list", "manifest"):
        (key,) = (info.key for info in engine.store.list(METADATA) if f"-{kind}-" in info.key)
        held = engine.store.get(key)
        engine.store.delete(key)
        if damage == "another":
            engine.store.put(key, held[:-1] + bytes([held[-1] ^ 1]))
        elif damage == "cut":
            engine.store.put(key, held[:100])
        append(engine, 2)
        engine.maintenance.compact(policy=EAGER)  # so that a file goes, and its manifest is needed
        with damaged_at(key):
            publish(engine)
        engine.store.put(key, held)
    assert accounts(publish(engine)) == [1, 2, 2]


def test_a_store_that_moved_is_published_anew(tmp_path: Path, clock: ManualClock) -> None:
    """After a store was moved, its table names files at the old place. `tables status` and the auditor say so, and
    publishing is refused until the topic is unpublished. Then the table is new."""
    with engine_on(LocalStore(tmp_path / "ledger"), clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        append(engine, 1)
        publish(engine)
    shutil.move(tmp_path / "ledger", tmp_path / "moved here")
    with engine_on(LocalStore(tmp_path / "moved here"), clock) as engine:
        append(engine, 2)
        with refused(InvalidRequestError, Reason.TABLE_AT_OTHER_ADDRESS):
            publish(engine)
        (status,) = engine.tables.status("payments")
        assert status.elsewhere == f"file://{tmp_path}/ledger/topics/payments/0/iceberg"
        assert [found.code for found in engine.admin.verify().findings] == ["table-elsewhere"]
        engine.tables.unpublish("payments", "iceberg")
        assert engine.admin.verify().ok
        uri = publish(engine)
        (status,) = engine.tables.status("payments")
        assert status.elsewhere == ""
        assert engine.admin.verify().ok
        for reader in READERS.values():
            assert reader(uri, None) == scanned(engine)


def test_an_address_that_is_no_uri_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    with engine_on(LocalStore(tmp_path / "50%"), clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        with refused(InvalidRequestError, Reason.ADDRESS_IS_NOT_A_URI):
            publish(engine)


def test_who_drops_the_table_deletes_no_more_than_its_folder(engine: Engine, tmp_path: Path) -> None:
    """Dropping the table deletes only its own folder, as Hadoop's catalog does it. The next publish creates
    it again."""
    append(engine, 1)
    publish(engine)
    root = Path(metadata(engine)["location"].removeprefix("file://"))
    assert {path.name for path in root.rglob("*") if path.suffix == ".parquet"} == set()
    shutil.rmtree(root)
    append(engine, 2)
    assert accounts(publish(engine)) == [1, 2]


def test_who_registers_the_table_cannot_write(engine: Engine, tmp_path: Path) -> None:
    """A catalog in which the table is registered cannot write rows or metadata, or clean up, through
    pyiceberg."""
    append(engine, 1)
    append(engine, 2, partition=1)
    uri = publish(engine)
    catalog = SqlCatalog(
        "theirs", uri=f"sqlite:///{tmp_path}/theirs.db", warehouse=f"file://{tmp_path}/theirs"
    )
    catalog.create_namespace("bank")
    table = catalog.register_table("bank.payments", uri)
    held = table.scan().to_arrow()
    before = {info.key: engine.store.get(info.key) for info in engine.store.list("")}
    writes: dict[str, Callable[[], object]] = {
        "append": lambda: table.append(held),
        "overwrite": lambda: table.overwrite(held),
        "delete rows": lambda: table.delete("account = 1"),
        "delete files": lambda: table.delete("log_partition = 1"),
        "properties": lambda: table.transaction().set_properties({"gc.enabled": "true"}).commit_transaction(),
        "schema": lambda: table.update_schema().add_column("more", IntegerType()).commit(),
        "expire": lambda: table.maintenance.expire_snapshots().by_id(1).commit(),
        "files": lambda: table.add_files([f"{tmp_path}/no-such-file.parquet"]),
    }
    for name, write in writes.items():
        with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever pyiceberg raises, it is no success
            write()
        assert str(refused.value), name
    assert {info.key: engine.store.get(info.key) for info in engine.store.list("")} == before
    assert catalog.load_table("bank.payments").metadata_location == uri
    assert accounts(publish(engine)) == [1, 2]


def test_others_are_told_not_to_write(engine: Engine) -> None:
    """The table's properties tell others not to write. tests/readers tries what Spark and pyiceberg do with
    them."""
    append(engine, 1)
    table = StaticTable.from_metadata(publish(engine))
    assert table.properties["gc.enabled"] == "false"
    with pytest.raises(Exception, match="this_table_is_written_by_its_log_alone"):
        table.location_provider()
