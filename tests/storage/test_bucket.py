from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from typing import Any

import pytest
from minio import Minio
from minio.commonconfig import ENABLED, Filter
from minio.error import S3Error
from minio.lifecycleconfig import Expiration, LifecycleConfig, Rule
from minio.versioningconfig import SUSPENDED, VersioningConfig

from storage import AccessDeniedError, BucketNotFoundError, InvalidStoreUrlError, StoreUnreachableError
from storage.s3 import S3Store
from storage.s3.bucket import create_bucket_if_missing, findings, inspect_bucket
from storage.s3.config import S3Config, s3_config
from storage.s3.lifecycle import UnreadableRulesError, rules_of
from tests.conftest import S3Bucket
from tests.storage.odd_server import OddServer


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
    """A fresh bucket is not versioned and has no rules."""
    report = inspect_bucket(config_of(minio_bucket))
    assert (report.versioning, report.lifecycle_rules) == ("Off", ())
    assert report.healthy


@pytest.mark.minio
def test_a_missing_bucket_is_an_error_and_can_be_made(minio_bucket: S3Bucket) -> None:
    """A missing bucket is an error, is created by exactly one call, and then exists."""
    config = config_of(minio_bucket, name=minio_bucket.name + "-new")
    with pytest.raises(BucketNotFoundError):
        inspect_bucket(config)
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
    assert (rule.rule_id, bool(rule.danger)) == ("tidy", dangerous)
    assert report.healthy is not dangerous


NONCURRENT = "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"
DAYS = "<Expiration><Days>7</Days></Expiration>"
TAG = "<Tag><Key>k</Key><Value>v</Value></Tag>"


def configuration(*rules: str) -> str:
    """A lifecycle configuration of enabled rules, numbered as their ids."""
    held = "".join(
        f"<Rule><ID>{at}</ID><Status>Enabled</Status>{rule}</Rule>" for at, rule in enumerate(rules)
    )
    return f"<LifecycleConfiguration>{held}</LifecycleConfiguration>"


def set_rules(bucket: S3Bucket, text: str) -> None:
    """Put the configuration as it is written: minio-py makes only some of what servers take."""
    digest = base64.b64encode(hashlib.md5(text.encode(), usedforsecurity=False).digest()).decode()
    bucket.client()._execute(
        "PUT",
        bucket.name,
        body=text.encode(),
        headers={"Content-MD5": digest, "Content-Length": str(len(text))},
        query_params={"lifecycle": ""},
    )


@pytest.mark.minio
@pytest.mark.parametrize(
    "rule",
    [
        f"<Filter></Filter>{NONCURRENT}",
        f"<Filter><And><Prefix></Prefix>{TAG}</And></Filter>{DAYS}",
        f"<Filter>{TAG}</Filter>{DAYS}",
        f"<Filter><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></Filter>{NONCURRENT}",
        "<Filter></Filter><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
        "<Filter></Filter><DelMarkerExpiration><Days>3</Days></DelMarkerExpiration>",
        f"<Filter><Prefix>elsewhere/</Prefix></Filter>{DAYS}",
    ],
)
def test_rules_that_spare_our_objects(minio_bucket: S3Bucket, rule: str) -> None:
    """Rules for old versions, delete markers, other prefixes and tags are no danger, in every form that a server takes.
    The rule that the advice on versioning asks for ends that advice."""
    minio_bucket.client().set_bucket_versioning(minio_bucket.name, VersioningConfig(ENABLED))
    set_rules(minio_bucket, configuration(rule))
    config = config_of(minio_bucket, "ledger")
    report = inspect_bucket(config)
    assert report.healthy
    found = {each.name: each for each in findings(config)}
    assert found["lifecycle"].status == "ok"
    assert found["versioning"].status == ("ok" if rule == f"<Filter></Filter>{NONCURRENT}" else "warning")


@pytest.mark.parametrize(
    ("rules", "dangers"),
    [
        ([DAYS], ["deletes after 7 days every object"]),
        (
            ["<Expiration><Date>2026-12-24T00:00:00Z</Date></Expiration>"],
            ["deletes on 2026-12-24 every object"],
        ),
        (
            ["<Prefix>led</Prefix><Expiration><Days>1</Days></Expiration>"],
            ["deletes after 1 day objects below 'led'"],
        ),
        (
            [
                "<Filter/><Transition><Days>30</Days><StorageClass>GLACIER</StorageClass></Transition>",
                "<Filter/><Transition><Days>0</Days><StorageClass>DEEP_ARCHIVE</StorageClass></Transition>",
            ],
            [
                "moves to GLACIER after 30 days every object",
                "moves to DEEP_ARCHIVE after 0 days every object",
            ],
        ),
        (
            [f"<Filter><ObjectSizeGreaterThan>9</ObjectSizeGreaterThan></Filter>{DAYS}"],
            ["deletes after 7 days every object of more than 9 bytes"],
        ),
        ([f"<Filter>{TAG}</Filter>{DAYS}", f"<Filter><Prefix>x/</Prefix></Filter>{DAYS}"], ["", ""]),
        (["<Filter/><Transition><Days>3</Days><StorageClass>STANDARD_IA</StorageClass></Transition>"], [""]),
        (["<Filter/><Transition><Days>3</Days><StorageClass>GLACIER_IR</StorageClass></Transition>"], [""]),
    ],
)
def test_what_rules_do_to_our_objects(rules: list[str], dangers: list[str]) -> None:
    """A rule is judged by what it does to current objects of the store, and each rule is reported."""
    assert [rule.danger for rule in rules_of(configuration(*rules).encode(), "ledger")] == dangers


def test_rules_that_are_not_known_here() -> None:
    """An unknown part of a rule is reported as unknown. A rule that is not enabled does nothing."""
    unknown = configuration(
        "<Shred/>", "<Filter><Colour/></Filter>", "<Expiration><Moons>3</Moons></Expiration>"
    )
    assert [rule.unread for rule in rules_of(unknown.encode(), "")] == ["<Shred>", "<Colour>", "<Moons>"]
    assert rules_of(configuration(DAYS).replace("Enabled", "Disabled").encode(), "") == ()
    for text in (b"", b"<html>", b"<Error/>", b" " * (1 << 21)):
        with pytest.raises(UnreadableRulesError):
            rules_of(text, "")


def test_a_configuration_that_cannot_be_read() -> None:
    """An answer that is no configuration is a warning, and the report goes on."""

    def at(endpoint: str) -> S3Store:
        return S3Store(s3_config("bucket", endpoint=endpoint, access_key="a", secret_key="b"))

    versioning = b"<VersioningConfiguration/>"
    with OddServer((200, versioning), (200, b"<html></html>"), store=at) as server:
        found = {each.name: each for each in findings(server.store.config)}
    assert (found["lifecycle"].status, found["versioning"].status) == ("warning", "ok")


@pytest.mark.minio
def test_wrong_credentials(minio_bucket: S3Bucket) -> None:
    """A wrong secret is AccessDeniedError without the secret in it. It can ask for nothing of the bucket."""
    config = config_of(minio_bucket, secret_key="wrongwrongwrong")
    with pytest.raises(AccessDeniedError) as caught:
        create_bucket_if_missing(config)
    assert "wrongwrong" not in str(caught.value)
    report = inspect_bucket(config)
    assert (report.versioning, report.lifecycle_rules) == (None, None)


@pytest.mark.minio
@pytest.mark.parametrize("refused_by", ["versioning", "lifecycle"])
def test_keys_that_are_exchanged_meanwhile(
    minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, refused_by: str
) -> None:
    """A question that is refused is asked again with the keys that stand in the environment by then."""
    expired = (minio_bucket.access_key, "a-secret-that-has-expired", None)
    right = (minio_bucket.access_key, minio_bucket.secret_key, None)
    keys = {"now": expired if refused_by == "versioning" else right}
    config = replace(config_of(minio_bucket), access_key=None, secret_key=None, provider=lambda: keys["now"])
    asked = Minio._execute

    def exchanged(client: Minio, *arguments: Any, **options: Any) -> Any:
        try:
            answer = asked(client, *arguments, **options)
        except S3Error:
            keys["now"] = right
            raise
        keys["now"] = expired if refused_by == "lifecycle" else right
        return answer

    monkeypatch.setattr(Minio, "_execute", exchanged)
    report = inspect_bucket(config)
    assert (report.versioning, report.lifecycle_rules) == ("Off", ())


@pytest.mark.minio
def test_versioning_that_is_suspended(minio_bucket: S3Bucket) -> None:
    """A bucket that kept versions once keeps them still, and the report warns of that."""
    client = minio_bucket.client()
    for status in (ENABLED, SUSPENDED):
        client.set_bucket_versioning(minio_bucket.name, VersioningConfig(status))
    found = {each.name: each.status for each in findings(config_of(minio_bucket))}
    assert found["versioning"] == "warning"
    set_rules(minio_bucket, configuration(f"<Filter></Filter>{NONCURRENT}"))
    found = {each.name: each.status for each in findings(config_of(minio_bucket))}
    assert found["versioning"] == "ok"


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
