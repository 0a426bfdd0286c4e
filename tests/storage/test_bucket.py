from __future__ import annotations

from typing import Any

import pytest
from minio.commonconfig import ENABLED, Filter
from minio.lifecycleconfig import Expiration, LifecycleConfig, NoncurrentVersionExpiration, Rule
from minio.versioningconfig import VersioningConfig

from storage import AccessDeniedError, InvalidStoreUrlError, StoreUnreachableError
from storage.s3.bucket import create_bucket_if_missing, inspect_bucket
from storage.s3.config import S3Config, s3_config
from tests.conftest import S3Bucket


def config_of(bucket: S3Bucket, prefix: str = "", **changes: Any) -> S3Config:
    arguments = {
        "endpoint": bucket.endpoint,
        "access_key": bucket.access_key,
        "secret_key": bucket.secret_key,
    } | changes
    return s3_config(
        changes.pop("name", bucket.name), prefix, **{k: v for k, v in arguments.items() if k != "name"}
    )


@pytest.mark.minio
def test_a_plain_bucket_is_healthy(minio_bucket: S3Bucket) -> None:
    """A fresh bucket exists, is not versioned, has no rules and gives no warnings."""
    report = inspect_bucket(config_of(minio_bucket))
    assert (report.exists, report.versioning, report.lifecycle_rules, report.warnings) == (
        True,
        "Off",
        (),
        (),
    )
    assert report.healthy


@pytest.mark.minio
def test_a_missing_bucket_is_a_report_and_can_be_made(minio_bucket: S3Bucket) -> None:
    """A missing bucket is reported as absent, is created by exactly one call, and then exists."""
    config = config_of(minio_bucket, name=minio_bucket.name + "-new")
    report = inspect_bucket(config)
    assert (report.exists, report.healthy) == (False, False)
    assert create_bucket_if_missing(config) is True
    assert create_bucket_if_missing(config) is False
    assert inspect_bucket(config).healthy


@pytest.mark.minio
@pytest.mark.parametrize(
    ("rule_prefix", "store_prefix", "dangerous"),
    [
        ("", "", True),
        ("", "ledger", True),
        ("led", "ledger", True),
        ("ledger/", "ledger", True),
        ("ledger/topics/", "ledger", True),
        ("ledger2/", "ledger", False),
        ("logs/", "ledger", False),
        ("logs/", "", True),
    ],
)
def test_a_rule_that_deletes_our_objects_is_a_danger(
    minio_bucket: S3Bucket, rule_prefix: str, store_prefix: str, dangerous: bool
) -> None:
    """An expiration rule is dangerous if it covers keys that the store holds."""
    minio_bucket.client().set_bucket_lifecycle(
        minio_bucket.name,
        LifecycleConfig(
            [
                Rule(
                    ENABLED,
                    rule_id="tidy",
                    rule_filter=Filter(prefix=rule_prefix),
                    expiration=Expiration(days=7),
                )
            ]
        ),
    )
    report = inspect_bucket(config_of(minio_bucket, store_prefix))
    assert report.lifecycle_rules is not None
    (rule,) = report.lifecycle_rules
    assert (rule.rule_id, rule.prefix, rule.expires_after_days, rule.dangerous) == (
        "tidy",
        rule_prefix,
        7,
        dangerous,
    )
    assert report.healthy is not dangerous
    assert bool(report.warnings) is dangerous
    assert all("\n" not in warning for warning in report.warnings)


@pytest.mark.minio
def test_versioning_is_told_and_its_clean_up_is_no_danger(minio_bucket: S3Bucket) -> None:
    """Versioning is a warning, because it costs space. A rule that only expires old versions is not
    dangerous."""
    client = minio_bucket.client()
    client.set_bucket_versioning(minio_bucket.name, VersioningConfig(ENABLED))
    client.set_bucket_lifecycle(
        minio_bucket.name,
        LifecycleConfig(
            [
                Rule(
                    ENABLED,
                    rule_id="old",
                    rule_filter=Filter(prefix=""),
                    noncurrent_version_expiration=NoncurrentVersionExpiration(noncurrent_days=1),
                )
            ]
        ),
    )
    report = inspect_bucket(config_of(minio_bucket))
    assert (report.versioning, report.lifecycle_rules, report.healthy) == ("Enabled", (), True)
    assert len(report.warnings) == 1


@pytest.mark.minio
def test_wrong_credentials(minio_bucket: S3Bucket) -> None:
    """A wrong secret is AccessDeniedError without the secret in it."""
    for call in (inspect_bucket, create_bucket_if_missing):
        with pytest.raises(AccessDeniedError) as caught:
            call(config_of(minio_bucket, secret_key="wrongwrongwrong"))
        assert "wrongwrong" not in str(caught.value)


def test_a_store_that_nobody_listens_for_is_unreachable() -> None:
    """A refused connection is StoreUnreachableError."""
    config = s3_config("bucket", endpoint="http://127.0.0.1:1", access_key="a", secret_key="b")
    for call in (inspect_bucket, create_bucket_if_missing):
        with pytest.raises(StoreUnreachableError):
            call(config)


def test_a_name_minio_cannot_use_is_an_invalid_url() -> None:
    """A bucket name that minio-py refuses is InvalidStoreUrlError."""
    config = s3_config("bad..name", endpoint="http://127.0.0.1:1", access_key="a", secret_key="b")
    with pytest.raises(InvalidStoreUrlError):
        inspect_bucket(config)
