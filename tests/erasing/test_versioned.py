"""Erasures in buckets that keep what is deleted, on a real MinIO: the report names it, and says until when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from minio.commonconfig import DISABLED, ENABLED, GOVERNANCE, Filter
from minio.lifecycleconfig import LifecycleConfig, NoncurrentVersionExpiration, Rule
from minio.objectlockconfig import DAYS, ObjectLockConfig
from minio.versioningconfig import SUSPENDED, VersioningConfig

from storage import AccessDeniedError, StorageError, StoreUnreachableError
from storage.s3 import S3Store
from storage.s3.minio_client import BucketClient
from tests.backup.conftest import SCHEMA, load
from tests.backup.test_minio import engine_in
from tests.conftest import S3Bucket
from tests.support.servers import MinioServer
from tests.support.stores import accounts_in
from txn_engine import Engine
from txn_engine.erasing import ErasureReport

pytestmark = [pytest.mark.minio]


@pytest.fixture
def ledger(minio_bucket: S3Bucket) -> Iterator[Engine]:
    with engine_in(minio_bucket) as engine:
        yield engine


def loaded(engine: Engine) -> None:
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    load(engine, "one", 1, 2)


def erased(engine: Engine) -> ErasureReport:
    return engine.erase("payments", "account_id = 1", execute=True)


def remove_old_versions(bucket: S3Bucket) -> int:
    """Delete every version that is not the newest, as an administrator would; how many had records."""
    client, removed = bucket.client(), 0
    for each in list(client.list_objects(bucket.name, recursive=True, include_version=True)):
        if str(each.is_latest).lower() != "true":
            client.remove_object(bucket.name, str(each.object_name), version_id=each.version_id)
            removed += "/data/" in str(each.object_name) and not each.is_delete_marker
    return removed


def test_a_bucket_without_versions(ledger: Engine) -> None:
    """Where nothing is kept, an erasure is complete."""
    loaded(ledger)
    assert ledger.erase("payments", "account_id = 1").still_held == ()
    assert erased(ledger).is_complete


@pytest.mark.parametrize("is_suspended", [False, True])
def test_old_versions_hold_what_was_erased(
    ledger: Engine, minio_bucket: S3Bucket, is_suspended: bool
) -> None:
    """The look and the erasure name the old versions. Once an administrator has removed them, nothing is named."""
    client = minio_bucket.client()
    client.set_bucket_versioning(minio_bucket.name, VersioningConfig(ENABLED))
    loaded(ledger)
    look = ledger.erase("payments", "account_id = 1")
    assert [each.records for each in look.still_held] == [2]
    first = erased(ledger)
    assert accounts_in(ledger) == [2, 2]
    (held,) = first.still_held
    assert held.place.startswith("2 old versions of data files")
    assert not first.is_complete
    if is_suspended:
        client.set_bucket_versioning(minio_bucket.name, VersioningConfig(SUSPENDED))
        (held,) = erased(ledger).still_held
        assert "Suspended" in held.place
    assert remove_old_versions(minio_bucket) == 2
    assert erased(ledger).is_complete


def test_until_when_they_are_kept(
    ledger: Engine, minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule for noncurrent versions is named with its days. A rule that is disabled is not. Where nobody may ask, the
    report does not say that there is none."""
    client = minio_bucket.client()
    client.set_bucket_versioning(minio_bucket.name, VersioningConfig(ENABLED))
    loaded(ledger)
    said = []
    for status, days in ((DISABLED, 3), (ENABLED, 9)):
        ends = NoncurrentVersionExpiration(noncurrent_days=days)
        rule = Rule(status, rule_id="old", rule_filter=Filter(prefix=""), noncurrent_version_expiration=ends)
        client.set_bucket_lifecycle(minio_bucket.name, LifecycleConfig([rule]))
        (held,) = erased(ledger).still_held
        said.append(held.until)
    assert "no lifecycle rule" in said[0]
    assert "9 days" in said[1]
    monkeypatch.setattr(BucketClient, "lifecycle", lambda *_: None)  # as where the key may not ask
    (held,) = erased(ledger).still_held
    assert held.until not in said
    assert "no lifecycle rule" not in held.until


def test_a_bucket_that_locks_what_is_put(minio_server: MinioServer) -> None:
    """In a bucket with Object Lock and a default retention everything works, and an erasure says how long it holds."""
    bucket = S3Bucket("locked-ledger", minio_server.url, minio_server.access_key, minio_server.secret_key)
    client = bucket.client()
    client.make_bucket(bucket.name, object_lock=True)
    client.set_object_lock_config(bucket.name, ObjectLockConfig(GOVERNANCE, 5, DAYS))
    with engine_in(bucket) as engine:
        loaded(engine)
        assert accounts_in(engine) == [1, 1, 2, 2]
        engine.admin.snapshot("payments")
        (held,) = erased(engine).still_held
        assert "5 days" in held.until
        assert accounts_in(engine) == [2, 2]
        assert not engine.admin.verify().findings


@pytest.mark.parametrize("kind", [AccessDeniedError, StoreUnreachableError, StorageError])
def test_versions_that_cannot_be_asked_for(
    ledger: Engine, monkeypatch: pytest.MonkeyPatch, kind: type[StorageError]
) -> None:
    """If nobody can say whether old versions are kept, the report says so, and the erasure is not called complete."""
    loaded(ledger)

    def denied(_: S3Store) -> None:
        raise kind("no", action="have s3:GetBucketVersioning allowed on the bucket")

    monkeypatch.setattr(S3Store, "kept_versions", denied)
    (held,) = erased(ledger).still_held
    assert "s3:GetBucketVersioning" in held.until
