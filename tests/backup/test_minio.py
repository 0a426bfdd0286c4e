"""Backups work on a real S3 server, from one bucket to another, by users with nothing but the documented
policies."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest
from minio import MinioAdmin
from minio.error import S3Error

from storage import open_store
from storage.store import ObjectStore
from tests.backup.conftest import SCHEMA, has_committed, load
from tests.conftest import S3Bucket, fresh_bucket
from tests.deploy.conftest import admin, minio_setup
from tests.support.internal import FEW_INTERNAL
from tests.support.refusals import refused
from tests.support.servers import MinioServer
from tests.support.stores import accounts_in
from txn_engine import Engine, connect
from txn_engine.backup import check_backup, prune, restore
from txn_engine.errors import InvalidRequestError, StoreAccessError
from txn_engine.reasons import Reason

pytestmark = [pytest.mark.minio]

__all__ = ["admin", "minio_setup"]


def store_in(bucket: S3Bucket, as_user: S3Bucket | None = None) -> ObjectStore:
    user = as_user or bucket
    return open_store(
        bucket.url,
        endpoint=bucket.endpoint,
        access_key=user.access_key,
        secret_key=user.secret_key,
        region="us-east-1",
    )


def engine_in(bucket: S3Bucket, as_user: S3Bucket | None = None) -> Engine:
    user = as_user or bucket
    keys = {"access_key": user.access_key, "secret_key": user.secret_key}
    return connect(bucket.url, endpoint=bucket.endpoint, region="us-east-1", configs=FEW_INTERNAL, **keys)


@pytest.fixture
def ledger(minio_bucket: S3Bucket) -> Iterator[Engine]:
    with engine_in(minio_bucket) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        load(engine, "one", 1, 2)
        yield engine


def test_from_bucket_to_bucket(ledger: Engine, minio_server: MinioServer) -> None:
    """Two backups go into a bucket of their own, and are restored into a third bucket."""
    backups, target = fresh_bucket(minio_server), fresh_bucket(minio_server)
    first = ledger.backup(store_in(backups))
    load(ledger, "two", 3)
    second = ledger.backup(store_in(backups))
    assert (first.counts.new_files, second.counts.new_files, second.counts.files) == (2, 2, 4)
    assert not check_backup(store_in(backups)).damaged
    restore(store_in(backups), store_in(target))
    with engine_in(target) as again:
        assert accounts_in(again) == [1, 1, 2, 2, 3, 3]
        assert has_committed(again, "loader", "one", "two", "three") == [True, True, False]
        assert not again.admin.verify().findings


def user_with(roles: tuple[tuple[str, S3Bucket], ...], admin: MinioAdmin, minio_setup) -> S3Bucket:
    """A user with these policies on these buckets, and no other rights."""
    key, secret = f"keeper-{secrets.token_hex(4)}", secrets.token_hex(16)
    statements = [
        each for role, bucket in roles for each in minio_setup.policy_of(role, bucket.name)["Statement"]
    ]
    for number, each in enumerate(statements):
        each["Sid"] = f"S{number}"
    admin.policy_add(key, policy={"Version": "2012-10-17", "Statement": statements})
    admin.user_add(key, secret)
    admin.policy_set(key, user=key)
    return S3Bucket(roles[0][1].name, roles[0][1].endpoint, key, secret)


def test_no_store_inside_another_prefix(ledger: Engine, minio_server: MinioServer) -> None:
    """In a bucket, too, no store is set up or restored inside another one's prefix, or around one."""
    bucket, backups = fresh_bucket(minio_server), fresh_bucket(minio_server)
    ledger.backup(store_in(backups))
    engine_in(replace(bucket, name=f"{bucket.name}/a/ledger")).close()
    for inside in ("a/ledger/inner", "a/ledger/x/inner"):
        place = replace(bucket, name=f"{bucket.name}/{inside}")
        with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
            engine_in(place)
        with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
            restore(store_in(backups), store_in(place))
    around = replace(bucket, name=f"{bucket.name}/a")
    with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
        engine_in(around)
    with refused(InvalidRequestError, Reason.PLACES_OVERLAP):
        restore(store_in(backups), store_in(around))
    restore(store_in(backups), store_in(replace(bucket, name=f"{bucket.name}/a/ledger-2")))


def test_who_backs_up_deletes_nothing(
    ledger: Engine, minio_bucket: S3Bucket, minio_server: MinioServer, admin: MinioAdmin, minio_setup
) -> None:
    """The role `backups` on the bucket of the backups suffices for backups, checks and restores, and cannot delete."""
    backups, target = fresh_bucket(minio_server), fresh_bucket(minio_server)
    roles = (("maintainer", minio_bucket), ("maintainer", target), ("backups", backups))
    user = user_with(roles, admin, minio_setup)
    with engine_in(minio_bucket, user) as engine:
        engine.backup(store_in(backups, user))
        load(engine, "two", 3)
        engine.backup(store_in(backups, user))
    assert not check_backup(store_in(backups, user)).damaged
    restore(store_in(backups, user), store_in(target, user))
    with engine_in(target, user) as again:
        assert accounts_in(again) == [1, 1, 2, 2, 3, 3]
    client = S3Bucket(backups.name, backups.endpoint, user.access_key, user.secret_key).client()
    for found in backups.client().list_objects(backups.name, recursive=True):
        with pytest.raises(S3Error, check=lambda error: error.code == "AccessDenied"):
            client.remove_object(backups.name, str(found.object_name))
    with pytest.raises(StoreAccessError):
        prune(store_in(backups, user), keep=1, execute=True)
    assert not check_backup(store_in(backups, user), 1).damaged


def test_who_prunes_makes_no_backup(
    ledger: Engine, minio_server: MinioServer, admin: MinioAdmin, minio_setup
) -> None:
    """The role `pruner` on the bucket of the backups suffices for pruning. Later backups use a new folder."""
    backups, target = fresh_bucket(minio_server), fresh_bucket(minio_server)
    user = user_with((("pruner", backups),), admin, minio_setup)
    ledger.backup(store_in(backups))
    load(ledger, "two", 3)
    ledger.backup(store_in(backups))
    assert prune(store_in(backups, user), keep=1, execute=True).removed == (0,)
    load(ledger, "three", 4)
    with pytest.raises(StoreAccessError):
        ledger.backup(store_in(backups, user))
    assert ledger.backup(store_in(backups)).counts.new_files == 2
    assert prune(store_in(backups, user), keep=1, execute=True).removed == (1,)
    assert not check_backup(store_in(backups)).damaged
    restore(store_in(backups), store_in(target))
    with engine_in(target) as again:
        assert accounts_in(again) == [1, 1, 2, 2, 3, 3, 4, 4]
