"""The policy files of deploy/policies on a real MinIO, with users who have no other rights."""

from __future__ import annotations

import io
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from minio import MinioAdmin

from tests.conftest import S3Bucket, fresh_bucket
from tests.deploy.conftest import SETUP, access_denied
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.servers import MinioServer, minio_client
from txn_engine import Engine, connect
from txn_engine.clock import system_clock
from txn_engine.errors import TxnEngineError
from txn_engine.quality import Declaration, check_exactly_once

pytestmark = [pytest.mark.minio]

ROWS = pa.table({"account_id": pa.array(range(8), pa.int64())})
PROOF = Declaration("payments", ("account_id",))
DENIED = "CLUSTER_AUTHORIZATION_FAILED"

As = Callable[[str], S3Bucket]
"""The bucket as a user of that role gets at it."""


@pytest.fixture
def as_role(admin: MinioAdmin, minio_bucket: S3Bucket, minio_setup: ModuleType) -> As:
    def user(role: str) -> S3Bucket:
        access_key, secret_key = f"{role}-{secrets.token_hex(4)}", secrets.token_hex(16)
        minio_setup.add_user(admin, minio_bucket.name, role, access_key, secret_key)
        return S3Bucket(minio_bucket.name, minio_bucket.endpoint, access_key, secret_key)

    return user


def engine_as(
    bucket: S3Bucket, *, hours_later: int = 0, configs: Mapping[str, object] | None = None
) -> Engine:
    """The bucket's engine, with a clock this much ahead. `configs` are the settings of a store that does not
    exist yet."""
    keys = {"access_key": bucket.access_key, "secret_key": bucket.secret_key}
    clock = lambda: system_clock() + hours_later * 3_600_000  # noqa: E731
    return connect(
        bucket.url, endpoint=bucket.endpoint, region="us-east-1", clock=clock, configs=configs, **keys
    )


@pytest.fixture
def maintained(as_role: As) -> Iterator[Engine]:
    """A store that the maintainer set up in an empty bucket, with a topic."""
    with engine_as(as_role("maintainer"), configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=ROWS.schema, key="account_id")
        yield engine


def produce(engine: Engine, transactional_id: str) -> None:
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", ROWS)


def keys_of(bucket: S3Bucket, part: str) -> list[str]:
    objects = bucket.client().list_objects(bucket.name, recursive=True)
    return [str(found.object_name) for found in objects if part in str(found.object_name)]


def assert_denied(error: pytest.ExceptionInfo[TxnEngineError]) -> None:
    assert error.value.code == DENIED, str(error.value)


def test_reader_reads_and_writes_nothing(as_role: As, maintained: Engine, tmp_path: Path) -> None:
    produce(maintained, "loader")
    with engine_as(as_role("reader")) as engine:
        assert engine.scan("payments").to_table().num_rows == 8
        assert engine.sql("SELECT * FROM payments").num_rows == 8
        assert not engine.admin.verify().findings
        assert check_exactly_once(engine, PROOF, report_folder=tmp_path).success
        with pytest.raises(TxnEngineError) as error:
            check_exactly_once(engine, PROOF, report_folder=tmp_path, record=True)
        assert_denied(error)
        with pytest.raises(TxnEngineError) as error:
            produce(engine, "intruder")
        assert_denied(error)
        with pytest.raises(TxnEngineError) as error:
            engine.admin.create_topic("mine", partitions=1)
        assert_denied(error)


def test_writer_produces_and_consumes_but_makes_no_topic_and_deletes_nothing(
    as_role: As, maintained: Engine
) -> None:
    bucket = as_role("writer")
    with engine_as(bucket) as engine:
        produce(engine, "loader")
        consumer = engine.consumer(group_id="readers")
        consumer.subscribe(["payments"])
        table = consumer.poll(max_records=100)
        assert table is not None
        assert table.num_rows == 8
        consumer.commit()
        with pytest.raises(TxnEngineError) as error:
            engine.admin.create_topic("mine", partitions=1)
        assert_denied(error)
        cut = maintained.cut()
        for topic, setting in (("payments", "retention.ms"), (None, "transaction.max.timeout.ms")):
            with pytest.raises(TxnEngineError) as error:
                engine.admin.alter_configs({setting: 5}, topic=topic)
            assert_denied(error)
        for publish in (engine.tables.publish, engine.tables.unpublish):
            maintained.tables.publish("payments", "delta", cut=cut)
            produce(maintained, "other")
            cut = maintained.cut()
            with pytest.raises(TxnEngineError) as error:
                publish("payments", **({"cut": cut} if publish == engine.tables.publish else {}))
            assert_denied(error)
    for part in ("/log/", "/data/"):
        with access_denied():
            bucket.client().remove_object(bucket.name, keys_of(bucket, part)[0])


def run_every_job(engine: Engine) -> None:
    """What the DAGs of the coordinator and of maintenance call."""
    engine.coordinator.abort_timed_out_transactions()
    engine.coordinator.write_pending_markers()
    engine.coordinator.expire_transactional_ids()
    assert engine.admin.snapshot("payments")
    jobs = engine.maintenance
    for job in (jobs.compact, jobs.retain, jobs.seal, jobs.expire_producers, jobs.clean):
        assert not job().failures


# the policy with the statement, which allows more, is tried in the shard
@pytest.mark.parametrize("removes", in_shard("machine", [False, True], keep=1))
def test_maintainer_does_every_job(
    admin: MinioAdmin,
    as_role: As,
    minio_bucket: S3Bucket,
    minio_setup: ModuleType,
    tmp_path: Path,
    removes: bool,
) -> None:
    """The maintainer runs sweeps, snapshots and maintenance, also without `RemoveDeletedTopics`. No role deletes what
    the coordinator needs. Without the statement no entry of any log, or version of a table, can be deleted.
    """
    bucket = as_role("maintainer")
    policy = minio_setup.policy_of("maintainer", minio_bucket.name)
    kept = [each for each in policy["Statement"] if each["Sid"] != "RemoveDeletedTopics"]
    (left_out,) = [each for each in policy["Statement"] if each not in kept]
    assert left_out["Effect"] == "Allow"
    if not removes:
        name = f"keeps-logs-{minio_bucket.name}"
        admin.policy_add(name, policy={**policy, "Statement": kept})
        admin.policy_set(name, user=bucket.access_key)
    with engine_as(bucket, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=ROWS.schema, key="account_id")
        use_everything(engine, tmp_path)
    assert not keys_of(bucket, "probes/"), "the probe's objects are removed again"
    bucket.client().remove_object(bucket.name, keys_of(bucket, "/snapshots/")[0])
    denied = [
        "topics/__transaction_state/",
        "topics/payments/0.json",
        "store.json",
        "producer_ids/",
        "proofs/",
        "cuts/",
        "settings/",
    ]
    if not removes:
        denied += ["topics/payments/0/0/log/", "/_delta_log/", "/iceberg/metadata/v"]
    for part in denied:
        with access_denied():
            bucket.client().remove_object(bucket.name, keys_of(bucket, part)[0])


def use_everything(engine: Engine, folder: Path) -> None:
    """Make every call that a maintainer needs."""
    for number in range(3):
        produce(engine, f"loader-{number}")
    run_every_job(engine)
    assert engine.admin.alter_configs({"retention.ms": 10**12}, topic="payments").version == 1
    assert engine.admin.alter_configs({"transaction.max.timeout.ms": 10**6}).version == 1
    made = engine.cut()
    assert engine.scan("payments", cut=made).files()
    engine.delete_cut(made)
    for _ in range(2):
        assert set(engine.tables.publish("payments")) == {"delta", "iceberg"}
        produce(engine, "loader-0")
    assert engine.tables.unpublish("payments") == ["delta", "iceberg"]
    engine.tables.publish("payments")
    assert not engine.maintenance.remove_deleted_topics().failures
    assert check_exactly_once(engine, PROOF, report_folder=folder, record=True).proof is not None


@pytest.fixture
def deleted_topic(maintained: Engine, minio_bucket: S3Bucket) -> list[str]:
    """The keys of a topic with entries, data, a snapshot and more partitions than at first, which was deleted."""
    maintained.admin.create_topic("gone", partitions=1, schema=ROWS.schema, key="account_id")
    with maintained.producer() as producer:
        producer.produce("gone", ROWS)
    assert maintained.admin.snapshot("gone")
    maintained.admin.add_partitions_to_topic("gone", 2)
    maintained.admin.alter_configs({"retention.ms": 10**12}, topic="gone")
    maintained.tables.publish("gone")
    maintained.admin.delete_topic("gone")
    left = keys_of(minio_bucket, "topics/gone/0/")
    for part in (
        "/log/",
        "/data/",
        "/snapshots/",
        "/partitions/",
        "/changes/",
        "/published/delta/",
        "/published/iceberg/",
        "/_delta_log/",
        "/iceberg/",
    ):
        assert any(part in key for key in left), part
    return left


@pytest.mark.shard("machine")
def test_only_the_maintainer_removes_a_deleted_topic_after_a_day(
    as_role: As, minio_bucket: S3Bucket, deleted_topic: list[str]
) -> None:
    for role in ("reader", "writer"):
        with engine_as(as_role(role), hours_later=25) as engine:
            with pytest.raises(TxnEngineError) as error:
                engine.maintenance.remove_deleted_topics()
            assert_denied(error)
        assert keys_of(minio_bucket, "topics/gone/0/") == deleted_topic
    user = as_role("maintainer")
    with engine_as(user, hours_later=23) as engine:
        assert engine.maintenance.remove_deleted_topics().partitions == ()
    with engine_as(user, hours_later=25) as engine:
        (removed,) = engine.maintenance.remove_deleted_topics().partitions
        assert (removed.topic, removed.objects) == ("gone", len(deleted_topic))
        assert engine.maintenance.remove_deleted_topics().partitions == ()
        assert not engine.admin.verify().findings
    assert keys_of(minio_bucket, "topics/gone/0/") == []


@pytest.mark.parametrize("role", ["reader", "writer", "maintainer"])
def test_no_role_sees_another_bucket(role: str, as_role: As, minio_server: MinioServer) -> None:
    other, user = fresh_bucket(minio_server), as_role(role)
    other.client().put_object(other.name, "topics/x/0/0/log/1", io.BytesIO(b"secret"), 6)
    client = minio_client(other.endpoint, user.access_key, user.secret_key)
    with access_denied():
        list(client.list_objects(other.name))
    with access_denied():
        client.get_object(other.name, "topics/x/0/0/log/1")


def test_setup_of_the_deployment(minio_server: MinioServer) -> None:
    """The command of `store-setup` may run twice. The bucket then exists, and the user can set up a store in
    it."""
    bucket, access_key, secret_key = (secrets.token_hex(8) for _ in range(3))
    environment = {
        "MINIO_ENDPOINT": minio_server.url.removeprefix("http://"),
        "MINIO_ROOT_USER": minio_server.access_key,
        "MINIO_ROOT_PASSWORD": minio_server.secret_key,
        "TXN_ENGINE_BUCKET": bucket,
        "TXN_ENGINE_ACCESS_KEY": access_key,
        "TXN_ENGINE_SECRET_KEY": secret_key,
    }
    for _ in range(2):
        subprocess.run([sys.executable, SETUP], env={**os.environ, **environment}, check=True, timeout=60)
    with engine_as(S3Bucket(bucket, minio_server.url, access_key, secret_key)) as engine:
        assert engine.admin.list_topics() == []
