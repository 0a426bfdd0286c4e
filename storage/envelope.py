"""Objects that check themselves: Parquet and JSON with a checksum over the whole object inside.

Parquet's own page checksums leave most of the footer unguarded. Here one xxh3-128, taken over every byte
with its own 32 digits as zeros, stands in the footer at a fixed width: any changed, missing or added byte
is found. It guards against damage, not against an enemy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from storage.errors import DamagedObjectError, ObjectTooLargeError, UnknownFormatError
from storage.parquet_footer import Footer, read_footer
from storage.parquet_limits import (
    DATA_LIMITS,
    LimitError,
    ParquetLimits,
    check_claims,
    check_written,
    is_within,
)
from storage.reasons import StoreReason
from storage.row_groups import row_groups

ObjectBytes: TypeAlias = bytes | bytearray | memoryview

FORMAT: Final = "2"
LATER_FORMAT: Final = "3"
"""Of objects that programs which know `FORMAT` alone are to refuse, and what they belong to with them."""
METADATA_PREFIX: Final = "txn_engine."
CHECKSUM_CHARS: Final = 32
RESERVED_KEYS: Final = frozenset({"format", "kind", "checksum"})

_MAGIC: Final = b"PAR1"
_ZEROS: Final = b"0" * CHECKSUM_CHARS
# The key and the length of its value as Thrift's compact protocol writes them: what stands before the digits.
_PARQUET_MARK: Final = b"txn_engine.checksum\x18\x20"
# Two spaces: only the outermost object is indented so, and a string in JSON holds no line break.
_JSON_MARK: Final = b'\n  "checksum": "'
_DIGITS = re.compile(rb"[0-9a-f]{32}")
JSON_BYTES_MAX: Final = 4 << 20
UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, OverflowError, TypeError, KeyError, IndexError)
"""What Arrow raises for bytes that are not what they claim to be."""


@dataclass(frozen=True, slots=True)
class ParquetProfile:
    """How a table is written; all profiles read back alike. None writes dictionaries: `parquet_limits` refuses them.

    write_statistics: True, False, or the columns to do it for.
    """

    compression: Literal["none", "zstd"] = "none"
    compression_level: int | None = None
    write_statistics: bool | tuple[str, ...] = False
    page_checksum: bool = False
    row_group_rows_max: int = 1 << 20


SMALL: Final = ParquetProfile()
"""For 1 to a few hundred rows, where a file costs by the column (9 us each) and not by the row.

14 columns, 1 or 100 rows, on a slow core: 195 us, of which 165 are pyarrow's bare write; its defaults take 300 to
465. An embedded Arrow schema would add 15 us and 1.6 kB, two statistics columns 8 us, zstd 150. Statistics of
some columns: `replace(SMALL, write_statistics=("a", "b"))`. Reading back: 165 us, its checksum 2 of them.
"""

LARGE: Final = ParquetProfile(
    compression="zstd", compression_level=1, write_statistics=True, page_checksum=True
)
"""For many rows: small on disk and fast to scan.

100,000 rows of 250 random bytes: 100 ms and 144 B a row; level 3 takes 160 ms for the same size, snappy 20 ms for
250 B.
Statistics and page checksums are 20 of the 100 ms.
"""


@dataclass(frozen=True, slots=True)
class OpenedParquet:
    """A file whose bytes are those written, its metadata without their prefix, and what each row group needs.

    Of its row groups' columns ask `footer`: asked for one, Arrow may end the process (`parquet_footer`).
    """

    file: pq.ParquetFile
    metadata: dict[str, str]
    footer: Footer
    row_group_bytes: tuple[int, ...]


def encode_parquet(
    table: pa.Table,
    *,
    kind: str,
    metadata: Mapping[str, str] | None = None,
    profile: ParquetProfile = SMALL,
    limits: ParquetLimits = DATA_LIMITS,
) -> bytes:
    """Return `table` as one self-checking Parquet file.

    The footer's key/value metadata hold `txn_engine.format`, `txn_engine.kind`, `txn_engine.checksum` and
    `metadata`, each of its keys with the prefix `txn_engine.`; the table's own schema metadata is left out.
    No Arrow schema is embedded: a type that Parquet cannot name (large_string, dictionary, duration, ...)
    comes back as its nearest, so `decode_parquet` takes the schema wanted. decimal, timestamp with a unit
    of ms or finer in UTC, binary, date32, lists and structs come back as they are.

    ObjectTooLargeError where it would be larger than `limits`, by which it is to be read, allow.
    """
    if table.schema.metadata is not None:
        table = table.replace_schema_metadata(None)
    return encode_parquet_parts(
        (table,), table.schema, kind=kind, metadata=metadata, profile=profile, limits=limits
    )


def encode_parquet_parts(
    parts: Iterable[pa.Table],
    schema: pa.Schema,
    *,
    kind: str,
    metadata: Mapping[str, str] | None = None,
    profile: ParquetProfile = SMALL,
    limits: ParquetLimits = DATA_LIMITS,
) -> bytes:
    """As `encode_parquet`, of a table that comes in parts: at least one row group each, one part in memory at a time.

    `schema`: without metadata, that of every part.
    """
    stream = ParquetStream(schema, kind=kind, metadata=metadata, profile=profile, limits=limits)
    for part in parts:
        stream.write(part)
    return stream.finish()


class ParquetStream:
    """As `encode_parquet`, of a table that is handed over in parts: what has come is held as the file will have it."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        kind: str,
        metadata: Mapping[str, str] | None = None,
        profile: ParquetProfile = SMALL,
        limits: ParquetLimits = DATA_LIMITS,
    ) -> None:
        given = dict(metadata or {})
        if not RESERVED_KEYS.isdisjoint(given):
            raise ValueError(f"metadata keys {sorted(RESERVED_KEYS & set(given))} belong to the envelope")
        self._kind, self._profile, self._limits = kind, profile, limits
        # The checksum comes last, so that no value given can be mistaken for it.
        self._footer = {
            METADATA_PREFIX + name: value for name, value in {"format": FORMAT, "kind": kind, **given}.items()
        }
        self._footer[METADATA_PREFIX + "checksum"] = _ZEROS.decode()
        self._rows = 0
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=profile.compression,
            compression_level=profile.compression_level,
            use_dictionary=False,
            write_statistics=_columns(profile.write_statistics),
            write_page_checksum=profile.page_checksum,
            store_schema=False,
        )

    @property
    def written_bytes(self) -> int:
        """Of the row groups that are written."""
        return int(self._sink.tell())

    def write(self, part: pa.Table) -> None:
        """One row group, or more where it is too large for one. Its schema has no metadata, and is that of the file."""
        for group in row_groups(part, self._profile.row_group_rows_max):
            self._writer.write_table(group, row_group_size=self._profile.row_group_rows_max)
        self._rows += part.num_rows

    def finish(self) -> bytes:
        """The whole file. ObjectTooLargeError where it is larger than the limits, by which it is to be read, allow."""
        self._writer.add_key_value_metadata(self._footer)
        self._writer.close()
        written = memoryview(self._sink.getvalue()).cast("B")
        try:
            self._limits.check_footer_bytes(int.from_bytes(written[-8:-4], "little"), len(written))
            if self._profile.compression != "none" or not is_within(self._rows, len(written), self._limits):
                check_written(self._writer.writer.metadata, self._limits)
        except LimitError as error:
            raise ObjectTooLargeError(
                str(error),
                actor=f"write a {self._kind} object",
                expected='what readers take (docs/FORMAT.md, "Limits")',
                action="write it in smaller parts, or with fewer columns",
                reason=error.reason,
            ) from None
        return _stamp(written, _position(written, _PARQUET_MARK))


def decode_parquet(
    data: ObjectBytes,
    *,
    key: str,
    kind: str | None = None,
    columns: Collection[str] | None = None,
    schema: pa.Schema | None = None,
    use_threads: bool = False,
    limits: ParquetLimits = DATA_LIMITS,
) -> tuple[pa.Table, dict[str, str]]:
    """Return the table and the metadata (without their prefix) of what `encode_parquet` wrote.

    Guarantee: the bytes are those written, every one; otherwise DamagedObjectError naming `key`, what was
    seen and what was expected, for an empty or truncated object, another format or kind, and any changed
    byte. The same where the object is larger than `limits` allow, or would be in memory. `kind`: the one
    expected. `schema`: what the table is cast to. A tiny file reads fastest without threads.
    """
    opened = open_parquet(data, key=key, kind=kind, columns=columns, limits=limits)
    try:
        table = opened.file.read(columns=None if columns is None else list(columns), use_threads=use_threads)
    except UNREADABLE as error:
        _damaged(key, f"no readable Parquet file: {error}", "a Parquet file")
    table = table.replace_schema_metadata(None)
    if schema is not None and table.schema != schema:
        try:
            table = table.cast(schema)
        except UNREADABLE as error:
            _damaged(key, f"a table that does not fit: {error}", "a table of the schema asked for")
    return table, opened.metadata


def open_parquet(
    data: ObjectBytes,
    *,
    key: str,
    kind: str | None = None,
    columns: Collection[str] | Callable[[Mapping[str, str]], Collection[str]] | None = None,
    limits: ParquetLimits = DATA_LIMITS,
) -> OpenedParquet:
    """Return the file, for these columns of it to be read (None: all; or those that its own metadata asks for).

    Guarantee: as `decode_parquet`; reading takes no more memory than a row group may, or many if many are asked for.
    Only what the pages hold can still be wrong: reading may raise one of `UNREADABLE`.
    """
    view = memoryview(data).cast("B")
    footer_bytes = int.from_bytes(view[-8:-4], "little") if len(view) >= 3 * len(_MAGIC) else 0
    verify_checksum(view, key)
    try:
        limits.check_footer_bytes(footer_bytes, len(view))
        footer = read_footer(bytes(view[-8 - footer_bytes : -8]))
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), pre_buffer=False)
        metadata = _check_opened(file, key, kind)
        chosen = columns(metadata) if callable(columns) else columns
        needed = check_claims(footer, lambda at: (view, at), len(view), limits, chosen)
    except LimitError as error:
        _damaged(key, str(error), "an object within the format's limits", error.reason)
    except UNREADABLE as error:
        _damaged(key, f"no readable Parquet file: {error}", "a Parquet file")
    return OpenedParquet(file, metadata, footer, needed)


def parquet_tail_bytes(end: bytes) -> int:
    """How many bytes at an object's end its footer takes, by its last eight; 0 for what is no Parquet file's end."""
    return int.from_bytes(end[-8:-4], "little") + 8 if end[-4:] == _MAGIC and len(end) >= 8 else 0


def read_parquet_tail(tail: bytes, size: int, *, key: str, kind: str) -> tuple[dict[str, str], pa.Schema]:
    """The metadata (without their prefix) and the columns of a file of `size` bytes, by its footer alone.

    `tail` is what it ends with. Nobody has looked whether the bytes are those written. DamagedObjectError for what is
    no footer of this kind.
    """
    footer_bytes = parquet_tail_bytes(tail)
    if not 8 < footer_bytes <= len(tail):
        _damaged(key, f"{len(tail)} bytes at its end without a footer", "a Parquet file's footer")
    try:
        DATA_LIMITS.check_footer_bytes(footer_bytes - 8, size)
        read_footer(tail[-footer_bytes:-8])
        file = pq.ParquetFile(pa.BufferReader(_MAGIC + tail[-footer_bytes:]), pre_buffer=False)
        return _check_opened(file, key, kind), file.schema_arrow
    except LimitError as error:
        _damaged(key, str(error), "an object within the format's limits", error.reason)
    except UNREADABLE as error:
        _damaged(key, f"no readable footer: {error}", "a Parquet file's footer")


def _check_opened(file: pq.ParquetFile, key: str, kind: str | None) -> dict[str, str]:
    footer = _own_metadata(file.metadata.metadata)
    _expect_format(key, footer.get("format"))
    if kind is not None:
        _expect(key, "kind", footer.get("kind"), kind)
    return footer


def encode_json(obj: Mapping[str, Any], kind: str, *, written_format: str = FORMAT) -> bytes:
    """Return `obj` as one self-checking JSON object: indented, keys sorted, `format`, `kind` and `checksum`
    added. ObjectTooLargeError for one of more than 4 MiB.
    """
    if not RESERVED_KEYS.isdisjoint(obj):
        raise ValueError(f"keys {sorted(RESERVED_KEYS & set(obj))} belong to the envelope")
    whole = {**obj, "format": int(written_format), "kind": kind, "checksum": _ZEROS.decode()}
    written = memoryview((json.dumps(whole, indent=2, sort_keys=True, allow_nan=False) + "\n").encode())
    if len(written) > JSON_BYTES_MAX:
        raise ObjectTooLargeError(
            f"{len(written)} bytes",
            actor=f"write a {kind} object",
            expected=f"at most {JSON_BYTES_MAX}",
            reason=StoreReason.OBJECT_TOO_LARGE,
        )
    return _stamp(written, _position(written, _JSON_MARK))


def decode_json(
    data: ObjectBytes, *, key: str, kind: str, formats: Collection[str] = (FORMAT,)
) -> dict[str, Any]:
    """Return what was given to `encode_json`; DamagedObjectError as `decode_parquet`, and for more than 4 MiB.

    formats: those that are understood.
    """
    if len(data) > JSON_BYTES_MAX:
        _damaged(key, f"{len(data)} bytes", f"at most {JSON_BYTES_MAX}")
    verify_checksum(data, key)
    try:
        whole = json.loads(bytes(data), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        _damaged(key, f"no readable JSON: {error}", "a JSON object")
    if not isinstance(whole, dict):
        _damaged(key, f"a JSON {type(whole).__name__}", "a JSON object")
    if str(whole.get("format")) not in formats:
        _expect_format(key, str(whole.get("format")))
    _expect(key, "kind", whole.get("kind"), kind)
    return {name: value for name, value in whole.items() if name not in RESERVED_KEYS}


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name}, which is not JSON")


def checksum_of(data: ObjectBytes, key: str = "") -> str:
    """Return the checksum that stands in the object, after checking that it is the object's."""
    view = memoryview(data).cast("B")
    position, stored = _stored(view, key)
    found = _hash(view, position)
    if found != stored:
        seen = f"checksum {found} over {len(view)} bytes"
        _damaged(key, seen, f"checksum {stored}", StoreReason.CHECKSUM)
    return found


def checksum_place(data: ObjectBytes, key: str = "") -> int:
    """Return where the digits of the checksum stand in the object, unchecked."""
    return _stored(memoryview(data).cast("B"), key)[0]


def stored_checksum(data: ObjectBytes, key: str = "") -> str:
    """Return the checksum that stands in the object, unchecked: for bytes that were encoded just now."""
    return _stored(memoryview(data).cast("B"), key)[1]


def _stored(view: memoryview, key: str) -> tuple[int, str]:
    """Where the digits stand, and which."""
    position = _position(view, _mark_of(view, key))
    stored = bytes(view[position : position + CHECKSUM_CHARS]) if position >= 0 else b""
    if _DIGITS.fullmatch(stored) is None:
        _damaged(
            key,
            f"{len(view)} bytes without a checksum",
            "a checksum in the object's metadata",
            StoreReason.NO_CHECKSUM,
        )
    return position, stored.decode()


def verify_checksum(data: ObjectBytes, key: str) -> str:
    """Raise DamagedObjectError unless `data` is the whole, unchanged object; return its checksum."""
    return checksum_of(data, key)


def _mark_of(view: memoryview, key: str) -> bytes:
    if len(view) == 0:
        _damaged(key, "an empty object", "a self-checking Parquet or JSON object", StoreReason.EMPTY_OBJECT)
    if view[0] == ord("{"):
        return _JSON_MARK
    if len(view) < 3 * len(_MAGIC) or bytes(view[:4]) != _MAGIC or bytes(view[-4:]) != _MAGIC:
        _damaged(key, f"{len(view)} bytes that do not begin and end as a Parquet file does", "PAR1 ... PAR1")
    return _PARQUET_MARK


def _position(view: memoryview, mark: bytes) -> int:
    """Where the digits of the checksum begin, -1 for nowhere. Searched for from the end, where the footer
    is.
    """
    step = 1 << 16
    end = len(view)
    while end > 0:
        begin = max(0, end - step)
        found = bytes(view[begin:end]).rfind(mark)
        if found >= 0:
            return begin + found + len(mark)
        if begin == 0:
            break
        end = begin + len(mark) - 1
        step *= 2
    return -1


def _hash(view: memoryview, position: int) -> str:
    digest = xxhash.xxh3_128(view[:position])
    digest.update(_ZEROS)
    digest.update(view[position + CHECKSUM_CHARS :])
    return digest.hexdigest()


def _stamp(view: memoryview, position: int) -> bytes:
    if position < 0 or bytes(view[position : position + CHECKSUM_CHARS]) != _ZEROS:
        raise RuntimeError(
            "the writer did not leave room for the checksum: this version of it is not supported"
        )
    return b"".join((view[:position], _hash(view, position).encode(), view[position + CHECKSUM_CHARS :]))


def _columns(choice: bool | tuple[str, ...]) -> Any:
    return choice if isinstance(choice, bool) else list(choice)


def _own_metadata(footer: Mapping[bytes, bytes] | None) -> dict[str, str]:
    prefix = METADATA_PREFIX.encode()
    return {
        name[len(prefix) :].decode(): value.decode()
        for name, value in (footer or {}).items()
        if name.startswith(prefix)
    }


def _expect(key: str, name: str, seen: object, expected: str) -> None:
    if seen != expected:
        _damaged(key, f"{name} {seen!r}", f"{name} {expected!r}", StoreReason.OTHER_KIND)


def _expect_format(key: str, found: object) -> None:
    if found != FORMAT:
        raise UnknownFormatError(
            f"format {found!r}",
            place=key,
            expected=f"format {FORMAT!r}",
            action="open the store with the version of txn-engine that wrote it",
        )


def _damaged(key: str, seen: str, expected: str, reason: StoreReason | None = None) -> NoReturn:
    raise DamagedObjectError(
        f"the object holds {seen}",
        actor="envelope",
        place=key,
        expected=expected,
        action="restore the object from a copy; do not delete it",
        reason=reason,
    )
