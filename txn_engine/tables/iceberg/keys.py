"""The keys of an Iceberg table's metadata. Of Avro objects the name ends with the hash of the bytes, so that they check
themselves; it begins with the version that they were made for, so that one which no version names is known to be
nobody's as soon as that version is decided.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import xxhash

from storage import InvalidKeyError

_INT64_MAX: Final = 2**63 - 1
_METADATA: Final = re.compile(r"v([1-9][0-9]{0,18})\.metadata\.json")
_AVRO: Final = re.compile(r"([0-9]{20})-(list|manifest)-([0-9a-f]{32})\.avro")


class AvroName(NamedTuple):
    """What the name of a manifest, or of a list of them, says."""

    version: int
    kind: str
    hash: str


def table_folder(topic: str, incarnation: int) -> str:
    """The table's root. It holds its metadata and nothing else: whoever drops a table deletes the folder."""
    return f"topics/{topic}/{incarnation}/iceberg"


def metadata_prefix(folder: str) -> str:
    """The folder of the metadata of the table with this root."""
    return f"{folder}/metadata/"


def metadata_key(folder: str, version: int) -> str:
    """A version's metadata. Iceberg counts versions from 1 on."""
    return f"{metadata_prefix(folder)}v{version + 1}.metadata.json"


def hint_key(folder: str) -> str:
    """Which version may be the newest."""
    return f"{metadata_prefix(folder)}version-hint.text"


def avro_key(folder: str, version: int, kind: str, data: bytes) -> str:
    """A manifest (`manifest`) or a list of them (`list`)."""
    return f"{metadata_prefix(folder)}{version:020d}-{kind}-{xxhash.xxh3_128_hexdigest(data)}.avro"


def parse_metadata_key(key: str, folder: str) -> int:
    """The version of a metadata object's key; `InvalidKeyError` for any other key."""
    found = _METADATA.fullmatch(_name(key, folder))
    if found is None or int(found[1]) > _INT64_MAX:
        raise _not_ours(key, folder)
    return int(found[1]) - 1


def parse_avro_key(key: str, folder: str) -> AvroName:
    """What an Avro object's key says; `InvalidKeyError` for any other key."""
    found = _AVRO.fullmatch(_name(key, folder))
    if found is None or int(found[1]) > _INT64_MAX:
        raise _not_ours(key, folder)
    return AvroName(int(found[1]), found[2], found[3])


def _name(key: str, folder: str) -> str:
    prefix = metadata_prefix(folder)
    return key.removeprefix(prefix) if key.startswith(prefix) else ""


def _not_ours(key: str, folder: str) -> InvalidKeyError:
    return InvalidKeyError(
        f"{key[:200]!r} names nothing of a table's", actor="keys", place=metadata_prefix(folder)
    )
