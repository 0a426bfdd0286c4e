"""The policies that let a key create objects and overwrite none are checked against every put of the engine."""

from __future__ import annotations

import fnmatch
import io
import json
import secrets
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from minio import MinioAdmin
from minio.commonconfig import ENABLED, CopySource
from minio.error import MinioAdminException
from minio.versioningconfig import VersioningConfig

from storage import MemoryStore
from tests.conftest import S3Bucket
from tests.deploy.conftest import access_denied
from tests.support.internal import FEW_INTERNAL
from tests.support.servers import REPOSITORY, minio_client
from txn_engine.backup import restore
from txn_engine.cli import checkup
from txn_engine.engine import Engine, connect
from txn_engine.quality import Declaration, check_exactly_once
from txn_engine.tables.delta.view import COMMITS_A_CHECKPOINT
from txn_engine.testing import ManualClock

POLICIES = REPOSITORY / "deploy" / "policies"
ROWS = pa.table({"account_id": pa.array(range(8), pa.int64()), "amount": pa.array(range(8), pa.int64())})
DAY_MS = 86_400_000


class PutRecorder(MemoryStore):
    """A store in memory that records each put, and whether the put was conditional on the key being free."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.puts: set[tuple[str, bool]] = set()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.puts.add((key, True))
        return super().put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self.puts.add((key, False))
        super().put(key, data)


def is_allowed(role: str, key: str, *, if_none_match: bool) -> bool:
    """Whether IAM would allow the put with both policies of the role: a statement allows it and none denies it."""
    statements = [
        statement
        for name in (role, f"{role}-creates-only")
        for statement in json.loads((POLICIES / f"{name}.json").read_text())["Statement"]
    ]
    effects = {s["Effect"] for s in statements if _applies(s, key, if_none_match=if_none_match)}
    return effects == {"Allow"}


def _applies(statement: dict[str, Any], key: str, *, if_none_match: bool) -> bool:
    def among(patterns: list[str]) -> bool:
        return any(fnmatch.fnmatchcase(f"arn:aws:s3:::ledger/{key}", pattern) for pattern in patterns)

    if "s3:PutObject" not in statement["Action"]:
        return False
    if not (among(statement["Resource"]) if "Resource" in statement else not among(statement["NotResource"])):
        return False
    for operator, wanted in statement.get("Condition", {}).items():
        assert operator == "Null", "an operator that this test does not know"
        assert list(wanted) == ["s3:if-none-match"]
        if (wanted["s3:if-none-match"] == "true") == if_none_match:
            return False
    return True


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[str, bool]]]:
    """All puts of each role while a store is used: topics, loads, groups, all maintenance, a deletion, `doctor`."""
    roles = {role: PutRecorder("create-only") for role in ("maintainer", "writer")}
    clock = ManualClock()
    with (
        Engine(roles["maintainer"], clock=clock, configs=FEW_INTERNAL) as keeper,
        Engine(roles["writer"], clock=clock) as writer,
    ):
        keeper.admin.create_topic(
            "payments", partitions=1, schema=ROWS.schema, key="account_id", cleanup_policy="compact"
        )
        for _ in range(4):
            for number in range(3):
                load(writer, f"loader-{number}")
            clock.advance(8 * DAY_MS)
            keeper.coordinator.abort_timed_out_transactions()
            keeper.coordinator.write_pending_markers()
            keeper.coordinator.expire_transactional_ids()
            keeper.admin.snapshot()
            jobs = keeper.maintenance
            for job in (jobs.compact, jobs.retain, jobs.seal, jobs.expire_producers, jobs.clean):
                assert not job().failures
            keeper.tables.publish("payments", "delta")
        with writer.producer() as producer:
            for _ in range(COMMITS_A_CHECKPOINT):
                producer.produce("payments", ROWS).result()
                keeper.tables.publish("payments", "delta")
        proof = Declaration("payments", ("account_id",))
        check_exactly_once(keeper, proof, report_folder=tmp_path_factory.mktemp("report"), record=True)
        keeper.admin.add_partitions_to_topic("payments", 3)
        keeper.admin.delete_topic("payments")
    assert {check.mark for check in checkup._proof(roles["maintainer"], writing_needed=True)} == {"✓"}
    return {role: store.puts for role, store in roles.items()}


def load(engine: Engine, transactional_id: str) -> None:
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", ROWS)
            consumer = engine.consumer(group_id="group")
            consumer.subscribe(["payments"])
            consumer.poll(max_records=10)
            consumer.commit()


@pytest.mark.together("puts of each role")
def test_every_put_of_the_engine_is_allowed(lived: dict[str, set[tuple[str, bool]]]) -> None:
    """With both policies attached everything works, including sealing."""
    for role in ("writer", "maintainer"):
        denied = [put for put in lived[role] if not is_allowed(role, put[0], if_none_match=put[1])]
        assert lived[role], role
        assert not denied, role


def test_every_put_in_a_restored_store_is_allowed() -> None:
    """A restored store is in a folder of its own. There, too, both policies let a maintainer do its work, which begins
    by asking the store for its time."""
    places = MemoryStore("create-only-backups"), PutRecorder("create-only-restored")
    with Engine(MemoryStore("create-only-original"), configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=ROWS.schema, key="account_id")
        load(engine, "loader")
        engine.backup(places[0])
    restore(*places)
    places[1].puts.clear()
    with Engine(places[1]) as again:
        load(again, "loader")
        jobs = again.maintenance
        for job in (jobs.compact, jobs.retain, jobs.seal, jobs.expire_producers, jobs.clean):
            assert not job().failures
        again.coordinator.expire_transactional_ids()
    denied = [put for put in places[1].puts if not is_allowed("maintainer", put[0], if_none_match=put[1])]
    assert any(key.startswith("probes/") for key, _ in places[1].puts)
    assert not [put for put in denied if "/data/" not in put[0]]


@pytest.mark.together("puts of each role")
def test_a_writer_overwrites_nothing(lived: dict[str, set[tuple[str, bool]]]) -> None:
    """The engine as a writer overwrites nothing, and nobody with a writer's key could."""
    assert all(asked for _, asked in lived["writer"])
    for key, _ in lived["writer"] | lived["maintainer"]:
        assert not is_allowed("writer", key, if_none_match=False)


@pytest.mark.together("puts of each role")
def test_a_maintainer_overwrites_entries_alone(lived: dict[str, set[tuple[str, bool]]]) -> None:
    """The engine overwrites entries with seals, and tables' hints. A maintainer's key can overwrite nothing else."""
    overwritten = {key for key, asked in lived["maintainer"] if not asked}
    assert {is_overwritten(key) for key in overwritten} == {True}
    assert any(key.endswith("_last_checkpoint") for key in overwritten)
    for key, _ in lived["writer"] | lived["maintainer"]:
        assert is_allowed("maintainer", key, if_none_match=False) == is_overwritten(key)


def is_overwritten(key: str) -> bool:
    return "/log/" in key or key.endswith("_delta_log/_last_checkpoint")


@pytest.mark.minio
@pytest.mark.parametrize("role", ["writer", "maintainer"])
def test_minio_refuses_the_condition(admin: MinioAdmin, role: str) -> None:
    """MinIO does not know the condition, as docs/operations.md says. Once it does, its users need these policies."""
    policy = json.loads((POLICIES / f"{role}-creates-only.json").read_text())
    with pytest.raises(MinioAdminException, match="invalid condition key 's3:if-none-match'"):
        admin.policy_add(f"{role}-creates-only", policy=policy)


@pytest.mark.minio
def test_versioning_keeps_what_a_writer_overwrote(
    admin: MinioAdmin, minio_bucket: S3Bucket, minio_setup: ModuleType
) -> None:
    """`verify` names the overwritten entry. Only an administrator can delete its older version or restore it."""
    root, name = minio_bucket.client(), minio_bucket.name
    root.set_bucket_versioning(name, VersioningConfig(ENABLED))
    keys = {"access_key": minio_bucket.access_key, "secret_key": minio_bucket.secret_key}
    with connect(minio_bucket.url, endpoint=minio_bucket.endpoint, region="us-east-1", **keys) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=ROWS.schema, key="account_id")
        load(engine, "loader")
        entry = "topics/payments/0/0/log/00000000000000000000.parquet"
        access_key, secret_key = secrets.token_hex(8), secrets.token_hex(16)
        minio_setup.add_user(admin, name, "writer", access_key, secret_key)
        thief = minio_client(minio_bucket.endpoint, access_key, secret_key)
        thief.put_object(name, entry, io.BytesIO(b"gone"), 4)
        assert entry in {finding.object for finding in engine.admin.verify().findings}
        now = root.stat_object(name, entry).version_id
        versions = {found.version_id for found in root.list_objects(name, entry, include_version=True)}
        (before,) = versions - {now}
        with access_denied():
            thief.remove_object(name, entry, version_id=before)
        root.copy_object(name, entry, CopySource(name, entry, version_id=before))
        assert not engine.admin.verify().findings
