"""The bucket itself, by minio-py: does it exist, is it versioned, will its rules delete our objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from minio.error import S3Error

from storage.backend import Finding
from storage.errors import AccessDeniedError, StorageError
from storage.s3.config import S3Config
from storage.s3.lifecycle import LifecycleRule, UnreadableRulesError, rules_of
from storage.s3.minio_client import minio_client, minio_error

_LOOK_YOURSELF: Final = "make sure that no rule deletes or archives objects of the store"


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What the bucket is like. `None` where the credentials do not allow to ask.

    versioning: "Enabled", "Suspended" or "Off". With "Enabled" every seal and every clean-up keeps the old version and
    its cost; with "Suspended" those from before are kept. lifecycle_rules: those that are enabled. unread_rules: why
    their list cannot be read.
    """

    url: str
    versioning: str | None
    lifecycle_rules: tuple[LifecycleRule, ...] | None
    unread_rules: str = ""

    @property
    def healthy(self) -> bool:
        """No rule of the bucket deletes or archives the store's objects, as far as could be asked."""
        return not any(rule.danger for rule in self.lifecycle_rules or ())


def inspect_bucket(config: S3Config) -> BucketReport:
    """Return a report on a bucket that exists.

    An unreachable store is StoreUnreachableError within 20 seconds, refused credentials AccessDeniedError.
    """
    client = minio_client(config)
    try:
        versioning = client.versioning(config)
    except AccessDeniedError:
        versioning = None
    text = client.lifecycle(config)
    try:
        rules = None if text is None else rules_of(text, config.prefix)
    except UnreadableRulesError as error:
        return BucketReport(config.url, versioning, None, unread_rules=str(error))
    return BucketReport(config.url, versioning, rules)


def findings(config: S3Config) -> Iterator[Finding]:
    """What the bucket's own settings do to the store. What cannot be asked is a warning: that says nothing of whether
    the engine can work there.
    """
    try:
        report = inspect_bucket(config)
    except StorageError as error:
        yield Finding(
            "lifecycle", "warning", f"versioning and rules were not asked: {error.seen}", _LOOK_YOURSELF
        )
        return
    yield _versioning_found(report)
    yield _lifecycle_found(report)


def _versioning_found(report: BucketReport) -> Finding:
    if report.versioning is None:
        return Finding(
            "versioning", "warning", "the credentials may not ask", "have s3:GetBucketVersioning allowed"
        )
    if report.versioning == "Off":
        return Finding("versioning", "ok", report.versioning)
    if any(rule.old_version_days is not None for rule in report.lifecycle_rules or ()):
        return Finding("versioning", "ok", f"{report.versioning}, and a rule removes noncurrent versions")
    kept = (
        "deleted objects are kept" if report.versioning == "Enabled" else "old versions from before are kept"
    )
    remedy = "fine for safety; add a lifecycle rule for noncurrent versions only, or pay for every version that is kept"
    return Finding("versioning", "warning", f"{report.versioning}: {kept}", remedy)


def _lifecycle_found(report: BucketReport) -> Finding:
    rules = report.lifecycle_rules
    if rules is None:
        why = f": {report.unread_rules}" if report.unread_rules else ""
        return Finding("lifecycle", "warning", f"the rules could not be read{why}", _LOOK_YOURSELF)
    dangerous = [f"{rule.named} {rule.danger}" for rule in rules if rule.danger]
    if dangerous:
        seen = f"{'; '.join(dangerous)}: the log and committed data too"
        return Finding("lifecycle", "failed", seen, "remove the rule, or let it spare the store's prefix")
    unread = [f"{rule.named} has {rule.unread}" for rule in rules if rule.unread]
    if unread:
        return Finding("lifecycle", "warning", f"not known here: {'; '.join(unread)}", _LOOK_YOURSELF)
    return Finding("lifecycle", "ok", "no rule deletes or archives objects of the store")


def create_bucket_if_missing(config: S3Config) -> bool:
    """Make the bucket; True when this call made it, False when it was there. Racing calls are fine."""
    client = minio_client(config)
    try:
        if client.bucket_exists(config.bucket):
            return False
        client.make_bucket(config.bucket, location=config.region)
    except S3Error as error:
        if error.code == "BucketAlreadyOwnedByYou":
            return False
        raise minio_error(error, config) from error
    except Exception as error:
        raise minio_error(error, config) from error
    return True
