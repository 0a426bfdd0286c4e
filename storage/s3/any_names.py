"""Listings with names in them that obstore has no path for, such as a `\\r` that a file manager ends one with.

minio-py asks for names in URL's encoding, so that any of them comes through. Nothing of the format has such a name:
they are listed for who names them, and so that they hide nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from minio.datatypes import Object

from storage.s3.config import S3Config
from storage.s3.minio_client import minio_client, minio_error
from storage.store import ObjectInfo


def list_objects(config: S3Config, folder: str, *, start_after: str | None) -> Iterator[ObjectInfo]:
    """What is below the folder (empty, or with its slash), in S3's order; raises `StorageError`."""
    for found in _listed(config, folder, start_after, recursive=True):
        key = _key(config, found)
        if not key:
            continue  # the marker of the store's own folder
        modified_ms = round(found.last_modified.timestamp() * 1_000) if found.last_modified else 0
        yield ObjectInfo(key, found.size or 0, modified_ms)


def list_folders(config: S3Config, folder: str) -> Iterator[str]:
    """The names of the folders right below it; raises `StorageError`."""
    for found in _listed(config, folder, None, recursive=False):
        name = _key(config, found).removeprefix(folder).removesuffix("/")
        if found.is_dir and name:  # not the folder's own marker
            yield name


def _listed(config: S3Config, folder: str, start_after: str | None, *, recursive: bool) -> Iterator[Object]:
    root = f"{config.prefix}/" if config.prefix else ""
    try:
        yield from minio_client(config).list_objects(
            config.bucket,
            prefix=root + folder,
            start_after=None if start_after is None else root + start_after,
            recursive=recursive,
        )
    except Exception as error:
        raise minio_error(error, config) from error


def _key(config: S3Config, found: Object) -> str:
    return str(found.object_name).removeprefix(f"{config.prefix}/" if config.prefix else "")
