"""What a store can answer other than the thing asked for.

Every class says what the caller must do. All of them pickle faithfully: Airflow and Spark carry errors
between processes. No message holds a secret: user, password and query are cut out of URLs, signatures
masked.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

# A secret key may hold slashes, so that what comes before the last @ of the word is cut; a local path may hold an @.
# The container of `abfss://container@account.dfs.core.windows.net` is none.
_USERINFO = re.compile(r"(?<!file)://(?![a-z0-9-]{3,63}@[a-z0-9]{3,24}\.(?:dfs|blob)\.)\S*@")
_QUERY = re.compile(r"(://[^\s?]*\?)(?!\*\*\*)\S+")
_SIGNATURE = re.compile(
    r"(?i)((?:x-amz-)?(?:signature|credential|security-token|accountkey)\"?\s*[=:]\s*\"?)[^&\s,;\"}]+"
)
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}")
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,80}")
_PLAIN_URL = re.compile(
    rf"file:///.*|{SCHEME.pattern}://"
    r"(?:[a-z0-9-]{3,63}@[a-z0-9]{3,24}\.(?:dfs|blob)\.)?[A-Za-z0-9._-]*(?:/[^?#@;\r\n]*)?"
)
_PART_CHARS_MAX = 400


def redact(text: str) -> str:
    """Return `text` without `user:password@` and queries in URLs, and without request signatures."""
    return _SIGNATURE.sub(r"\1***", _QUERY.sub(r"\1***", _USERINFO.sub("://", text)))


def told_url(url: str) -> str:
    """How a message shows a URL that does not name a store.

    A URL that holds only a bucket and a path is shown in full. Any other shows only its scheme, because the rest may be
    keys.
    """
    if _PLAIN_URL.fullmatch(url):
        return url
    scheme, separator, _ = url.partition("://")
    return f"{scheme}://***" if separator and SCHEME.fullmatch(scheme) else "***"


def told_bucket(name: str) -> str:
    """How a message shows the name that somebody gave for a bucket. Text that may be keys is not shown."""
    return repr(name) if _BUCKET.fullmatch(name) else "what stands there"


def _part(text: str) -> str:
    line = " ".join(redact(text).split())
    return line if len(line) <= _PART_CHARS_MAX else line[: _PART_CHARS_MAX - 3] + "..."


class StorageError(Exception):
    """Something went wrong at the store; what that says about an object is in the subclass.

    Guarantees nothing about whether a write took effect: `settle_put_if_absent` finds that out.

    actor: who was acting ("s3 store"); place: the object, folder or endpoint it acted on;
    seen: what happened; expected: what should have been; action: what to do now; reason: a stable code for one of
    several faults that a class covers (`storage/reasons.py`), or None.
    """

    def __init__(
        self,
        seen: str,
        *,
        actor: str = "",
        place: str = "",
        expected: str = "",
        action: str = "",
        reason: StrEnum | None = None,
    ) -> None:
        self.seen = _part(seen)
        self.actor = _part(actor)
        self.place = _part(place)
        self.expected = _part(expected)
        self.action = _part(action)
        self.reason = reason
        super().__init__(self.seen)

    def __str__(self) -> str:
        where = " ".join(part for part in (self.actor, f"at {self.place}" if self.place else "") if part)
        line = f"{where}: {self.seen}" if where else self.seen
        if self.expected:
            line += f"; expected {self.expected}"
        return f"{line}; {self.action}" if self.action else line

    def __reduce__(self) -> tuple[object, ...]:
        parts = {
            name: getattr(self, name) for name in ("seen", "actor", "place", "expected", "action", "reason")
        }
        rest = {name: value for name, value in self.__dict__.items() if name not in parts}
        return (_rebuild, (type(self), parts), rest or None)


def _rebuild(kind: type[StorageError], parts: dict[str, Any]) -> StorageError:
    seen = parts.pop("seen")
    return kind(seen, **parts)


class ObjectTooLargeError(StorageError):
    """What was to be written is larger than readers take. Nothing was written."""


class ObjectNotFoundError(StorageError):
    """There is no object at this key. The store itself answered."""


class NotAFolderError(ObjectNotFoundError):
    """No object has this key, and none can: a file stands where one of its folders should be (local store)."""


class StoreUnreachableError(StorageError):
    """The store did not answer, or not in time: check endpoint and network, then try again."""


class NotConnectedError(StoreUnreachableError):
    """No connection came about, so the request was not sent and had no effect."""


class AccessDeniedError(StorageError):
    """The store refused the credentials or the action: mend credentials or policy."""


class BucketNotFoundError(StorageError):
    """The bucket (or the local root folder) does not exist: create it or mend the URL."""


class PutIfAbsentUnsupportedError(StorageError):
    """This store overwrites where it should refuse. It must not be used: writers would lose data."""


class PutOutcomeUnknownError(StorageError):
    """Whether a put took effect could not be learned. Never send other bytes to this key on its account."""


class DamagedObjectError(StorageError):
    """The bytes at this key are not what was written there: restore the object, do not delete it."""


class OversizedObjectError(DamagedObjectError):
    """The object at this key is larger than its kind may be: it is not what was written there, and was not read."""


class ArchivedObjectError(DamagedObjectError):
    """The object at this key was moved into an archive: it cannot be read before it is restored from there."""


class InTheWayError(DamagedObjectError):
    """No object can be put at this key: a folder stands there, or a file where one of its folders should be (local
    store). Nothing was written.
    """


class UnknownFormatError(DamagedObjectError):
    """A whole object of another version of the format: open the store with the version that wrote it."""


class StoreNotWritableError(StorageError):
    """Nothing can be written here (missing folder, permissions, full disk, a file in the way)."""


class InvalidStoreUrlError(StorageError):
    """This is not the URL of a store: fix the call."""


class InvalidKeyError(StorageError):
    """This is not a legal object key or name: fix the call."""
