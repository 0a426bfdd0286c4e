"""The bucket itself, by minio-py: does it exist, is it versioned, will its rules delete our objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from minio import Minio
from minio.error import S3Error

from storage.backend import Finding
from storage.s3.config import S3Config
from storage.s3.minio_client import DENIED_CODES, minio_client, minio_error


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """One enabled rule that removes objects. `prefix` is what it covers; `dangerous` when that touches the
    store.
    """

    rule_id: str
    prefix: str
    expires_after_days: int | None
    dangerous: bool


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What the bucket is like. `None` where the credentials do not allow to ask.

    versioning: "Enabled", "Suspended" or "Off". With "Enabled" every seal and every clean-up keeps the old
    version and its cost. warnings: one line each, for a person to act on.
    """

    url: str
    exists: bool
    versioning: str | None
    lifecycle_rules: tuple[LifecycleRule, ...] | None
    warnings: tuple[str, ...] = field(default=())

    @property
    def healthy(self) -> bool:
        """The bucket is there and nothing in it deletes the store's objects, as far as could be asked."""
        return self.exists and not any(rule.dangerous for rule in self.lifecycle_rules or ())


def inspect_bucket(config: S3Config) -> BucketReport:
    """Return a report on the bucket; a missing one is a report too.

    An unreachable store is StoreUnreachableError within 20 seconds, refused credentials AccessDeniedError.
    """
    client = minio_client(config)
    try:
        exists = client.bucket_exists(config.bucket)
    except Exception as error:
        raise minio_error(error, config) from error
    if not exists:
        return BucketReport(config.url, False, None, None, (f"there is no bucket {config.bucket!r}",))
    versioning = _versioning(client, config)
    rules = _lifecycle_rules(client, config)
    warnings = [_danger(rule) for rule in rules or () if rule.dangerous]
    if versioning == "Enabled":
        warnings.append(
            "versioning keeps every sealed and deleted object; add a rule for noncurrent versions only"
        )
    if rules is None:
        warnings.append(
            "the lifecycle rules could not be read: make sure that none expires objects of the store"
        )
    return BucketReport(config.url, True, versioning, rules, tuple(warnings))


def findings(report: BucketReport, config: S3Config) -> Iterator[Finding]:
    """The report line by line, up to the first thing without which nothing works."""
    yield Finding("reachable", "ok", "the store answers")
    if not report.exists:
        yield Finding(
            "bucket", "failed", f"there is no bucket {config.bucket!r}", "create it, or mend the URL"
        )
        return
    yield Finding("bucket", "ok", config.bucket)
    yield _versioning_found(report)
    yield _lifecycle_found(report)


def _versioning_found(report: BucketReport) -> Finding:
    if report.versioning is None:
        return Finding(
            "versioning", "warning", "the credentials may not ask", "have s3:GetBucketVersioning allowed"
        )
    if report.versioning == "Enabled":
        remedy = "fine for safety; add a lifecycle rule for noncurrent versions only, or pay for every deleted object"
        return Finding("versioning", "warning", "Enabled: deleted objects are kept", remedy)
    return Finding("versioning", "ok", report.versioning)


def _lifecycle_found(report: BucketReport) -> Finding:
    if report.lifecycle_rules is None:
        return Finding(
            "lifecycle",
            "warning",
            "the rules could not be read",
            "make sure that no rule expires objects of the store",
        )
    dangerous = [rule for rule in report.lifecycle_rules if rule.dangerous]
    if dangerous:
        warning = next((text for text in report.warnings if text.startswith("lifecycle rule")), "")
        return Finding("lifecycle", "failed", warning, "remove the rule before it deletes committed data")
    return Finding("lifecycle", "ok", "no rule deletes objects of the store")


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


def _versioning(client: Minio, config: S3Config) -> str | None:
    try:
        return str(client.get_bucket_versioning(config.bucket).status or "Off")
    except S3Error as error:
        if error.code in DENIED_CODES or error.code == "NotImplemented":
            return None
        raise minio_error(error, config) from error
    except Exception as error:
        raise minio_error(error, config) from error


def _lifecycle_rules(client: Minio, config: S3Config) -> tuple[LifecycleRule, ...] | None:
    try:
        found = client.get_bucket_lifecycle(config.bucket)
    except S3Error as error:
        if error.code in DENIED_CODES or error.code == "NotImplemented":
            return None
        raise minio_error(error, config) from error
    except Exception as error:
        raise minio_error(error, config) from error
    rules = []
    for rule in found.rules if found else ():
        expiration = rule.expiration
        # A rule that only removes delete markers, old versions or broken uploads takes no object of ours.
        if rule.status != "Enabled" or expiration is None or not (expiration.days or expiration.date):
            continue
        filters = rule.rule_filter
        prefix = (
            (filters.prefix or (filters.and_operator.prefix if filters.and_operator else None))
            if filters
            else None
        )
        covered = prefix or ""
        rules.append(
            LifecycleRule(
                rule.rule_id or "", covered, expiration.days, dangerous=_overlap(covered, config.prefix)
            )
        )
    return tuple(rules)


def _overlap(rule_prefix: str, store_prefix: str) -> bool:
    ours = f"{store_prefix}/" if store_prefix else ""
    return ours.startswith(rule_prefix) or rule_prefix.startswith(ours)


def _danger(rule: LifecycleRule) -> str:
    when = f"after {rule.expires_after_days} days" if rule.expires_after_days else "on a set date"
    what = f"objects below {rule.prefix!r}" if rule.prefix else "every object"
    return f"lifecycle rule {rule.rule_id!r} deletes {what} {when}, the log and committed data too: remove it"
