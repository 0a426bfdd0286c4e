"""Listings with names in them that obstore has no path for, such as a `\\r` that a file manager ends one with.

minio-py asks for names in URL's encoding, so that any of them comes through. Nothing of the format has such a name:
they are listed for who names them, and so that they hide nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from minio.datatypes import Object

from storage.patience import Patience, Waits
from storage.s3.config import S3Config
from storage.s3.minio_client import minio_client, minio_error
from storage.store import ObjectInfo


def list_objects(
    config: S3Config, folder: str, *, start_after: str | None, patience: Patience
) -> Iterator[ObjectInfo]:
    """What is below the folder (empty, or with its slash), in S3's order; raises `StorageError`."""
    for found in _listed(config, folder, start_after, patience, recursive=True):
        key = _key(config, found)
        if not key:
            continue  # the marker of the store's own folder
        modified_ms = round(found.last_modified.timestamp() * 1_000) if found.last_modified else 0
        yield ObjectInfo(key, found.size or 0, modified_ms)


def list_folders(config: S3Config, folder: str, *, patience: Patience) -> Iterator[str]:
    """The names of the folders right below it; raises `StorageError`."""
    for found in _listed(config, folder, None, patience, recursive=False):
        name = _key(config, found).removeprefix(folder).removesuffix("/")
        if found.is_dir and name:  # not the folder's own marker
            yield name


def _listed(
    config: S3Config, folder: str, start_after: str | None, patience: Patience, *, recursive: bool
) -> Iterator[Object]:
    """The listing, gone on with behind the last name that came where an answer was none."""
    root = f"{config.prefix}/" if config.prefix else ""
    last = None if start_after is None else root + start_after
    waits = Waits(patience)
    while True:
        try:
            for found in minio_client(config).list_objects(
                config.bucket, prefix=root + folder, start_after=last, recursive=recursive
            ):
                if recursive:
                    last = found.object_name
                    waits.came_further()
                yield found
            return
        except Exception as error:
            answer = minio_error(error, config)
            # What a listing of folders has given is given again: its names are those of no objects to begin behind.
            if not waits.again(answer):
                raise answer from error


def _key(config: S3Config, found: Object) -> str:
    return str(found.object_name).removeprefix(f"{config.prefix}/" if config.prefix else "")
