"""From a URL to a store."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from storage.backend import Backend
from storage.backends import BACKENDS, backend_of
from storage.bucket_store import BucketStore
from storage.errors import (
    SCHEME,
    AccessDeniedError,
    DamagedObjectError,
    InvalidKeyError,
    InvalidStoreUrlError,
    ObjectNotFoundError,
    told_url,
)
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.patience import JOB_PATIENCE, Patience
from storage.reasons import StoreReason
from storage.store import ObjectStore

_EXPECTED = f"file:///path, a path, {', '.join(each.example for each in BACKENDS)} or memory://name"
_SCHEMES = "|".join(("file", "memory", *(scheme for each in BACKENDS for scheme in each.schemes)))
_NEARLY_A_URL = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:|(?:{_SCHEMES})//|[A-Za-z]+=[^/]*;.*=")
"""A scheme without its slashes or its colon, and a connection string as Azure gives them out."""
_NAMELESS = "nameless"
_FOLDERS_MAX = 1_000


def open_store(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    patience: Patience = JOB_PATIENCE,
    credentials: Callable[[], Sequence[str | None]] | None = None,
    **settings: str | None,
) -> ObjectStore:
    """Return the store that `url` names: a path, `file:///path`, `memory://name`, or a URL of a kind in `backends`.

    `memory://` alone is one store of the process, as each name is. Cheap and without a request: a store in the network
    is first contacted by the first call on it. `create` makes a missing local folder (not its parent); it makes no
    bucket. `patience`: how long calls wait for a store in the network that is busy; `PERSON_PATIENCE` where a person
    waits for the answer. `credentials`: where keys come in pairs, gives a key, its secret and, if there is one, a
    session token whenever they are needed, so that they may be exchanged; a pickle of the store has those of its
    moment. `settings` are those of the URL's kind, by keyword (`endpoint`, keys and the like); whatever is not given
    comes from the environment. A folder and memory need none, and are given what others have without harm.
    InvalidStoreUrlError for anything else.
    """
    _check_known(settings)
    text = os.fspath(url)
    if (path := local_path(url)) is not None:
        return LocalStore(path, create=create)
    scheme, _, rest = text.partition("://")
    if scheme == "memory":
        return _memory(rest, text)
    backend = backend_of(text)
    if backend is None:
        named = repr(scheme) if SCHEME.fullmatch(scheme) else "what stands before ://"
        raise _invalid(f"{named} is not a kind of store", text)
    foreign = [name for name, value in settings.items() if value and name not in _keywords(backend)]
    if foreign:
        raise _invalid(
            f"{foreign[0]!r} is no setting of {backend.name}",
            text,
            f"give of {', '.join(_keywords(backend))} what it needs",
            reason=StoreReason.SETTING_OF_OTHER_STORES,
        )
    store = backend.open(text, settings)
    if credentials is not None:
        store = store.with_credentials_from(credentials)
    store.patience = patience
    return store


def overlap(one: ObjectStore, other: ObjectStore) -> bool:
    """Whether both are the same place, or one lies in the other: their objects would be among each other's."""
    first, second = (store.uri("x")[:-1] for store in (one, other))
    return _server(one) == _server(other) and (first.startswith(second) or second.startswith(first))


def objects_around(store: ObjectStore, key: str, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """The object with this key in each folder above the store's own, the nearest folder first, with the folder's URL.

    The search ends at the bucket or at the disk's root. A folder that may not be read counts as empty. A store in
    memory has no folder above it.
    """
    if isinstance(store, LocalStore):
        for folder in Path(store.uri(key)).parent.parents:
            with suppress(OSError):  # a folder of somebody else's
                if (folder / key).is_file():
                    with (folder / key).open("rb") as file:
                        yield folder.as_uri(), file.read(max_bytes)
    elif isinstance(store, BucketStore):
        prefix = store.config.prefix
        while prefix:
            prefix = prefix.rpartition("/")[0]
            outer = type(store)(replace(store.config, prefix=prefix))
            with suppress(ObjectNotFoundError, AccessDeniedError, DamagedObjectError):
                yield outer.url, outer.get(key, max_bytes=max_bytes)


def objects_below(store: ObjectStore, key: str, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """The object with this key in each folder right below the store's own, with the folder's URL. What may not be read
    counts as absent.
    """
    for folder in store.list_folders("")[:_FOLDERS_MAX]:
        with suppress(ObjectNotFoundError, AccessDeniedError, DamagedObjectError, InvalidKeyError):
            yield f"{store.url}/{folder}", store.get(f"{folder}/{key}", max_bytes=max_bytes)


def local_path(url: str | os.PathLike[str]) -> str | None:
    """The folder that `open_store` would open for this URL, as it is spelt there; None for a URL of another kind.

    Raises `InvalidStoreUrlError` where `open_store` does.
    """
    text = os.fspath(url)
    if isinstance(url, str):
        _check_ends(text)
    if "://" not in text:
        if isinstance(url, str) and _NEARLY_A_URL.match(text):  # what stands behind it may be keys
            action = "fix the URL, or write ./ in front of a folder's name"
            raise _invalid("a URL has a colon and two slashes after its scheme", text, action)
        return _path(text, text)
    scheme, _, rest = text.partition("://")
    return _file_path(rest, text) if scheme == "file" else None


def would_overlap(store: ObjectStore, url: str | os.PathLike[str]) -> bool:
    """As `overlap`, of a local store that may not be there yet: nothing is made. False for a URL of another kind."""
    path = local_path(url)
    if path is None:
        return False
    first, second = store.uri("x")[:-1], f"{os.path.abspath(path)}/"
    return first.startswith(second) or second.startswith(first)


def _server(store: ObjectStore) -> str | None:
    """Which server's bucket it is; None for what no server has, and for a provider's own."""
    return store.server if isinstance(store, BucketStore) else None


def _check_ends(url: str) -> None:
    """A blank at an end is hard to see, and in the name of a folder it would make another store."""
    begin, end = url[: len(url) - len(url.lstrip())], url[len(url.rstrip()) :]
    if url.strip() and (begin or end):
        raise InvalidStoreUrlError(
            f"the URL {'begins' if begin else 'ends'} with {begin or end!r}",
            actor="open_store",
            expected=_EXPECTED,
            action="remove it; if a folder's name really has it, write %20 in a file URL",
            reason=StoreReason.BLANK_AROUND_URL,
        )


def _keywords(backend: Backend) -> list[str]:
    return [each.keyword for each in backend.settings]


def _check_known(settings: Mapping[str, str | None]) -> None:
    known = sorted({name for backend in BACKENDS for name in _keywords(backend)})
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise InvalidStoreUrlError(
                f"there is no setting {name!r}",
                actor="open_store",
                expected=f"one of {', '.join(known)}",
                action=f"did you mean {near[0]!r}?" if near else "leave it out",
                reason=StoreReason.UNKNOWN_STORE_SETTING,
            )


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


def _invalid(
    seen: str, url: str, action: str = "fix the URL", *, reason: StoreReason | None = None
) -> InvalidStoreUrlError:
    return InvalidStoreUrlError(
        seen, actor="open_store", place=told_url(url), expected=_EXPECTED, action=action, reason=reason
    )
