"""Listings by minio-py: of old versions, and of names that obstore has no path for, such as one that a file
manager ends with a `\\r`.

minio-py asks for names in URL's encoding, so that any of them comes through. Nothing of the format has a name of that
kind: they are listed for who names them, and so that they hide nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby

from minio.datatypes import Object

from storage.errors import AccessDeniedError
from storage.patience import Patience, Waits
from storage.s3.config import S3Config
from storage.s3.minio_client import minio_client, minio_error, right_missing
from storage.store import ObjectInfo


def list_objects(
    config: S3Config, folder: str, *, start_after: str | None, patience: Patience
) -> Iterator[ObjectInfo]:
    """What is below the folder (empty, or with its slash), in S3's order; raises `StorageError`."""
    for found in chain.from_iterable(_by_name(config, folder, patience, start_after=start_after)):
        info = _info(config, found)
        if info.key:  # not the marker of the store's own folder
            yield info


def list_folders(config: S3Config, folder: str, *, patience: Patience) -> Iterator[str]:
    """The names of the folders right below it; raises `StorageError`."""
    for found in chain.from_iterable(_by_name(config, folder, patience, recursive=False)):
        name = _key(config, found).removeprefix(folder).removesuffix("/")
        if found.is_dir and name:  # not the folder's own marker
            yield name


def old_versions(config: S3Config, folder: str, patience: Patience) -> Iterator[ObjectInfo]:
    """The versions below the folder that are not their object's newest, without the markers of deletions; each with its
    id as `tag`. Raises `StorageError`.
    """
    try:
        for of_one in _by_name(config, folder, patience, include_version=True):
            yield from (_info(config, each) for each in of_one if str(each.is_latest).lower() != "true")
    except AccessDeniedError as error:
        raise right_missing(error, "s3:ListBucketVersions") from error.__cause__


def _by_name(
    config: S3Config,
    folder: str,
    patience: Patience,
    *,
    start_after: str | None = None,
    recursive: bool = True,
    include_version: bool = False,
) -> Iterator[list[Object]]:
    """The listing, all entries of one name together. If an answer does not come, it goes on after the last name that
    came.
    """
    root = _root(config)
    last = None if start_after is None else root + start_after
    waits = Waits(patience)
    while True:
        try:
            found = minio_client(config).list_objects(
                config.bucket,
                prefix=root + folder,
                start_after=last,
                recursive=recursive,
                include_version=include_version,
            )
            # minio-py gives the markers of deletions after the rest of a page: with them names would not be in order.
            kept = (each for each in found if not each.is_delete_marker)
            for name, group in groupby(kept, lambda each: str(each.object_name)):
                of_one = list(group)
                if recursive:
                    last = name
                    waits.came_further()
                yield of_one
            return
        except Exception as error:
            answer = minio_error(error, config)
            # What a listing of folders has given is given again: its names are those of no objects to begin behind.
            if not waits.again(answer):
                raise answer from error


def _info(config: S3Config, found: Object) -> ObjectInfo:
    modified_ms = round(found.last_modified.timestamp() * 1_000) if found.last_modified else 0
    return ObjectInfo(_key(config, found), found.size or 0, modified_ms, found.version_id or "")


def _key(config: S3Config, found: Object) -> str:
    return str(found.object_name).removeprefix(_root(config))


def _root(config: S3Config) -> str:
    return f"{config.prefix}/" if config.prefix else ""
