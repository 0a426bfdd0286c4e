"""What a bucket keeps of objects that were deleted or overwritten, by minio-py."""

from __future__ import annotations

from minio.error import S3Error

from storage.errors import AccessDeniedError
from storage.s3.config import S3Config
from storage.s3.lifecycle import UnreadableRulesError, rules_of
from storage.s3.minio_client import BucketClient, minio_client, minio_error, right_missing
from storage.store import KeptVersions


def kept_versions(config: S3Config) -> KeptVersions | None:
    """What becomes of a deleted object's bytes; None where the bucket has never kept any. Raises `StorageError`, for
    credentials that may not ask too.
    """
    client = minio_client(config)
    try:
        status = client.versioning(config)
    except AccessDeniedError as error:
        raise right_missing(error, "s3:GetBucketVersioning") from error.__cause__
    return None if status is None or status == "Off" else KeptVersions(status, _until(client, config))


def _until(client: BucketClient, config: S3Config) -> str:
    """Until when a version is kept that is not the newest any more, in words."""
    text = client.lifecycle(config)
    try:
        rules = None if text is None else rules_of(text, config.prefix)
    except UnreadableRulesError:
        rules = None
    days = [rule.old_version_days for rule in rules or () if rule.old_version_days is not None]
    locked = _lock(client, config)
    lock = f", at the earliest {locked} after it was written, for the bucket locks it" if locked else ""
    if days:
        after = "1 day" if min(days) == 1 else f"{min(days)} days"
        return f"a lifecycle rule removes it, {after} after it was deleted{lock}"
    rule = "whether a lifecycle rule does was not told" if rules is None else "no lifecycle rule does"
    return f"somebody deletes that version: {rule}{lock}"


def _lock(client: BucketClient, config: S3Config) -> str:
    """The bucket's default retention, in words; empty where it has none, or nobody may ask."""
    try:
        found = client.get_object_lock_config(config.bucket)
    except S3Error:
        return ""
    except Exception as error:
        raise minio_error(error, config) from error
    if not found.mode or not found.duration:
        return ""
    unit = str(found.duration_unit).lower().rstrip("s")
    return f"{found.duration} {unit}{'' if found.duration == 1 else 's'}"
