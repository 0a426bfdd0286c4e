"""The objects' own checksums, checked by the auditor's own code (docs/FORMAT.md): what `storage.envelope` writes.

Guarantee: what passes is, byte for byte, what was written; else DamagedObjectError, before a parser sees it.
The hash function itself (xxHash) is the one part that writer and auditor share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple, NoReturn

import xxhash

from storage.errors import DamagedObjectError, UnknownFormatError
from storage.reasons import StoreReason

FORMAT: Final = "2"
DIGITS: Final = 32
CHECKSUM_MARK: Final = b"txn_engine.checksum"
TAIL_BYTES: Final = 8  # of a Parquet file: its footer's length, and "PAR1"
_FOOTER_MAX: Final = 64 << 20
JSON_BYTES_MAX: Final = 4 << 20
_IN_FOOTER: Final = re.compile(re.escape(CHECKSUM_MARK) + rb"\x18\x20([0-9a-f]{32})")
_IN_JSON: Final = re.compile(rb'^  "checksum": "([0-9a-f]{32})"', re.MULTILINE)

Part = Callable[[int, int], bytes]
"""`part(start, length)`: so many bytes of an object from there on."""


class Whole(NamedTuple):
    """A Parquet object whose checksum is right: its bytes from the footer on, and where in those the digits are."""

    checksum: str
    footer_at: int
    tail: bytes
    digits_at: int


def check_parquet(part: Part, size: int, key: str, *, part_bytes: int) -> Whole:
    """Check a Parquet object of `size` bytes; beside its footer, one part of `part_bytes` is in memory."""
    footer_at = _footer_at(part, size, key)
    tail = part(footer_at, size - footer_at)
    found = _last(_IN_FOOTER, tail, size, key)
    digits_at = found.start(1)

    def parts() -> Iterator[bytes]:
        for start in range(0, footer_at, part_bytes):
            yield part(start, min(part_bytes, footer_at - start))
        yield tail

    checksum = _check(parts(), footer_at + digits_at, found[1].decode(), size, key)
    return Whole(checksum, footer_at, tail, digits_at)


def check_json(data: bytes, key: str, kind: str, formats: Collection[str] = (FORMAT,)) -> dict[str, Any]:
    """The fields of a JSON object whose checksum, format and kind are right."""
    if len(data) > JSON_BYTES_MAX:
        _refuse(key, f"{len(data)} bytes", f"at most {JSON_BYTES_MAX}")
    found = _last(_IN_JSON, data, len(data), key)
    _check([data], found.start(1), found[1].decode(), len(data), key)
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        _refuse(key, f"no readable JSON: {error}", "a JSON object")
    if not isinstance(fields, dict):
        _refuse(key, f"a JSON {type(fields).__name__}", "a JSON object")
    written, seen = fields.pop("format", None), fields.pop("kind", None)
    del fields["checksum"]
    if str(written) not in formats:
        raise UnknownFormatError(
            f"format {str(written)!r}",
            place=key,
            expected=f"format {FORMAT!r}",
            action="open the store with the version of txn-engine that wrote it",
        )
    if seen != kind:
        _refuse(key, f"kind {seen!r}", f"kind {kind!r}", StoreReason.OTHER_KIND)
    return fields


def _footer_at(part: Part, size: int, key: str) -> int:
    """Where a Parquet file's footer begins."""
    whole = size >= 4 + TAIL_BYTES and part(0, 4) == b"PAR1"
    tail = part(size - TAIL_BYTES, TAIL_BYTES) if whole else b""
    if not tail.endswith(b"PAR1"):
        _refuse(key, f"{size} bytes that do not begin and end as a Parquet file does", "PAR1 ... PAR1")
    length = int.from_bytes(tail[:4], "little") + TAIL_BYTES
    if length > min(size - 4, _FOOTER_MAX):
        _refuse(key, f"a footer of {length} bytes", f"at most {min(size - 4, _FOOTER_MAX)}")
    return size - length


def _last(mark: re.Pattern[bytes], data: bytes, size: int, key: str) -> re.Match[bytes]:
    found = None
    for found in mark.finditer(data):  # noqa: B007 - the last one counts: the writer puts it behind all that it was given
        pass
    if found is None:
        _refuse(
            key,
            f"{size} bytes without a checksum",
            "a checksum in the object's metadata",
            StoreReason.NO_CHECKSUM,
        )
    return found


def _check(parts: Iterator[bytes] | list[bytes], digits_at: int, stored: str, size: int, key: str) -> str:
    """`stored` where the whole, with zeros in the place of the digits, hashes to it."""
    digest, at = xxhash.xxh3_128(), 0
    for part in parts:
        inside = digits_at - at
        if 0 <= inside < len(part):
            digest.update(part[:inside] + b"0" * DIGITS + part[inside + DIGITS :])
        else:
            digest.update(part)
        at += len(part)
    if digest.hexdigest() != stored:
        _refuse(
            key,
            f"checksum {digest.hexdigest()} over {size} bytes",
            f"checksum {stored}",
            StoreReason.CHECKSUM,
        )
    return stored


def _refuse(key: str, seen: str, expected: str, reason: StoreReason | None = None) -> NoReturn:
    raise DamagedObjectError(
        f"the object holds {seen}",
        actor="audit",
        place=key,
        expected=expected,
        action="restore the object from a copy; do not delete it",
        reason=reason,
    )
