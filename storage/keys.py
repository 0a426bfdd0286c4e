"""Object keys: which ones are legal, and the layout of a log directory.

The rules are the narrowest of all backends together, so that a key legal on one store is legal on every
other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from storage.errors import InvalidKeyError

KEY_CHARS_MAX: Final = 900  # S3 allows 1024 bytes, the store's own prefix included
SEGMENT_CHARS_MAX: Final = 255  # a file name on a local disk
TEMPORARY_FOLDER: Final = ".tmp"  # where the local store keeps what is not yet an object
OFFSET_DIGITS: Final = 20
_OFFSET_MAX: Final = 2**63 - 1
_SUFFIX: Final = ".parquet"

_SEGMENTS = re.compile(r"[A-Za-z0-9._=+-]{1,255}(?:/[A-Za-z0-9._=+-]{1,255})*")
_DOTS = re.compile(r"(?:^|/)\.{1,2}(?:/|$)")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OFFSET = re.compile(r"[0-9]{20}")


def validate_key(key: str) -> str:
    """Return `key`; raise InvalidKeyError unless every backend can hold an object there.

    Legal: segments of 1 to 255 of `A-Z a-z 0-9 . _ = + -` joined by single slashes, 900 characters in
    all, no segment `.` or `..`, and not below `.tmp`, which belongs to the local store.
    """
    if (
        _SEGMENTS.fullmatch(key) is None
        or len(key) > KEY_CHARS_MAX
        or (key[0] == "." and key.partition("/")[0] == TEMPORARY_FOLDER)
        or (("./" in key or key.endswith(".")) and _DOTS.search(key) is not None)
    ):
        raise InvalidKeyError(
            f"{key[:120]!r} is not a legal object key",
            actor="keys",
            expected=f"segments of 1 to {SEGMENT_CHARS_MAX} of [A-Za-z0-9._=+-] joined by '/', "
            f"none '.' or '..', {KEY_CHARS_MAX} characters in all, the first not {TEMPORARY_FOLDER!r}",
            action="fix the key",
        )
    return key


def validate_prefix(prefix: str) -> str:
    """Return `prefix` as a folder, empty or with one slash at its end; raise InvalidKeyError as
    validate_key does.
    """
    folder = prefix.removesuffix("/")
    if prefix == "":
        return ""
    return validate_key(folder) + "/"


def validate_name(name: str) -> str:
    """Return `name`; raise InvalidKeyError unless it can be one segment of a key with a suffix added.

    Legal: 1 to 249 of `A-Z a-z 0-9 . _ -`, not `.` and not `..`.
    """
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise InvalidKeyError(
            f"{name[:120]!r} is not a legal name",
            actor="keys",
            expected="[A-Za-z0-9._-]{1,249}, not '.' or '..'",
            action="choose another name",
        )
    return name


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of one log directory: entries and snapshots named by offset, data files by name.

    Offsets are written with 20 digits, so that the order of keys is the order of offsets.
    """

    prefix: str

    def __post_init__(self) -> None:
        validate_key(self.prefix)

    @property
    def log_prefix(self) -> str:
        """The folder of the entries, with its slash."""
        return f"{self.prefix}/log/"

    @property
    def data_prefix(self) -> str:
        """The folder of the data files, with its slash."""
        return f"{self.prefix}/data/"

    @property
    def snapshots_prefix(self) -> str:
        """The folder of the snapshots, with its slash."""
        return f"{self.prefix}/snapshots/"

    def entry(self, base_offset: int) -> str:
        """The key of the entry whose first offset is `base_offset`."""
        return f"{self.prefix}/log/{_checked_offset(base_offset):020d}{_SUFFIX}"

    def parse_entry(self, key: str) -> int:
        """The base offset in an entry's key, relative to the store or bare; InvalidKeyError for any other."""
        return _parse_offset(key, self.log_prefix)

    def snapshot(self, end: int) -> str:
        """The key of the snapshot that covers every offset below `end`."""
        return f"{self.prefix}/snapshots/{_checked_offset(end):020d}{_SUFFIX}"

    def parse_snapshot(self, key: str) -> int:
        """The end offset in a snapshot's key; InvalidKeyError for any other."""
        return _parse_offset(key, self.snapshots_prefix)

    def data(self, name: str) -> str:
        """The key of the data file `name`, one segment."""
        if "/" in name:
            raise InvalidKeyError(
                f"{name[:120]!r} is not one segment", actor="keys", action="fix the data file's name"
            )
        return validate_key(f"{self.prefix}/data/{name}")

    def parse_data(self, key: str) -> str:
        """The name in a data file's key, relative to the store; InvalidKeyError for any other key."""
        name = key.removeprefix(self.data_prefix)
        if name == key or self.data(name) != key:
            raise InvalidKeyError(
                f"{key[:200]!r} does not name a data file",
                actor="keys",
                place=self.data_prefix,
                expected="one segment right below it",
                action="remove the foreign object or look at who put it there",
            )
        return name


def _checked_offset(offset: int) -> int:
    if not 0 <= offset <= _OFFSET_MAX:
        raise InvalidKeyError(f"offset {offset} cannot name an object", actor="keys", expected="0 to 2^63-1")
    return offset


def _parse_offset(key: str, folder: str) -> int:
    name = key.removeprefix(folder)
    digits = name.removesuffix(_SUFFIX)
    if digits == name or _OFFSET.fullmatch(digits) is None or int(digits) > _OFFSET_MAX:
        raise InvalidKeyError(
            f"{key[:200]!r} does not name an offset",
            actor="keys",
            place=folder,
            expected=f"{OFFSET_DIGITS} digits and {_SUFFIX}",
            action="remove the foreign object or look at who put it there",
        )
    return int(digits)
