"""What a bucket keeps of objects that were deleted or overwritten, by minio-py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from minio.datatypes import Object
from minio.error import S3Error

from storage.errors import AccessDeniedError, StorageError
from storage.patience import Patience, Waits
from storage.s3.config import S3Config
from storage.s3.lifecycle import UnreadableRulesError, rules_of
from storage.s3.minio_client import BucketClient, minio_client, minio_error
from storage.store import KeptVersions, ObjectInfo


def kept_versions(config: S3Config) -> KeptVersions | None:
    """What becomes of a deleted object's bytes; None where the bucket has never kept any. Raises `StorageError`, for
    credentials that may not ask too.
    """
    client = minio_client(config)
    try:
        status = str(client.get_bucket_versioning(config.bucket).status or "Off")
    except S3Error as error:
        if error.code == "NotImplemented":
            return None
        raise _with_right(minio_error(error, config), "s3:GetBucketVersioning") from error
    except Exception as error:
        raise minio_error(error, config) from error
    return None if status == "Off" else KeptVersions(status, _until(client, config))


def _until(client: BucketClient, config: S3Config) -> str:
    """Until when a version is kept that is not the newest any more, in words."""
    text = client.lifecycle(config)
    try:
        rules = () if text is None else rules_of(text, config.prefix)
    except UnreadableRulesError:
        rules = ()
    days = [rule.old_version_days for rule in rules if rule.old_version_days is not None]
    locked = _lock(client, config)
    lock = f", at the earliest {locked} after it was written, for the bucket locks it" if locked else ""
    if days:
        return f"a lifecycle rule removes it, {min(days)} days after it was deleted{lock}"
    return f"somebody deletes that version: no lifecycle rule does{lock}"


def _lock(client: BucketClient, config: S3Config) -> str:
    """The bucket's default retention, in words; empty where it has none, or nobody may ask."""
    try:
        found = client.get_object_lock_config(config.bucket)
    except S3Error:
        return ""
    except Exception as error:
        raise minio_error(error, config) from error
    return f"{found.duration} {str(found.duration_unit).lower()}" if found.mode and found.duration else ""


def old_versions(config: S3Config, folder: str, patience: Patience) -> Iterator[ObjectInfo]:
    """The versions below the folder that are not their object's newest, without the markers of deletions; each with its
    id as `tag`. Raises `StorageError`.
    """
    root = f"{config.prefix}/" if config.prefix else ""
    last: str | None = None
    waits = Waits(patience)
    while True:
        found = minio_client(config).list_objects(
            config.bucket, prefix=root + folder, start_after=last, recursive=True, include_version=True
        )
        versions = (each for each in found if not each.is_delete_marker)
        try:
            for name, group in groupby(versions, lambda each: str(each.object_name)):
                of_one = list(group)  # whole: a listing that broke goes on behind the last name
                last = name
                waits.came_further()
                yield from (_info(each, name.removeprefix(root)) for each in of_one if not _is_newest(each))
            return
        except Exception as error:
            answer = _with_right(minio_error(error, config), "s3:ListBucketVersions")
            if not waits.again(answer):
                raise answer from error


def _is_newest(found: Object) -> bool:
    return str(found.is_latest).lower() == "true"


def _info(found: Object, key: str) -> ObjectInfo:
    modified_ms = round(found.last_modified.timestamp() * 1_000) if found.last_modified else 0
    return ObjectInfo(key, found.size or 0, modified_ms, str(found.version_id))


def _with_right(error: StorageError, right: str) -> StorageError:
    if isinstance(error, AccessDeniedError):
        error.action = f"have {right} allowed on the bucket"
    return error
