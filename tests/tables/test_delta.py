"""Delta tables over the log's own files are read back by other engines, published by several processes, and
protected against other writers."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import txn_engine
from storage import BucketStore, LocalStore, MemoryStore
from tests.conftest import S3Bucket
from tests.suite.tiers import in_shard
from tests.support.faults import FaultyStore
from tests.support.internal import FEW_INTERNAL
from tests.support.kills import Blow, Death, ProcessDiedError, die
from tests.support.refusals import refused
from tests.support.stores import copy_of
from tests.tables.ledgers import EAGER, SCHEMA, Ledger, append, engine_on
from tests.tables.readers import READERS, Options, rows_of, with_deltalake
from txn_engine import Engine
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    InvalidRequestError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.pins import PinStore
from txn_engine.maintain.policy import DAY_MS
from txn_engine.reasons import Reason
from txn_engine.tables.delta import DeltaView
from txn_engine.testing import ManualClock

COLUMNS = ["account", "amount", "_timestamp"]
FOLDER = "topics/payments/0/"
LOG = f"{FOLDER}_delta_log/"
_STORES = count()


def publish(engine: Engine) -> str:
    return engine.tables.publish("payments", "delta")["delta"]


def versions(engine: Engine) -> list[int]:
    return [int(info.key[-25:-5]) for info in engine.store.list(LOG) if info.key.endswith(".json")]


def scanned(engine: Engine, cut: int | None = None) -> object:
    return rows_of(engine.scan("payments", cut=cut).to_table(), COLUMNS)


def accounts(uri: str, version: int | None = None) -> list[int]:
    return sorted(row[0] for row in with_deltalake(uri, version, COLUMNS).elements())


# --- read back --------------------------------------------------------------------------------------------------


def read_back_everything(
    engine: Engine, clock: ManualClock, seed: int, rounds: int, options: Options = None
) -> None:
    ledger = Ledger(engine, clock, seed)
    shown: list[tuple[int, int]] = []
    for _ in range(rounds):
        for _ in range(ledger.random.randint(1, 4)):
            ledger.step()
        try:
            uri = publish(engine)
        except ConcurrentTransactionsError:
            continue  # a cut cannot be made, or goes through a file, until the open ones are ended
        (status,) = engine.tables.status("payments")
        assert (status.uri, status.is_complete) == (uri, True)
        shown.append((status.version, status.cut))
        for reader in READERS.values():
            assert reader(uri, None, COLUMNS, options) == scanned(engine, status.cut)
    for version, cut in shown[-10:]:
        for reader in READERS.values():
            assert reader(uri, version, COLUMNS, options) == scanned(engine, cut)
    ledger.close()
    assert [str(each) for each in engine.admin.verify().findings if each.severity == "error"] == []


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
@pytest.mark.parametrize("rounds", in_shard("engines", [3, 12], keep=1))
def test_on_s3(minio_bucket: S3Bucket, clock: ManualClock, rounds: int) -> None:
    """deltalake and Polars read the table on S3 with the options that the store gives."""
    with txn_engine.connect(
        f"{minio_bucket.url}/ledger",
        endpoint=minio_bucket.endpoint,
        access_key=minio_bucket.access_key,
        secret_key=minio_bucket.secret_key,
        clock=clock,
        configs=FEW_INTERNAL,
    ) as engine:
        assert isinstance(engine.store, BucketStore)
        read_back_everything(engine, clock, 2, rounds, engine.store.storage_options())


@pytest.mark.parametrize("name", ["with blanks", "ledgér"])
def test_the_path_of_a_store_may_have_any_letters(tmp_path: Path, clock: ManualClock, name: str) -> None:
    """A store's path may have blanks and other letters. Polars cannot read such a table; when it can,
    docs/TABLES.md need not say so."""
    with engine_on(LocalStore(tmp_path / name, create=True), clock) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account")
        append(engine, 1, 2)
        uri = publish(engine)
    assert accounts(uri) == [1, 2]
    with pytest.raises(FileNotFoundError):
        pl.scan_delta(uri).select("account").collect()


def test_a_stream_that_follows_is_given_each_new_record_once(engine: Engine) -> None:
    """A stream that follows the table by Delta's rule gets each new record once: what is added with
    dataChange in a commit that removes nothing with dataChange."""
    given: list[int] = []
    seen = -1
    for account in range(0, 30, 3):
        for each in range(3):
            append(engine, account + each)
        if account % 2:
            engine.maintenance.compact(policy=EAGER)
        uri = publish(engine)
        for version in range(seen + 1, DeltaTable(uri).version() + 1):
            actions = [
                json.loads(line) for line in engine.store.get(f"{LOG}{version:020d}.json").splitlines()
            ]
            assert not any(each["remove"]["dataChange"] for each in actions if "remove" in each)
            for action in actions:
                if "add" in action and action["add"]["dataChange"]:
                    data = pq.read_table(f"{uri}/{action['add']['path']}")
                    given += data.column("account").to_pylist()
            seen = version
    assert given == list(range(30))
    assert seen > 10  # merges of old files with new ones took two versions


def test_statistics_are_the_number_of_records(engine: Engine) -> None:
    """Each file has the number of its records and no bounds: readers take a column without bounds beside others that
    have some for one without values."""
    append(engine, 3, 4)
    append(engine, 5, partition=1)
    uri = publish(engine)
    table = DeltaTable(uri)
    actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path").to_pylist()
    assert [each["num_records"] for each in actions] == [2, 1]
    of_columns = [name for name in actions[0] if name.startswith(("min.", "max.", "null_count."))]
    assert {action[name] for action in actions for name in of_columns} == {None}
    assert table.transaction_version("txn-engine:payments/0/1") == 1
    assert table.metadata().partition_columns == []


@pytest.mark.shard("engines")
def test_a_checkpoint_a_hundred_versions(engine: Engine) -> None:
    """Each hundredth version has a checkpoint, at which readers begin. The commits before it are not needed
    any more."""
    for account in range(103):
        append(engine, account)
        uri = publish(engine)
    assert versions(engine) == list(range(103))
    found = [info.key for info in engine.store.list(LOG) if "checkpoint" in info.key]
    assert found == [f"{LOG}{100:020d}.checkpoint.parquet", f"{LOG}_last_checkpoint"]
    assert engine.admin.verify().ok
    for version in range(100):
        engine.store.delete(f"{LOG}{version:020d}.json")
    for reader in READERS.values():
        assert reader(uri, None, COLUMNS, None) == scanned(engine)
    assert DeltaTable(uri).transaction_version("txn-engine:payments/0/0") == 103
    append(engine, 999)
    assert 999 in accounts(publish(engine))


# --- several publishers, and those who die ----------------------------------------------------------------------


def test_the_same_cut_twice_is_nothing(engine: Engine) -> None:
    append(engine, 1)
    cut = engine.cut()
    first = engine.tables.publish("payments", "delta", cut=cut)
    before = [info.key for info in engine.store.list(FOLDER)]
    assert engine.tables.publish("payments", "delta", cut=cut.number) == first
    engine.tables.publish("payments", "delta", cut=engine.cut())  # where nothing has moved either
    assert [info.key for info in engine.store.list(FOLDER)] == before


def test_an_older_cut_is_refused(engine: Engine) -> None:
    old = engine.cut()
    append(engine, 1)
    publish(engine)
    with refused(InvalidRequestError, Reason.TABLE_SHOWS_NEWER_CUT):
        engine.tables.publish("payments", "delta", cut=old)
    assert versions(engine) == [0]


def test_of_two_at_once_the_later_one_goes_on_from_the_winner(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(engine, 1)
    publish(engine)
    append(engine, 2)
    put, meanwhile = PinStore.put, [True]

    def put_late(*args: object, **named: object) -> object:
        pin = put(*args, **named)  # type: ignore[arg-type]
        if meanwhile:
            meanwhile.clear()
            append(engine, 3)
            with engine_on(engine.store, clock) as another:
                assert accounts(publish(another)) == [1, 2, 3]
        return pin

    monkeypatch.setattr(PinStore, "put", put_late)
    assert accounts(publish(engine)) == [1, 2, 3]
    assert versions(engine) == [0, 1]


def prepared(clock: ManualClock) -> MemoryStore:
    """A table, and after it new records and merges of old ones with new ones."""
    store = MemoryStore(f"tables-deaths-{next(_STORES)}")
    with engine_on(store, clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        append(engine, 1)
        append(engine, 2)
        publish(engine)
        append(engine, 3)
        engine.maintenance.compact(policy=EAGER)
        append(engine, 4, partition=1)
    return store


FAULTS: tuple[Blow, ...] = ("dies before", "dies after", "before", "after", "taken_after")
"""What happens at a store operation: the process dies, or the store fails before it, after it, or after another put."""


@pytest.mark.parametrize("fault", in_shard("kills", FAULTS, keep=["dies after"]))
def test_whoever_dies_leaves_what_the_next_one_finishes(
    fault: str, clock: ManualClock, tmp_path: Path
) -> None:
    """If a publisher dies at any store operation, the next one finishes: all records are there once, and each
    version is whole."""
    store = prepared(clock)
    with engine_on(store, clock) as engine:
        cut = engine.cut()
        wanted = scanned(engine, cut.number)
    counted = FaultyStore(copy_of(store))
    with engine_on(counted, clock) as engine:
        counted.calls.clear()
        engine.tables.publish("payments", "delta", cut=cut.number)
        calls = len(counted.calls)
    assert 10 < calls < 100
    for at in range(calls):
        death = Death(fault, at)
        faulty = FaultyStore(copy_of(store), error=death.error)
        with engine_on(faulty, clock) as engine:
            faulty.calls.clear()
            faulty.decide = death.client()
            with suppress(ProcessDiedError, TxnEngineError):
                engine.tables.publish("payments", "delta", cut=cut.number)
            faulty.decide = None
        with engine_on(faulty.inner, clock) as engine:
            engine.tables.publish("payments", "delta", cut=cut.number)
            root = tmp_path / "copy"
            for info in faulty.inner.list(FOLDER):
                path = root / info.key.removeprefix(FOLDER)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(faulty.inner.get(info.key))
            assert with_deltalake(str(root), None, COLUMNS) == wanted
            assert [len(with_deltalake(str(root), each, ["account"])) for each in versions(engine)] == [
                2,
                4,
                4,
            ]
            shutil.rmtree(root)


def test_what_was_appended_and_forgotten_since_is_taken_out_again(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a publisher stops between two versions, and the log has forgotten its files when the next one comes,
    they are taken out of the table."""
    append(engine, 1)
    publish(engine)
    append(engine, 2)
    engine.maintenance.compact(policy=EAGER)
    commit = DeltaView.commit
    monkeypatch.setattr(
        DeltaView, "commit", lambda view, each: commit(view, each) and not each.is_complete and die()
    )
    with pytest.raises(ProcessDiedError):
        publish(engine)
    monkeypatch.undo()
    (status,) = engine.tables.status()
    assert not status.is_complete
    assert accounts(status.uri) == [1, 2]
    engine.delete_cut(status.cut)
    for _ in range(3):
        clock.advance(2 * DAY_MS)
        append(engine, 3)
        engine.admin.snapshot()
        engine.maintenance.retain(policy=EAGER)
        engine.maintenance.seal()
        engine.maintenance.clean(policy=EAGER)
    assert accounts(status.uri) == [1, 2]  # pinned
    assert accounts(publish(engine)) == [1, 2, 3, 3, 3]


# --- what is kept -----------------------------------------------------------------------------------------------


def merged_away(engine: Engine, clock: ManualClock, days: int) -> None:
    for _ in range(days):
        clock.advance(DAY_MS)
        append(engine, 9)
        engine.admin.snapshot()
        engine.maintenance.compact(policy=EAGER)
        engine.maintenance.retain(policy=EAGER)
        engine.maintenance.seal()
        assert engine.maintenance.clean(policy=EAGER).failures == ()


def test_what_a_version_names_stays_for_seven_days_after_the_next(engine: Engine, clock: ManualClock) -> None:
    """The files of a version stay for seven days after the next version, even if its cut was deleted. Those
    of the newest version stay as long as it is published."""
    append(engine, 1)
    append(engine, 2)
    uri = publish(engine)
    engine.delete_cut(0)
    merged_away(engine, clock, days=9)
    assert accounts(uri, 0) == [1, 2]
    publish(engine)
    second = versions(engine)[-1]
    merged_away(engine, clock, days=1)
    publish(engine)
    merged_away(engine, clock, days=6)
    assert accounts(uri, 0) == [1, 2]
    merged_away(engine, clock, days=2)
    with pytest.raises(Exception, match=r"No such file|not found"):
        accounts(uri, 0)
    assert accounts(uri, second) == [1, 2, *[9] * 9]
    assert [status.pins for status in engine.tables.status()] == [2]
    assert engine.admin.verify().ok


def test_unpublish_lets_go(engine: Engine, clock: ManualClock) -> None:
    """After unpublishing, readers are refused. Publishing again gives the same table with all records
    once."""
    append(engine, 1)
    append(engine, 2)
    uri = publish(engine)
    engine.delete_cut(0)
    merged_away(engine, clock, days=2)
    kept = sum("/data/" in info.key for info in engine.store.list(FOLDER))
    assert engine.tables.unpublish("payments") == ["delta"]
    (status,) = engine.tables.status("payments")
    assert (status.version, status.cut, status.pins) == (1, -1, 0)
    for reader in READERS.values():
        with pytest.raises(Exception, match="txnEngineUnpublished"):
            reader(uri, None, COLUMNS, None)
    engine.maintenance.clean(policy=EAGER)
    assert sum("/data/" in info.key for info in engine.store.list(FOLDER)) < kept
    assert engine.tables.unpublish("payments") == ["delta"]
    assert versions(engine) == [0, 1]
    publish(engine)
    for reader in READERS.values():
        assert reader(uri, None, COLUMNS, None) == scanned(engine)
    assert engine.admin.verify().ok


def test_a_cut_that_is_deleted_meanwhile_is_not_published(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(engine, 1)
    cut = engine.cut()
    put = PinStore.put

    def put_and_delete(*args: object, **named: object) -> object:
        engine.delete_cut(cut)
        return put(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(PinStore, "put", put_and_delete)
    with refused(InvalidRequestError, Reason.CUT_DELETED):
        engine.tables.publish("payments", cut=cut)
    assert versions(engine) == []


def test_a_topic_that_was_made_again_has_a_table_of_its_own(engine: Engine, clock: ManualClock) -> None:
    append(engine, 1)
    cut = engine.cut()
    publish(engine)
    engine.admin.delete_topic("payments")
    with pytest.raises(UnknownTopicOrPartitionError):
        publish(engine)
    engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
    with refused(InvalidRequestError, Reason.TOPIC_MADE_AGAIN):
        engine.tables.publish("payments", cut=cut)
    append(engine, 5)
    assert accounts(publish(engine)) == [5]
    clock.advance(DAY_MS)
    engine.maintenance.remove_deleted_topics()
    assert [info.key for info in engine.store.list(FOLDER)] == []


# --- everybody else ---------------------------------------------------------------------------------------------


def test_other_writers_are_refused(engine: Engine) -> None:
    append(engine, 1)
    append(engine, 2)
    publish(engine)
    append(engine, 3)
    uri = publish(engine)
    before = {info.key: engine.store.get(info.key) for info in engine.store.list("")}
    table = DeltaTable(uri)
    for write in (
        lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
        table.optimize.compact,
        lambda: table.delete("account = 1"),
        lambda: table.update({"account": "2"}),
        lambda: write_deltalake(uri, table.to_pyarrow_table(), mode="append"),
        lambda: write_deltalake(uri, table.to_pyarrow_table(), mode="overwrite"),
        lambda: table.restore(0),
    ):
        with pytest.raises((DeltaError, OSError), match="txnEngineView"):
            write()
    table.cleanup_metadata()
    assert {info.key: engine.store.get(info.key) for info in engine.store.list("")} == before


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"{}\n",
        b'{"commitInfo":{"operation":"WRITE"}}\n',
        b'{"commitInfo":{"txnEngine":{"checksum":"' + b"0" * 32 + b'"}}}\n',
        b"\xff\n\n",
        None,
    ],
)
def test_a_commit_of_somebody_elses_is_refused(engine: Engine, foreign: bytes | None) -> None:
    """A commit of another writer is refused, and so is one of ours with a changed byte."""
    append(engine, 1)
    publish(engine)
    if foreign is None:
        foreign = engine.store.get(f"{LOG}{0:020d}.json").replace(b'"account', b'"Account')
    engine.store.put(f"{LOG}{1:020d}.json", foreign)
    append(engine, 2)
    before = [info.key for info in engine.store.list("")]
    tables = engine.tables
    for use in (tables.publish, tables.unpublish, tables.status):
        with refused(CorruptObjectError, Reason.NOT_WRITTEN_BY_US) as caught:
            use("payments")
        assert caught.value.place == f"{LOG}{1:020d}.json"
    assert engine.tables.status().unreadable[0].topic == "payments"
    assert [info.key for info in engine.store.list("")] == before
    engine.store.delete(f"{LOG}{1:020d}.json")
    assert accounts(publish(engine)) == [1, 2]


def test_a_commit_of_another_topics_table_is_refused(engine: Engine) -> None:
    engine.admin.create_topic("refunds", partitions=1, schema=SCHEMA)
    engine.tables.publish("refunds")
    data = engine.store.get(f"topics/refunds/0/_delta_log/{0:020d}.json")
    engine.store.put(f"{LOG}{0:020d}.json", data)
    with refused(CorruptObjectError, Reason.OF_ANOTHER_TABLE):
        publish(engine)


@pytest.mark.parametrize(
    "hint", [b"", b"[]", b'{"version": 7}', b'{"version": -1}', b'{"version": "0"}', b"{" * 5000]
)
def test_a_hint_is_not_believed(engine: Engine, hint: bytes) -> None:
    append(engine, 1)
    publish(engine)
    engine.store.put(f"{LOG}_last_checkpoint", hint)
    append(engine, 2)
    publish(engine)
    assert versions(engine) == [0, 1]


def test_a_log_whose_beginning_is_gone_is_refused(engine: Engine) -> None:
    for account in range(3):
        append(engine, account)
        publish(engine)
    engine.store.delete(f"{LOG}{0:020d}.json")
    with refused(CorruptObjectError, Reason.FIRST_VERSIONS_GONE):
        publish(engine)


def test_a_table_that_was_taken_away_begins_anew(engine: Engine, clock: ManualClock) -> None:
    """If a table was deleted by hand, publishing begins a new one. The pins of the old one do not count for
    it."""
    for account in range(5):
        append(engine, account)
        uri = publish(engine)
    shutil.rmtree(f"{uri}/_delta_log")
    publish(engine)
    assert [status.pins for status in engine.tables.status()] == [2]  # for version 0, the old one's too
    clock.advance(8 * DAY_MS)
    merged_away(engine, clock, days=2)
    assert accounts(uri) == list(range(5))


def test_a_damaged_pin_stops_its_topics_clean_up_until_it_is_unpublished(engine: Engine) -> None:
    append(engine, 1)
    publish(engine)
    (pin,) = [info.key for info in engine.store.list(f"{FOLDER}published/")]
    engine.store.put(pin, engine.store.get(pin)[:-5])
    with engine_on(engine.store) as another:
        engine.admin.create_topic("refunds", partitions=1, schema=SCHEMA)
        report = another.maintenance.clean(policy=EAGER)
        assert {each.topic for each in report.failures} == {"payments"}
        assert another.tables.unpublish("payments") == ["delta"]
        assert another.maintenance.clean(policy=EAGER).failures == ()


REFUSED = {
    "unsigned": pa.uint32(),
    "nanoseconds": pa.timestamp("ns", tz="UTC"),
    "times": pa.time64("us"),
    "durations": pa.duration("us"),
    "floats": pa.float16(),
    "decimals": pa.decimal256(60, 2),
    "inside": pa.list_(pa.struct([("each", pa.duration("ms"))])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_delta_has_not_is_refused(engine: Engine, name: str) -> None:
    engine.admin.create_topic(
        "odd", partitions=1, schema=pa.schema([("fine", pa.int64()), (name, REFUSED[name])])
    )
    before = [info.key for info in engine.store.list("")]
    reason = Reason.UNSUPPORTED_TYPE
    with refused(InvalidRequestError, reason) as raised:
        engine.tables.publish("odd")
    assert raised.value.actor == "publish 'odd' as delta"
    assert f"'{name}" in raised.value.seen
    if name in ("unsigned", "nanoseconds", "times", "durations", "floats", "decimals"):
        assert name in str(raised.value.expected)
    assert len(str(raised.value).splitlines()) == 1
    assert [info.key for info in engine.store.list("")] == before


def test_every_other_type_comes_back(engine: Engine) -> None:
    """Columns of every type are read back by the reader that keeps them, and no value becomes null."""
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    values = {
        "b": ([True, None], pa.bool_()),
        "i8": ([-128, None], pa.int8()),
        "i16": ([1, None], pa.int16()),
        "i32": ([1, None], pa.int32()),
        "f": ([1.5, None], pa.float32()),
        "d": ([float("nan"), None], pa.float64()),
        "s": (["ä", None], pa.large_string()),
        "bin": ([b"\0", None], pa.binary()),
        "day": ([date(2020, 1, 1), None], pa.date32()),
        "utc": ([datetime(2020, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
        "ntz": ([datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None), None], pa.timestamp("us")),
        "dec": ([Decimal("1" * 36 + ".22"), None], pa.decimal128(38, 2)),
        "nested": ([{"x": 1, "y": ["a", None]}, None], inner),
        "map": ([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "with space, and (more)": ([1, None], pa.int64()),
    }
    schema = pa.schema([(name, kind) for name, (_, kind) in values.items()])
    table = pa.table([pa.array(*each) for each in values.values()], schema=schema)
    engine.admin.create_topic("every", partitions=1, schema=schema)
    engine.partition("every", 0).append(table)
    uri = engine.tables.publish("every")["delta"]
    for found in (DeltaTable(uri).to_pyarrow_table(), pl.scan_delta(uri).collect().to_arrow()):
        back = found.select(schema.names).cast(schema)
        assert str(back.to_pylist()) == str(table.to_pylist())


def test_a_cut_of_another_store_is_refused(engine: Engine, tmp_path: Path) -> None:
    """A cut of another store is refused, even if this store has a cut with that number."""
    engine.cut()
    with txn_engine.connect(f"file://{tmp_path}/another") as other:
        other.admin.create_topic("payments", schema=SCHEMA, key="account")
        strange = other.cut()
    for formats in ("", "delta"):  # also where nothing is due
        engine.admin.alter_configs({"tables.publish": formats}, topic="payments")
        for publish_at in (engine.tables.publish, engine.tables.publish_due):
            with refused(InvalidRequestError, Reason.CUT_OF_ANOTHER_STORE):
                publish_at("payments", cut=strange)
        with refused(InvalidRequestError, Reason.CUT_NOT_FOUND):
            engine.tables.publish_due(cut=7, dry_run=True)
    assert engine.tables.status() == []


def test_those_that_are_due_are_published_at_the_cut_that_is_given_or_not_at_all(engine: Engine) -> None:
    """Topics that are due are published at the given cut or not at all. A cut from before an erasure, or one
    older than the table's, is a failure."""
    append(engine, 1, 2, 4)
    before = engine.cut()
    engine.erase("payments", "account = 4", execute=True)
    engine.admin.alter_configs({"tables.publish": "delta"}, topic="payments")
    (failure,) = engine.tables.publish_due(cut=before).failures
    assert failure.reason is Reason.CUT_BEFORE_ERASURE
    assert versions(engine) == []
    old = engine.cut()
    append(engine, 3)
    newer = engine.cut()
    assert engine.tables.publish_due(cut=newer).failures == ()
    (failure,) = engine.tables.publish_due(cut=old).failures
    assert failure.reason is Reason.TABLE_SHOWS_NEWER_CUT
    assert versions(engine) == [0]
    assert accounts(publish(engine)) == [1, 2, 3]


def test_formats_that_there_are_not(engine: Engine) -> None:
    for formats in ((), ("hudi",), ("delta", 3), None, True, ([],)):
        with refused(InvalidRequestError, Reason.BAD_ARGUMENT):
            engine.tables.publish("payments", formats)  # type: ignore[arg-type]
    assert engine.tables.status() == []
    assert engine.tables.unpublish("payments") == []
