"""What files of one topic and of as many records have alike in their footers, whatever their texts' lengths are.

A form is a footer without the numbers that nothing is decided by: of columns that are not read, how many values they
have, their sizes and places; of those that are read, their places, which come with the form and are for the caller to
judge; and the sizes of the row group. All other bytes count, and what is laid out in any other way has no form.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from storage.parquet_footer import Footer
from storage.thrift import ANY, LIST, STRUCT, Shape, ThriftError, list_head, read_struct, small_number

_V: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_COUNTS: Final = rb"(?:%b)" % b"|".join(re.escape(bytes([16 * n + 6])) + _V * n for n in range(9))
# Rows of the file; a list of one row group, whose first field is the list of its columns.
_ROWS: Final = re.compile(rb"\x16%b\x19\x1c\x19" % _V)
# A column as Arrow writes one without statistics (storage/parquet_footer.py): what stands before its path, and behind.
_BEGIN: Final = re.compile(rb"\x26\x00\x1c\x15%b\x19\x25\x06\x00\x19\x18" % _V)
_END: Final = re.compile(
    rb"(\x15%b)\x16%b\x16%b\x16%b\x26(%b)" % (_V, _V, _V, _V, _V)
    + rb"\x49\x1c\x15%b\x15%b\x15%b\x00" % (_V, _V, _V)
    + rb"(?:\x3c(?:\x16%b\x19|\x29)%b\x19%b\x00)?\x00\x00" % (_V, _COUNTS, _COUNTS)
)
# The row group's bytes, its rows, where it begins, and its bytes as stored.
_GROUP: Final = re.compile(rb"\x16%b(\x16%b)\x26%b\x16%b\x00" % (_V, _V, _V, _V))
_LEAVES_MAX: Final = 1_000


class Form(NamedTuple):
    """What a footer is known by, and where the columns that are read are in its file."""

    known_by: tuple[bytes, ...]
    places: tuple[int, ...]


class FooterForms:
    """How the footers of one schema begin, and its columns' paths; those of `columns` are read.

    schema: the bytes of a footer to the end of its schema.
    """

    def __init__(self, schema: bytes, paths: Collection[str], columns: Collection[str]) -> None:
        encoded = [path.encode() for path in paths]
        self.schema = schema
        self._paths = [(_sized(path), path.decode() in columns) for path in encoded]
        count = len(encoded)
        self._list = bytes([16 * count + STRUCT]) if count < 15 else bytes([0xF0 + STRUCT]) + _varint(count)

    def of(self, footer: bytes) -> tuple[Form, int] | None:
        """The form of a footer of this schema, without what stands behind its row group; and where that begins."""
        rows = _ROWS.match(footer, len(self.schema))
        if rows is None or not footer.startswith(self._list, rows.end()):
            return None
        parts, places = [self.schema, rows[0]], []
        at = rows.end() + len(self._list)
        for path, is_read in self._paths:
            begin = _BEGIN.match(footer, at)
            end = _END.match(footer, begin.end() + len(path)) if begin is not None else None
            if begin is None or end is None or not footer.startswith(path, begin.end()):
                return None
            parts += (begin[0], end[1])
            if is_read:
                parts += (footer[end.end(1) : end.start(2)], footer[end.end(2) : end.end()])
                places.append(small_number(end[2]))
            at = end.end()
        group = _GROUP.match(footer, at)
        if group is None:
            return None
        return Form((*parts, group[1]), tuple(places)), group.end()


def forms_like(raw: bytes, footer: Footer, columns: Collection[str]) -> FooterForms | None:
    """The forms of footers with the schema of this one, which was read; None where they would have none."""
    if len(footer.row_groups) != 1 or len(footer.leaves) > _LEAVES_MAX:
        return None
    try:
        ends, _ = read_struct(raw, 0, _SCHEMA_END)
    except ThriftError:
        return None
    paths = [leaf.path for leaf in footer.leaves]
    if any("." in path for path in paths):  # a group's member, or a name that looks like one
        return None
    return FooterForms(raw[: ends[2]], paths, columns)


def _end_of_list(raw: bytes, at: int) -> tuple[int, int]:
    count, at = list_head(raw, at, STRUCT)
    for _ in range(count):
        _, at = read_struct(raw, at, ANY)
    return at, at


_SCHEMA_END: Final = Shape({2: LIST}, frozenset((2,)), {2: _end_of_list})


def _sized(text: bytes) -> bytes:
    """A string as Thrift has it."""
    return _varint(len(text)) + text


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
