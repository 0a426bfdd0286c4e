"""The engines that people use return the rows of a scan at that cut from a topic's Delta and Iceberg
tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from storage import BucketStore, LocalStore
from tests.conftest import S3Bucket
from tests.readers.environments import SESSION, jars_of, run
from tests.readers.programs.rows import digest
from tests.tables.ledgers import EAGER, SCHEMA, Ledger, engine_on, rows
from txn_engine import AddColumn, Engine, MakeNullable
from txn_engine.errors import ConcurrentTransactionsError
from txn_engine.spark.jars import jar_settings
from txn_engine.testing import ManualClock

pytestmark = [pytest.mark.shard("engines"), pytest.mark.timeout(600)]


@dataclass
class Shown:
    """The published tables, and the expected answer for each state, with offsets (Iceberg) and without
    (Delta)."""

    delta: str
    iceberg: str
    versions: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    by_version: list[Any] = field(default_factory=list)
    by_snapshot: list[Any] = field(default_factory=list)

    @property
    def root(self) -> str:
        return self.iceberg.rpartition("/metadata/")[0]

    def request(self, **more: Any) -> dict[str, Any]:
        held = {"delta": self.delta, "iceberg": self.iceberg, "root": self.root}
        return {**held, "versions": self.versions[-10:], "snapshots": self.snapshots[-10:], **more}


def expected(engine: Engine, cut: int | None = None, *, topic: str = "payments") -> tuple[Any, Any]:
    """The scan's digest, without offsets and with them."""
    table = engine.scan(topic, cut=cut).to_table()
    stamps = table.column("_timestamp").cast(pa.int64())
    lines = list(
        zip(
            table.column("account").to_pylist(),
            table.column("amount").to_pylist(),
            stamps.to_pylist(),
            strict=True,
        )
    )
    offsets = zip(table.column("_partition").to_pylist(), table.column("_offset").to_pylist(), strict=True)
    return digest(lines), digest((*line, *at) for line, at in zip(lines, offsets, strict=True))


def note(engine: Engine, shown: Shown | None = None) -> Shown:
    """Publish both tables, and add what they show."""
    cut = engine.cut()
    uris = engine.tables.publish("payments", cut=cut)
    shown = shown or Shown(uris["delta"], uris["iceberg"])
    shown.iceberg = uris["iceberg"]
    by_format = {status.format: status for status in engine.tables.status("payments")}
    without, with_offsets = expected(engine, cut.number)
    key = uris["iceberg"].removeprefix(engine.store.uri(""))
    refs = json.loads(engine.store.get(key))["refs"]
    shown.versions.append(by_format["delta"].version)
    shown.by_version.append(without)
    shown.tags.append(f"cut-{cut.number}")
    shown.by_snapshot.append(with_offsets)
    there = [at for at, tag in enumerate(shown.tags) if tag in refs]  # days go by, and seven are kept
    shown.tags = [shown.tags[at] for at in there]
    shown.by_snapshot = [shown.by_snapshot[at] for at in there]
    shown.snapshots = [refs[tag]["snapshot-id"] for tag in shown.tags]
    return shown


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=[1, 2])
def everything(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Shown]:
    """A topic's tables after appends, aborts, merges, compaction by key, retention and new partitions, by a
    seed."""
    with engine_on(LocalStore(tmp_path / "ledger"), clock) as engine:
        ledger = Ledger(engine, clock, request.param)
        shown: Shown | None = None
        for _ in range(12):
            for _ in range(ledger.random.randint(1, 4)):
                ledger.step()
            with suppress(
                ConcurrentTransactionsError
            ):  # a cut goes through a file until the open ones are ended
                shown = note(engine, shown)
        ledger.close()
        assert shown is not None
        yield shown


@pytest.fixture
def growing(tmp_path: Path, clock: ManualClock) -> Iterator[Shown]:
    """A table that only grows, with aborts, merges and a new partition. A stream of it has each record
    once."""
    with engine_on(LocalStore(tmp_path / "ledger"), clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        shown: Shown | None = None
        for turn in range(5):
            for is_committed in (True, False, True):
                with engine.producer(transactional_id="load") as producer:
                    producer.init_transactions()
                    producer.begin_transaction()
                    producer.produce("payments", rows(*range(100 * turn, 100 * turn + 7))).result()
                    (producer.commit_transaction if is_committed else producer.abort_transaction)()
            if turn in (1, 3):
                engine.maintenance.compact(policy=EAGER)
            if turn == 2:
                engine.admin.add_partitions_to_topic("payments", 3)
            shown = note(engine, shown)
        assert shown is not None
        yield shown


def test_the_libraries_of_python(everything: Shown) -> None:
    found = run("tables", "python_tables", everything.request())
    versions = [everything.by_version[-1], *everything.by_version[-10:]]
    snapshots = [everything.by_snapshot[-1], *everything.by_snapshot[-10:]]
    assert found["deltalake"] == versions
    assert found["polars delta"] == versions
    assert found["pyiceberg"] == snapshots
    assert found["polars iceberg"] == snapshots
    assert found["refused"]


def test_duckdb(everything: Shown) -> None:
    found = run("tables", "duckdb_tables", everything.request())
    assert found["delta"] == everything.by_version[-1]
    assert found["iceberg"] == found["root"] == everything.by_snapshot[-1]
    assert found["snapshots"] == everything.by_snapshot[-10:]
    assert found["versions"] == everything.by_version[-10:]


@SESSION["delta"]
def test_spark_with_delta(everything: Shown) -> None:
    found = run("delta", "delta_spark", everything.request())
    assert found["delta"] == everything.by_version[-1]
    assert found["versions"] == everything.by_version[-10:]


@SESSION["iceberg"]
def test_spark_with_iceberg(everything: Shown) -> None:
    found = run("iceberg", "iceberg_spark", everything.request(tags=everything.tags[-10:]))
    assert found["iceberg"] == found["root"] == everything.by_snapshot[-1]
    assert found["snapshots"] == found["tags"] == everything.by_snapshot[-10:]


DELTA_STATEMENTS = (
    "INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
    "DELETE FROM {table} WHERE account = 1",
    "UPDATE {table} SET account = 2",
    "OPTIMIZE {table}",
    "VACUUM {table} RETAIN 0 HOURS",
    "ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')",
    "RESTORE TABLE {table} TO VERSION AS OF 0",
)
ICEBERG_STATEMENTS = (
    "INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
    "DELETE FROM {table} WHERE account = 1",
    "DELETE FROM {table} WHERE log_partition = 0",
    "UPDATE {table} SET account = 2",
    "TRUNCATE TABLE {table}",
    "ALTER TABLE {table} SET TBLPROPERTIES ('gc.enabled' = 'true')",
    "ALTER TABLE {table} ADD COLUMN more int",
    "CALL views.system.rewrite_data_files(table => '{quoted}', options => map('rewrite-all', 'true'))",
    "CALL views.system.rewrite_manifests('{quoted}')",
    "CALL views.system.rollback_to_snapshot('{quoted}', 1)",
    "CALL views.system.expire_snapshots(table => '{quoted}', retain_last => 1)",
    "CALL views.system.remove_orphan_files(table => '{quoted}')",
)


@SESSION["delta"]
def test_spark_follows_delta_and_cannot_write(growing: Shown, tmp_path: Path) -> None:
    """A stream has each record once. Each write fails, and no object of ours changes or disappears. `verify`
    names the files that an INSERT leaves in the table's root."""
    before = stored(tmp_path)
    found = run("delta", "delta_spark", growing.request(stream=True, statements=DELTA_STATEMENTS))
    assert found["stream"] == found["delta"] == growing.by_version[-1]
    assert all("txnEngineView" in said for said in found["refused"].values()), found["refused"]
    left = stored(tmp_path)
    assert left.items() >= before.items()
    assert all(
        "/payments/0/part-" in name.replace("/.part-", "/part-") for name in left.keys() - before.keys()
    )


@SESSION["iceberg"]
def test_spark_follows_iceberg_and_cannot_write(growing: Shown, tmp_path: Path, clock: ManualClock) -> None:
    """A stream has each record once. Each write fails, and no object of ours changes or disappears. `verify`
    names the files that it leaves next to the metadata. A dropped table is created again."""
    before = stored(tmp_path)
    found = run("iceberg", "iceberg_spark", growing.request(stream=True, statements=ICEBERG_STATEMENTS))
    assert found["stream"] == found["root"] == growing.by_snapshot[-1]
    assert all(found["refused"].values()), found["refused"]
    left = stored(tmp_path)
    assert left.items() >= before.items()
    assert all("/iceberg/metadata/" in name for name in left.keys() - before.keys())
    dropped = run("iceberg", "iceberg_spark", growing.request(statements=["DROP TABLE {table}"]))
    assert dropped["refused"] == {"DROP TABLE {table}": ""}
    gone = before.keys() - stored(tmp_path).keys()
    assert gone == {name for name in before if "/0/iceberg/" in name}
    with engine_on(LocalStore(tmp_path / "ledger"), clock) as engine:
        again = note(engine)
        assert engine.admin.verify().findings == ()
    assert run("tables", "duckdb_tables", again.request())["iceberg"] == growing.by_snapshot[-1]


def test_the_libraries_of_python_cannot_write(growing: Shown, tmp_path: Path, clock: ManualClock) -> None:
    """Each write is refused, and no object of ours changes or disappears, but DuckDB's INSERT leaves files in
    the root. A call that creates a new table in a folder asks nobody. It turns the hint away from our table
    until the next publish."""
    before = stored(tmp_path)
    said = run("tables", "python_writes", growing.request(goes_through=False))
    assert all(said.values()), said
    left = stored(tmp_path)
    assert left.items() >= before.items()
    assert all("/payments/0/duckdb-" in name for name in left.keys() - before.keys())
    said = run("tables", "python_writes", growing.request(goes_through=True))
    assert said == {"DuckDB copy": ""}
    changed = {name for name, data in left.items() if stored(tmp_path)[name] != data}
    assert changed == {str(tmp_path / "ledger/topics/payments/0/iceberg/metadata/version-hint.text")}
    with engine_on(LocalStore(tmp_path / "ledger"), clock) as engine:
        strange = {finding.code for finding in engine.admin.verify().findings}
        assert strange == {"object-foreign"}
        again = note(engine)
    assert run("tables", "duckdb_tables", again.request())["root"] == growing.by_snapshot[-1]


def stored(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.minio
def test_on_s3(minio_bucket: S3Bucket) -> None:
    """DuckDB, deltalake, Polars and pyiceberg read the tables on an object store."""
    keys = {"access_key": minio_bucket.access_key, "secret_key": minio_bucket.secret_key}
    with txn_engine.connect(f"{minio_bucket.url}/ledger", endpoint=minio_bucket.endpoint, **keys) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        shown = note(engine)
        for account in range(4):
            engine.partition("payments", account % 2).append(rows(account, account + 10))
            note(engine, shown)
        engine.maintenance.compact(policy=EAGER)
        note(engine, shown)
        store = engine.store
        assert isinstance(store, BucketStore)
    _, secret = store.duckdb_secret()
    s3 = {"key": secret["KEY_ID"], "secret": secret["SECRET"], "endpoint": secret["ENDPOINT"]}
    found = run("tables", "duckdb_tables", shown.request(s3=s3))
    assert (found["delta"], found["root"]) == (shown.by_version[-1], shown.by_snapshot[-1])
    assert (found["versions"], found["snapshots"]) == (shown.by_version, shown.by_snapshot)
    options = {"delta_options": store.storage_options(), "iceberg_options": store.iceberg_properties()}
    found = run("tables", "python_tables", shown.request(**options))
    assert found["deltalake"] == found["polars delta"] == [shown.by_version[-1], *shown.by_version]
    assert found["pyiceberg"] == found["polars iceberg"] == [shown.by_snapshot[-1], *shown.by_snapshot]


@pytest.mark.minio
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_spark_on_s3(minio_bucket: S3Bucket, table_format: str) -> None:
    """Spark reads the tables by Hadoop's S3A, as TABLES.md says. The connector's jars belong to the Hadoop
    that each Spark has."""
    keys = {"access_key": minio_bucket.access_key, "secret_key": minio_bucket.secret_key}
    with txn_engine.connect(f"{minio_bucket.url}/ledger", endpoint=minio_bucket.endpoint, **keys) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        engine.partition("payments", 0).append(rows(1, 2))
        shown = note(engine)
        engine.admin.alter_topic(
            "payments", [AddColumn(pa.field("kind", pa.string())), MakeNullable("account")]
        )
        note(engine, shown)
        store = engine.store
        assert isinstance(store, BucketStore)
    options = {f"spark.hadoop.{name}": value for name, value in store.hadoop_options().items()}
    options |= {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    jars = [*jars_of(table_format), *map(Path, jar_settings(store.url)["spark.jars"].split(","))]
    if table_format == "iceberg":  # has a hadoop-aws of its own, since its Spark has an older Hadoop
        jars = [jar for jar in jars if not jar.name.startswith("org.apache.hadoop.hadoop-aws-3.5")]
    asked = shown.request(settings=options, tags=shown.tags)
    asked |= {name: asked[name].replace("s3://", "s3a://") for name in ("delta", "root")}
    found = run(table_format, f"{table_format}_spark", asked, jars)
    if table_format == "delta":
        assert (found["delta"], found["versions"]) == (shown.by_version[-1], shown.by_version)
    else:
        assert found["iceberg"] == found["root"] == shown.by_snapshot[-1]
        assert found["snapshots"] == found["tags"] == shown.by_snapshot
