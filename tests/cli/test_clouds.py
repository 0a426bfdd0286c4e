"""Everything works on a store of another cloud: transactions, a cut, SQL, an audit, backups both ways, the
doctor."""

from __future__ import annotations

import contextlib
import json
import pickle
from pathlib import Path

import pytest

import txn_engine
from storage import BucketStore, open_store
from tests.cli.conftest import Run
from tests.engine.conftest import SCHEMA, load, payments
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.stores import accounts_in
from txn_engine import Engine

AZURE = "azure_container"
GOOGLE = pytest.param("gcs_bucket", marks=pytest.mark.minio, id="gcs_bucket")


def on(kept: str) -> pytest.MarkDecorator:
    """Run a test on both clouds: on this one in `make test`, on the other one in the shard."""
    return pytest.mark.parametrize("cloud", in_shard("machine", [AZURE, GOOGLE], keep=[kept]), indirect=True)


both = pytest.mark.parametrize("cloud", [AZURE, GOOGLE], indirect=True)


@pytest.fixture
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store on a cloud. The environment has what opens it."""
    place = request.getfixturevalue(request.param)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    return f"{place.url}/ledger"


def copy(engine: Engine) -> None:
    """Copy what is committed to another topic, with output and offsets in one transaction."""
    consumer = engine.consumer(group_id="copy")
    consumer.subscribe(["payments"])
    batch = consumer.poll()
    assert batch is not None
    producer = engine.producer(transactional_id="copy")
    producer.init_transactions()
    with producer.transaction():
        producer.produce("copies", batch.select(SCHEMA.names))
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


COMMITTED = [0, 2, 4, 10, 12, 14]


@on("azure_container")
def test_transactions(cloud: str) -> None:
    """Committed records are seen once, and aborted and fenced ones are not, by another engine, at a cut and
    in SQL. The auditor finds nothing."""
    with txn_engine.connect(cloud, configs=FEW_INTERNAL) as engine:
        for topic in ("payments", "copies"):
            engine.admin.create_topic(topic, partitions=3, schema=SCHEMA, key="account_id")
        load(engine)
        engine.admin.snapshot()
        cut = engine.cut()
        copy(engine)
    with txn_engine.connect(cloud) as second:
        assert accounts_in(second) == accounts_in(second, "copies") == COMMITTED
        assert {part.lag for part in second.admin.describe_group("copy").partitions} == {0}
        assert second.scan("payments", cut=cut).to_table().num_rows == len(COMMITTED)
        assert second.scan("copies", cut=cut).to_table().num_rows == 0
        counted = second.sql("SELECT count(*) AS n, sum(amount) AS s FROM payments")
        assert counted.to_pylist() == [{"n": 6, "s": pytest.approx(6)}]
        report = second.admin.verify()
        assert report.ok, [str(finding) for finding in report.findings]
        assert isinstance(second.store, BucketStore)
        assert pickle.loads(pickle.dumps(second.store)).url == second.url == cloud


@pytest.mark.shard("machine")
@on("gcs_bucket")
def test_tables(cloud: str) -> None:
    """deltalake opens a Delta view with the store's own options. The audit of an Iceberg view finds nothing."""
    from deltalake import DeltaTable

    with txn_engine.connect(cloud, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA)
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("payments", payments(1, 2, 3))
        uris = engine.tables.publish("payments", ("delta", "iceberg"))
        assert uris["iceberg"].startswith(engine.store.uri("topics/payments/0/iceberg/metadata/"))
        assert isinstance(engine.store, BucketStore)
        read = DeltaTable(uris["delta"], storage_options=engine.store.storage_options()).to_pyarrow_table()
        assert sorted(read.column("account_id").to_pylist()) == [1, 2, 3]
        report = engine.admin.verify()
        assert report.ok, [str(finding) for finding in report.findings]


@pytest.mark.shard("engines")
@on("gcs_bucket")
def test_backups(cloud: str, tmp_path: Path) -> None:
    """A backup from the cloud to a folder can be restored into the cloud, and a backup from cloud to cloud
    into a folder."""
    from txn_engine.backup import check_backup, restore

    with txn_engine.connect(cloud, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        load(engine)
        for place in (open_store(tmp_path / "backups"), open_store(cloud.replace("/ledger", "/backups"))):
            engine.backup(place)
            assert not check_backup(place).damaged
    target = cloud.replace("/ledger", "/again")
    restore(open_store(tmp_path / "backups"), open_store(target))
    with txn_engine.connect(target) as again:
        assert accounts_in(again) == COMMITTED
        report = again.admin.verify()
        assert report.ok, [str(finding) for finding in report.findings]
    folder = open_store(tmp_path / "from-cloud")
    restore(open_store(cloud.replace("/ledger", "/backups")), folder)
    with Engine(folder) as again:
        assert accounts_in(again) == COMMITTED


@on("azure_container")
def test_the_command_line(run: Run, cloud: str, good: Path, tmp_path: Path) -> None:
    """A file goes in and out, the store is backed up, and the doctor says what it found and shows no key."""
    txn_engine.connect(cloud, configs=FEW_INTERNAL).close()
    schema = "id:int64,account_id:int64,day:date32,amount:decimal(18,2),note:string?"
    for arguments in (
        ("topics", "create", "payments", "--schema", schema),
        ("produce", "payments", str(good), "--transactional-id", "load"),
        ("verify",),
        ("backup", "--to", f"file://{tmp_path}/backups"),
    ):
        answer = run(*arguments, store=cloud)
        assert answer.code == 0, answer.stderr
    assert run("consume", "payments", "--format", "csv", store=cloud).stdout.count("\n") == 5
    told = run("doctor", "--json", store=cloud)
    assert told.code == 0, told.stdout
    found = {check["check"]: check for check in told.json["checks"]}
    for name in (
        "store",
        "credentials",
        "reachable",
        "bucket",
        "ledger",
        "put-if-absent",
        "clock",
        "keys",
        "contents",
    ):
        assert found[name]["status"] == "ok", found[name]
    with txn_engine.connect(cloud) as engine:
        assert isinstance(engine.store, BucketStore)
        now = engine.store.with_credentials_of_now()
        secrets = [now.access()[each.keyword] for each in now.backend.settings if each.secret]
    assert not [secret for secret in secrets if secret and secret in json.dumps(told.json)]


@pytest.mark.shard("machine")
@both
def test_conformance(run: Run, cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store conforms, and no probe is left there. `test_s3.py` has the same on MinIO."""
    monkeypatch.setattr("txn_engine.cli.conform.PAUSE_S", 0)
    told = run("doctor", "--conformance", "--json", store=cloud)
    assert (told.code, told.json["conforms"], told.json["left"]) == (0, True, 0), told.stdout
    with contextlib.closing(open_store(cloud)) as store:
        assert list(store.list("")) == []


@on("gcs_bucket")
def test_a_missing_bucket(run: Run, cloud: str) -> None:
    """The error has one line that names the bucket, and the doctor fails on that line."""
    scheme = cloud.partition("://")[0]
    store = f"{scheme}://no-such-bucket/ledger"
    answer = run("topics", "create", "t", store=store)
    assert (answer.code, answer.error_code) == (1, "STORE_NOT_FOUND")
    assert "'no-such-bucket'" in answer.error
    told = run("doctor", store=store)
    assert (told.code, "✗ bucket" in told.stdout, "create it" in told.stdout) == (1, True, True)
