"""A Parquet file's footer, read before Arrow sees it.

Arrow ends the process for some footers (a codec that it does not know, level histograms that do not fit, statistics
that are too short: its Python binding takes no exception there), and allocates by what a footer's lists claim. So what
is needed of a footer is read here; Arrow is given those that were found well-formed (`parquet_limits.check_claims`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from storage.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Fields,
    Shape,
    ThriftError,
    list_head,
    read_struct,
    small_number,
)

UNCOMPRESSED: Final = 0
ZSTD: Final = 6
"""Of Parquet's `CompressionCodec`."""


class Leaf(NamedTuple):
    """A column of the schema that holds values, whether a row may have several, and what a null takes in memory."""

    path: str
    is_list: bool
    null_bytes: int


class Chunk(NamedTuple):
    """What a footer says of one column in one row group.

    codec: a number of Parquet's `CompressionCodec`. stored: bytes in the file, from `at` on. lowest, highest: its
    statistics, if any.
    """

    codec: int
    values: int
    stored: int
    at: int
    has_dictionary: bool = False
    lowest: bytes | None = None
    highest: bytes | None = None

    def integers(self) -> tuple[int, int] | None:
        """The statistics of a column of integers; None where they are not told, or not as those of one are."""
        if self.lowest is None or self.highest is None or not {len(self.lowest), len(self.highest)} <= {4, 8}:
            return None
        return (
            int.from_bytes(self.lowest, "little", signed=True),
            int.from_bytes(self.highest, "little", signed=True),
        )


class RowGroup(NamedTuple):
    """What a footer says of a row group; its chunks are in the order of the leaves."""

    rows: int
    chunks: tuple[Chunk, ...]


class Footer(NamedTuple):
    """What a footer says of its file."""

    rows: int
    leaves: tuple[Leaf, ...]
    row_groups: tuple[RowGroup, ...]


# --- parquet.thrift: the fields that must be as they are there, by id ------------------------------------------

STATISTICS: Final = Shape({1: BINARY, 2: BINARY, 3: I64, 4: I64, 5: BINARY, 6: BINARY, 7: TRUE, 8: TRUE})
_SIZE_STATISTICS: Final = Shape({1: I64, 2: LIST, 3: LIST}, inside={2: I64, 3: I64})
_GEOSPATIAL_STATISTICS: Final = Shape({1: STRUCT, 2: LIST}, inside={2: I32})
_COLUMN_METADATA = Shape(
    {
        **dict.fromkeys((2, 3, 8, 13), LIST),
        **dict.fromkeys((1, 4, 15), I32),
        **dict.fromkeys((5, 6, 7, 9, 10, 11, 14), I64),
        **dict.fromkeys((12, 16, 17), STRUCT),
    },
    frozenset((1, 2, 3, 4, 5, 6, 7, 9)),
    {
        2: I32,
        3: BINARY,
        8: STRUCT,
        12: STATISTICS,
        13: STRUCT,
        16: _SIZE_STATISTICS,
        17: _GEOSPATIAL_STATISTICS,
    },
)
_CHUNK = Shape(
    {1: BINARY, 2: I64, 3: STRUCT, 4: I64, 5: I32, 6: I64, 7: I32, 8: STRUCT, 9: BINARY},
    frozenset((3,)),
    {3: _COLUMN_METADATA},
)
_SCHEMA_ELEMENT = Shape(
    {1: I32, 2: I32, 3: I32, 4: BINARY, 5: I32, 6: I32, 7: I32, 8: I32, 9: I32, 10: STRUCT},
    frozenset((4,)),
    {10: Shape({5: STRUCT})},
)


_TYPE: Final = 1
_FIXED_BYTES: Final = 7
_TYPE_LENGTH: Final = 2
_REPETITION: Final = 3
_REPEATED: Final = 2
_NAME: Final = 4
_CHILDREN: Final = 5
_CONVERTED_TYPE: Final = 6
_DECIMAL: Final = 5
_LOGICAL_TYPE: Final = 10
_LOGICAL_DECIMAL: Final = 5
_PATHS_CHARS_MAX: Final = 16 << 20
_SCHEMA_DEPTH_MAX: Final = 64
SCHEMA_ELEMENTS_MAX: Final = 1 << 17  # more than fit a footer of 1 MiB, the most that an empty file may have
_SCHEMA: Final = 2
_NUM_ROWS: Final = 3
_ROW_GROUPS: Final = 4
_ENCRYPTION: Final = 8
_SIGNING_KEY: Final = 9


def read_footer(raw: bytes) -> Footer:
    """The footer; ThriftError where it is not as Parquet's definition has it."""
    fields, end = read_struct(raw, 0, _FILE)
    if end != len(raw):
        raise ThriftError(f"{len(raw) - end} bytes behind the footer")
    if fields.keys() & {_ENCRYPTION, _SIGNING_KEY}:
        raise ThriftError("an encrypted file")
    leaves: tuple[Leaf, ...] = fields[_SCHEMA]
    groups = tuple(RowGroup(group[3], group[1]) for group in fields[_ROW_GROUPS])
    for group in groups:
        if len(group.chunks) != len(leaves):
            raise ThriftError(f"a row group of {len(group.chunks)} columns, not {len(leaves)}")
    return Footer(fields[_NUM_ROWS], leaves, groups)


_SCHEMAS_KEPT: Final = 32
_SCHEMA_BYTES_KEPT: Final = 16 << 10
_schemas: tuple[tuple[bytes, tuple[Leaf, ...]], ...] = ()
"""Schemas read already, the last first: a store has few, and to read one takes as long as all chunks."""


def _read_schema(raw: bytes, at: int) -> tuple[tuple[Leaf, ...], int]:
    global _schemas  # noqa: PLW0603 -- a memory of a few, replaced as a whole
    for known, leaves in _schemas:
        if raw.startswith(known, at):
            return leaves, at + len(known)
    count, end = list_head(raw, at, STRUCT)
    if count > SCHEMA_ELEMENTS_MAX:
        raise ThriftError(f"a schema of {count} elements, not at most {SCHEMA_ELEMENTS_MAX}")
    elements = []
    for _ in range(count):
        element, end = read_struct(raw, end, _SCHEMA_ELEMENT)
        elements.append(element)
    leaves = _leaves(elements)
    if end - at <= _SCHEMA_BYTES_KEPT:
        _schemas = ((raw[at:end], leaves), *_schemas[: _SCHEMAS_KEPT - 1])
    return leaves, end


def _leaves(elements: list[Fields]) -> tuple[Leaf, ...]:
    """The leaves of the tree whose elements stand here, each before its children."""
    if not elements or _TYPE in elements[0]:
        raise ThriftError("a schema without a root")
    leaves: list[Leaf] = []
    held = 0
    # The way down: path, whether in a list, children yet to come.
    above = [("", False, elements[0].get(_CHILDREN, 0))]
    for element in elements[1:]:
        while above and not above[-1][2]:
            above.pop()
        if not above:
            raise ThriftError("a schema with elements behind its last")
        path, is_list, left = above[-1]
        above[-1] = (path, is_list, left - 1)
        name = path + _text(element[_NAME])
        held += len(name)
        if held > _PATHS_CHARS_MAX:
            raise ThriftError(f"names of more than {_PATHS_CHARS_MAX} characters, each with those above it")
        is_list = is_list or element.get(_REPETITION) == _REPEATED
        children = element.get(_CHILDREN, 0)
        if len(above) > _SCHEMA_DEPTH_MAX:
            raise ThriftError(f"a schema that is nested deeper than {_SCHEMA_DEPTH_MAX} levels")
        if (children > 0) == (_TYPE in element) or children < 0:
            raise ThriftError(f"a schema with an element {name!r} that is neither column nor group")
        if children:
            above.append((name + ".", is_list, children))
        else:
            leaves.append(Leaf(name, is_list, _null_bytes(element)))
    if any(left for _, _, left in above):
        raise ThriftError("a schema that ends before its last element")
    return tuple(leaves)


def _null_bytes(element: Fields) -> int:
    """What Arrow takes for a value at the least, whether it is null or not."""
    width = element.get(_TYPE_LENGTH, 0) if element[_TYPE] == _FIXED_BYTES else 8
    is_decimal = element.get(_CONVERTED_TYPE) == _DECIMAL or _LOGICAL_DECIMAL in element.get(
        _LOGICAL_TYPE, {}
    )
    return max(width, 16 if width <= 16 else 32) if is_decimal else max(width, 8)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ThriftError("a name that is not UTF-8") from None


_PATH = Shape({1: LIST}, frozenset((1,)), {1: BINARY})
_USUAL_BYTES_MAX: Final = 1_024
_V: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_SIZES: Final = (8, 4, 16, *(size for size in range(65) if size not in (8, 4, 16)))
SHORT_VALUE: Final = b"(?:%b)" % b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in _SIZES)
"""A value of up to 64 bytes, behind its length; for a pattern in which a dot is any byte."""


def usual_statistics(value: bytes) -> bytes:
    """A pattern of statistics as Arrow writes them, of their highest and their lowest value: `value`, twice.

    Both as older readers look for them, or not; how many nulls there are; unless all are, both values and whether each
    is exact.
    """
    old = rb"(?:\x18%b\x18%b\x16|\x36)" % (SHORT_VALUE, SHORT_VALUE)
    return rb"%b%b(?:\x28%b\x18%b[\x11\x12]{2})?" % (old, _V, value, value)


_COUNTS: Final = rb"(?:%b)" % b"|".join(re.escape(bytes([16 * n + I64])) + _V * n for n in range(9))
# A column as Arrow writes one: its type, PLAIN and RLE; its path; its codec, values, sizes, place, its statistics, if
# any, its pages' encoding, and how many levels there are of each.
_USUAL = re.compile(
    rb"\x26%b\x1c\x15%b\x19\x25\x06\x00\x19(.+?)" % (_V, _V)
    + rb"\x15(%b)\x16(%b)\x16%b\x16(%b)\x26(%b)" % (_V, _V, _V, _V, _V)
    + rb"(?:\x49|\x3c%b\x00\x19)" % usual_statistics(b"(%b)" % SHORT_VALUE)
    + rb"\x1c\x15%b\x15%b\x15%b\x00" % (_V, _V, _V)
    + rb"(?:\x3c(?:\x16%b\x19|\x29)%b\x19%b\x00)?\x00\x00" % (_V, _COUNTS, _COUNTS),
    re.DOTALL,
)


def _read_chunks(raw: bytes, at: int) -> tuple[tuple[Chunk, ...], int]:
    count, at = list_head(raw, at, STRUCT)
    chunks = []
    for _ in range(count):
        chunk, at = _usual_chunk(raw, at) or _any_chunk(raw, at)
        chunks.append(chunk)
    return tuple(chunks), at


def _usual_chunk(raw: bytes, at: int) -> tuple[Chunk, int] | None:
    found = _USUAL.match(raw, at, at + _USUAL_BYTES_MAX)
    if found is None:
        return None
    path, codec, values, stored, place, highest, lowest = found.groups()
    if not _is_path(path):  # it goes on behind something that looks like what stands behind one
        return None
    chunk = Chunk(
        small_number(codec),
        small_number(values),
        small_number(stored),
        small_number(place),
        lowest=None if lowest is None else lowest[1:],
        highest=None if highest is None else highest[1:],
    )
    return chunk, found.end()


@lru_cache(maxsize=4_096)
def _is_path(raw: bytes) -> bool:
    """Whether this is a list of strings and no more."""
    try:
        return read_struct(b"\x19" + raw + b"\x00", 0, _PATH)[1] == len(raw) + 2
    except ThriftError:
        return False


def _any_chunk(raw: bytes, at: int) -> tuple[Chunk, int]:
    fields, at = read_struct(raw, at, _CHUNK)
    if not fields.keys().isdisjoint((8, 9)):
        raise ThriftError("an encrypted column")
    told: Fields = fields[3]
    statistics: Fields = told.get(12, {})
    return Chunk(told[4], told[5], told[7], told[9], 11 in told, statistics.get(6), statistics.get(5)), at


_ROW_GROUP = Shape(
    {1: LIST, 2: I64, 3: I64, 4: LIST, 5: I64, 6: I64, 7: I16},
    frozenset((1, 2, 3)),
    {1: _read_chunks, 4: STRUCT},
)
_FILE = Shape(
    {
        1: I32,
        2: LIST,
        _NUM_ROWS: I64,
        _ROW_GROUPS: LIST,
        5: LIST,
        6: BINARY,
        7: LIST,
        _ENCRYPTION: STRUCT,
        _SIGNING_KEY: BINARY,
    },
    frozenset((1, _SCHEMA, _NUM_ROWS, _ROW_GROUPS)),
    {_SCHEMA: _read_schema, _ROW_GROUPS: _ROW_GROUP, 5: STRUCT, 7: STRUCT},
)
