"""From a URL to a store."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from storage.errors import InvalidKeyError, InvalidStoreUrlError
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.store import ObjectStore

_EXPECTED = "file:///path, a path, s3://bucket/prefix or memory://name"
_NEARLY_A_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_NAMELESS = "nameless"


def open_store(
    url: str | os.PathLike[str],
    *,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    region: str | None = None,
    create: bool = True,
) -> ObjectStore:
    """Return the store that `url` names: a path, `file:///path`, `s3://bucket/prefix` or `memory://name`.

    `memory://` alone is one store of the process, as each name is.
    Cheap and without a request: an S3 store is first contacted by the first call on it. `create` makes a
    missing local folder (not its parent); it makes no bucket, `create_bucket_if_missing` does. Whatever is
    not given by keyword comes from the environment (see S3Config). InvalidStoreUrlError for anything else.
    """
    text = os.fspath(url)
    if "://" not in text:
        if isinstance(url, str) and _NEARLY_A_URL.match(text):
            scheme = text.partition(":")[0]  # what stands behind it may be keys
            action = "fix the URL, or write ./ in front of a folder's name"
            raise _invalid("a URL has two slashes behind its colon", f"{scheme}:", action)
        return LocalStore(_path(text, text), create=create)
    scheme, _, rest = text.partition("://")
    if scheme == "file":
        return LocalStore(_file_path(rest, text), create=create)
    if scheme == "memory":
        return _memory(rest, text)
    if scheme in ("s3", "s3a", "s3n"):
        return _s3(text, endpoint, access_key, secret_key, session_token, region)
    raise _invalid(f"{scheme!r} is not a kind of store", text)


def overlap(one: ObjectStore, other: ObjectStore) -> bool:
    """Whether both are the same place, or one lies in the other: their objects would be among each other's."""
    first, second = (store.uri("x")[:-1] for store in (one, other))
    return _server(one) == _server(other) and (first.startswith(second) or second.startswith(first))


def would_overlap(store: ObjectStore, url: str | os.PathLike[str]) -> bool:
    """As `overlap`, of a local store that may not be there yet: nothing is made. False for a URL of another kind."""
    text = os.fspath(url)
    if "://" in text and not text.startswith("file://"):
        return False
    path = _file_path(text.partition("://")[2], text) if "://" in text else _path(text, text)
    first, second = store.uri("x")[:-1], f"{os.path.abspath(path)}/"
    return first.startswith(second) or second.startswith(first)


def _server(store: ObjectStore) -> str | None:
    """Which server's bucket it is; None for what no server has, and for AWS."""
    if not store.url.startswith("s3:"):
        return None
    from storage.s3 import S3Store

    return store.config.endpoint if isinstance(store, S3Store) else None


def _file_path(rest: str, url: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise _invalid("a file URL has three slashes and an absolute path", url)
    return _path("/" + unquote(path), url)


def _path(path: str, url: str) -> str:
    if not path.strip() or "\0" in path:
        raise _invalid("there is no path", url)
    return os.path.expanduser(path) if path.startswith("~") else path


def _memory(rest: str, url: str) -> MemoryStore:
    try:
        return MemoryStore(rest.rstrip("/") or _NAMELESS)
    except InvalidKeyError as error:
        raise _invalid("a memory store has one name", url) from error


def _s3(
    url: str,
    endpoint: str | None,
    access_key: str | None,
    secret_key: str | None,
    session_token: str | None,
    region: str | None,
) -> ObjectStore:
    from storage.s3 import S3Store  # obstore takes 50 ms to import, and a local store needs none of it
    from storage.s3_config import s3_config

    if "@" in url:  # no bucket or prefix holds one
        raise _invalid(
            "credentials do not belong into a URL", url, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _invalid("this URL cannot be read", url) from error
    if parts.query or parts.fragment:
        raise _invalid("'?' and '#' have no meaning here", url)
    try:
        config = s3_config(
            parts.netloc,
            parts.path.strip("/"),
            endpoint=endpoint,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            region=region,
        )
    except InvalidKeyError as error:
        raise _invalid("the prefix is not a legal key", url) from error
    return S3Store(config)


def _invalid(seen: str, url: str, action: str = "fix the URL") -> InvalidStoreUrlError:
    return InvalidStoreUrlError(seen, actor="open_store", place=url, expected=_EXPECTED, action=action)
