"""What a Parquet object may claim, checked before anything of that size is allocated.

A checksum says that the bytes are those written, not who wrote them. A footer may lie about rows and sizes, and a few
kilobytes of pages may decompress or repeat to gigabytes. So the pages that will be read are walked first: each must
be of a kind that the format writes (docs/FORMAT.md, "Limits"), inside the object, and no larger than the limits.
What Arrow allocates is then bounded by what was found, not by what was claimed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import compress
from typing import Final, TypeAlias

import pyarrow.parquet as pq

from storage.parquet_footer import (
    SHORT_VALUE,
    STATISTICS,
    UNCOMPRESSED,
    ZSTD,
    Chunk,
    Footer,
    Leaf,
    usual_statistics,
)
from storage.reasons import StoreReason
from storage.thrift import I32, STRUCT, Shape, ThriftError, read_struct, small_number

Window: TypeAlias = Callable[[int], tuple[bytes | bytearray | memoryview, int]]
"""Gives bytes that hold the object from an offset on, some kilobytes at least, and where in them that is."""

_HEADER_BYTES_MAX: Final = 64 << 10  # a page's: its statistics are the values' first and last, cut at 4 kB
_RATIO: Final = 64
_FEW_BYTES: Final = (
    1 << 20
)  # they hold fewer list elements than any limit, since writers bound those that are null
_DOT: Final = re.compile(r"\.")


class LimitError(Exception):
    """An object that claims more than its kind may, or is laid out as the format lays nothing out."""

    def __init__(self, seen: str, reason: StoreReason = StoreReason.BEYOND_LIMITS) -> None:
        super().__init__(seen)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ParquetLimits:
    """The limits of one kind of object.

    rows: of the whole object. row_group_bytes: of its columns uncompressed, or 64 times what they are stored in, if
    that is more; row_group_memory: the same of what they take in memory, where nulls take room too. values: elements
    of one list column in one row group, and no more than its bytes can hold: `values_per_byte`, and `values_free`
    beside them, since nulls take no room in a page. footer_part: such a part of the object may be footer, if that is
    more.
    """

    object_bytes: int
    footer_bytes: int
    rows: int
    row_group_rows: int
    row_group_bytes: int
    row_group_memory: int
    values: int
    values_per_byte: int
    values_free: int
    codecs: frozenset[int]
    footer_part: int = 0

    def check_footer_bytes(self, footer_bytes: int, size: int) -> None:
        """Raise unless object and footer may be so large. Parsed, a footer takes up to 30 times its bytes."""
        if size > self.object_bytes:
            raise LimitError(f"{size} bytes, not at most {self.object_bytes}")
        most = max(self.footer_bytes, size // self.footer_part) if self.footer_part else self.footer_bytes
        if not 0 <= footer_bytes <= min(most, size):
            raise LimitError(
                f"a footer of {footer_bytes} bytes, not at most {most}", StoreReason.FOOTER_TOO_LARGE
            )


DATA_LIMITS: Final = ParquetLimits(
    object_bytes=1 << 62,
    footer_bytes=4 << 20,
    rows=(1 << 31) - 1,
    row_group_rows=1 << 20,
    row_group_bytes=512 << 20,
    row_group_memory=2 << 30,
    values=1 << 31,
    values_per_byte=8,
    values_free=1 << 24,
    codecs=frozenset({UNCOMPRESSED, ZSTD}),
    footer_part=16,
)
"""What is large: compressed or not, and as much as one reader may be asked to hold of a row group."""


def is_within(rows: int, size: int, limits: ParquetLimits) -> bool:
    """Whether an uncompressed file of so many rows and bytes can hold nothing that a reader would refuse."""
    return rows <= limits.rows and size <= min(limits.row_group_bytes, _FEW_BYTES)


def check_written(metadata: pq.FileMetaData, limits: ParquetLimits) -> None:
    """Raise `LimitError` where a reader would refuse a file that was written just now, whose footer can be believed."""
    if metadata.num_rows > limits.rows:
        raise LimitError(f"{metadata.num_rows} rows, not at most {limits.rows}")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.total_byte_size > limits.row_group_bytes:
            raise LimitError(
                f"a row group of {group.total_byte_size} bytes, not at most {limits.row_group_bytes}"
            )
        if group.total_byte_size <= _FEW_BYTES:
            continue
        for column in (group.column(index) for index in range(metadata.num_columns)):
            most = _most_values(limits, group.num_rows, column.total_uncompressed_size)
            if column.num_values > most:
                raise LimitError(
                    f"{column.num_values} values of column {column.path_in_schema!r}, not at most {most}"
                )


def _most_values(limits: ParquetLimits, rows: int, chunk_bytes: int) -> int:
    return max(rows, min(limits.values, rows + limits.values_per_byte * chunk_bytes + limits.values_free))


def check_claims(
    footer: Footer,
    window: Window,
    size: int,
    limits: ParquetLimits,
    columns: Collection[str] | None,
) -> tuple[int, ...]:
    """Raise `LimitError` unless the pages of these columns (None: of all) are the format's, and within its limits.

    Returns how much memory each row group may take to read, by what its pages hold and not by what the footer says.
    """
    longest = max(map(len, columns or ()), default=0)
    is_read = [columns is None or _is_read(leaf.path, columns, longest) for leaf in footer.leaves]
    if not 0 <= footer.rows <= limits.rows:
        raise LimitError(f"{footer.rows} rows, not at most {limits.rows}")
    counted, needed = 0, []
    for rows, chunks in footer.row_groups:
        if not 0 <= rows <= limits.row_group_rows:
            raise LimitError(f"a row group of {rows} rows, not at most {limits.row_group_rows}")
        counted += rows
        stored = unpacked = memory = 0
        for leaf, chunk in compress(zip(footer.leaves, chunks, strict=True), is_read):
            chunk_bytes, packed = _check_chunk(leaf, chunk, rows, window, size, limits)
            stored += packed
            unpacked += chunk_bytes
            memory += max(chunk_bytes, leaf.null_bytes * chunk.values)
        needed.append(memory)
        if memory > max(limits.row_group_memory, _RATIO * stored):
            raise LimitError(
                f"a row group of {memory} bytes in memory, in {stored}", StoreReason.TOO_LARGE_IN_MEMORY
            )
        if unpacked > max(limits.row_group_bytes, _RATIO * stored):
            raise LimitError(f"a row group of {unpacked} bytes in {stored}")
    if counted != footer.rows:
        raise LimitError(f"{counted} rows in its row groups, {footer.rows} in all")
    return tuple(needed)


def _is_read(path: str, columns: Collection[str], longest: int) -> bool:
    """Arrow reads a leaf for each name that its path begins with, and a name may hold dots itself."""
    return path in columns or any(
        path[: dot.start()] in columns for dot in _DOT.finditer(path, 0, longest + 1)
    )


def _check_chunk(
    leaf: Leaf, chunk: Chunk, rows: int, window: Window, size: int, limits: ParquetLimits
) -> tuple[int, int]:
    """The bytes of its pages uncompressed, and as stored."""
    if chunk.codec not in limits.codecs or chunk.has_dictionary:
        raise LimitError(
            f"column {leaf.path!r} compressed by codec {chunk.codec} or by a dictionary",
            StoreReason.PACKED_COLUMN,
        )
    chunk_bytes, values, packed = _walk(chunk, leaf.path, window, size)
    if values != chunk.values:
        raise LimitError(
            f"{values} values of column {leaf.path!r} in its pages, {chunk.values} in the footer"
        )
    if values != rows:
        most = _most_values(limits, rows, chunk_bytes)
        if not leaf.is_list or not rows <= values <= most:
            raise LimitError(f"{values} values of column {leaf.path!r} in {rows} rows")
    return chunk_bytes, packed


def _walk(chunk: Chunk, path: str, window: Window, size: int) -> tuple[int, int, int]:
    """The bytes of a column chunk's pages uncompressed, their values, and their bytes as stored."""
    at, left = chunk.at, chunk.stored
    if not left and not chunk.values:
        return 0, 0, 0
    if at < 4 or left < 0 or at + left > size:
        raise LimitError(f"column {path!r} at bytes {at} to {at + left} of {size}")
    is_plain = chunk.codec == UNCOMPRESSED
    stop, stored, unpacked, values = at + left, 0, 0, 0
    while at < stop:
        held, position = window(at)
        match = _PAGE.match(held, position)
        if match is not None:
            page_unpacked, page_stored, page_values = map(small_number, match.groups())
            at += match.end() - position + page_stored
        else:
            page_unpacked, page_stored, page_values, header = _page(held, position)
            at += header + page_stored
        if page_stored < 0 or page_values < 0 or at > stop or (is_plain and page_unpacked != page_stored):
            raise LimitError(f"a page of column {path!r} that ends behind it, or inside out")
        if page_unpacked < 0:
            raise LimitError(f"a page of {page_unpacked} bytes in column {path!r}")
        stored += page_stored
        unpacked += page_unpacked
        values += page_values
    return unpacked, values, stored


# --- page headers ---------------------------------------------------------------------------------------------

_VARINT = rb"(?:[\x80-\xff]{0,3}[\x00-\x7f]|[\x80-\xff]{4}[\x00-\x0f])"  # of 32 bits
# Type 0 (a data page), both sizes, a checksum or none; values, PLAIN, RLE levels twice; no statistics, empty ones, or
# those that Arrow writes.
_PAGE = re.compile(
    rb"\x15\x00\x15(%b)\x15(%b)(?:\x2c|\x15%b\x1c)\x15(%b)\x15\x00\x15\x06\x15\x06" % ((_VARINT,) * 4)
    + rb"(?:\x1c(?:%b)?\x00)?\x00\x00" % usual_statistics(SHORT_VALUE),
    re.DOTALL,
)
_DATA_PAGE = Shape({1: I32, 2: I32, 3: I32, 4: I32, 5: STRUCT}, frozenset((1, 2, 3, 4)), {5: STATISTICS})
_PAGE_HEADER = Shape({1: I32, 2: I32, 3: I32, 4: I32, 5: STRUCT}, frozenset((1, 2, 3, 5)), {5: _DATA_PAGE})


def _page(held: bytes | bytearray | memoryview, position: int) -> tuple[int, int, int, int]:
    """Sizes, values and header length of a data page whose header says more than the least."""
    raw = bytes(held[position : position + _HEADER_BYTES_MAX])
    try:
        fields, end = read_struct(raw, 0, _PAGE_HEADER)
    except ThriftError as error:
        raise LimitError(f"a page header with {error}") from None
    data_page = fields[5]
    if fields[1] != 0:
        raise LimitError(f"a page of type {fields[1]}, not a data page")
    if (data_page[2], data_page[3], data_page[4]) != (0, 3, 3):
        raise LimitError(f"a page of encoding {data_page[2]}, not PLAIN")
    return fields[2], fields[3], data_page[1], end
