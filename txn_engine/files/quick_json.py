"""Blocks of JSON lines that pyarrow may read, for it reads them as the careful reader does, and much faster.

Which those are is decided here: each line is one object of the topic's columns, each value of the JSON type that its
column takes exactly. pyarrow refuses most others itself; a block with one of those is read with care.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.files.conversion import Conversion
from txn_engine.files.kinds import is_nested
from txn_engine.files.layout import Layout
from txn_engine.files.numbers import DIGITS_MAX
from txn_engine.files.quick import encoded

_LF, _CR, _OPEN, _CLOSE = b"\n\r{}"
_EXPONENT = "[0-9.][eE][+-]?[0-9]"
_ESCAPED = r"\\u00[2346]"
"""A digit, a point, a sign or an exponent of a number may be written so."""


@dataclass(frozen=True)
class JsonBlock:
    """Whole lines. columns: by the schema's names, each in its type or as texts. starts: where each record begins."""

    data: bytes
    columns: dict[str, pa.Array[Any]]
    starts: Any
    first_line: int

    @property
    def rows(self) -> int:
        """How many records."""
        return len(self.starts)

    @cached_property
    def _feeds(self) -> Any:
        return np.flatnonzero(np.frombuffer(self.data, np.uint8) == _LF)

    @property
    def lines(self) -> int:
        """How many lines, blank ones too."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    def line(self, row: int) -> int:
        """The line that a record is on."""
        return self.first_line + int(np.searchsorted(self._feeds, self.starts[row]))

    def text(self, row: int) -> str:
        """The line, without its end."""
        start = int(self.starts[row])
        end = self.data.find(b"\n", start)
        return self.data[start : end if end >= 0 else None].decode().strip()


def quick_schemas(layout: Layout, conversion: Conversion) -> Sequence[pa.Schema]:
    """What pyarrow is asked to read, decimals as numbers, or as strings; none where that would not be exact."""
    if layout.unknown != "refuse" or not len(layout.schema):
        return ()
    fields, texts = [], []
    for field in layout.schema:
        name, kind = layout.name_in_file(field.name), field.type
        if is_nested(kind) or (pa.types.is_decimal(kind) and conversion.decimal != "."):
            return ()
        as_it_is = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        fields.append(pa.field(name, kind if as_it_is or pa.types.is_decimal128(kind) else pa.string()))
        texts.append(pa.field(name, kind if as_it_is else pa.string()))
    return [pa.schema(fields), pa.schema(texts)] if fields != texts else [pa.schema(texts)]


def read_block(layout: Layout, schemas: Sequence[pa.Schema], text: str, first_line: int) -> JsonBlock | None:
    """The records of whole lines; None where they are to be read with care."""
    data = encoded(text)
    starts = None if data is None else _one_each(data)
    if data is None or starts is None or not len(starts):
        return None
    for schema in schemas:
        if not _reads_decimals_right(data, schema):
            continue
        table = _parsed(data, schema)
        if table is None:
            continue
        if table.num_rows != len(starts) or not _is_whole(layout, table):
            return None
        arrays = [column.combine_chunks() for column in table.columns]
        return JsonBlock(data, dict(zip(layout.schema.names, arrays, strict=True)), starts, first_line)
    return None


def _reads_decimals_right(data: bytes, schema: pa.Schema) -> bool:
    """Whether pyarrow reads each decimal in this block right, or refuses it.

    Of 1e-80 it makes 0. Where the digits before the point and those of the scale are more than 38, it may take
    another number: its product with a power of ten overflows.
    """
    scales = [kind.scale for kind in schema.types if pa.types.is_decimal(kind)]
    if not scales:
        return True
    too_many = f"[0-9]{{{max(1, DIGITS_MAX + 1 - max(0, *scales))}}}"
    block = pa.scalar(data, pa.large_binary())
    return not pc.match_substring_regex(block, f"{_EXPONENT}|{_ESCAPED}|{too_many}").as_py()


def _one_each(data: bytes) -> Any:
    """Where each line that is not blank begins; None unless all begin and end as an object does.

    Between an object's end and another one's begin there can be no line end inside of a third; so there are as many
    objects as lines only where each line is one.
    """
    found = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(found == _LF)
    if not len(ends) or ends[-1] < len(data) - 1:
        ends = np.append(ends, len(data))
    starts = np.append(0, ends[:-1] + 1)
    last = ends - 1
    last = last - ((last >= starts) & (found[np.maximum(last, 0)] == _CR))
    is_there = last >= starts
    starts, last = starts[is_there], last[is_there]
    return starts if (found[starts] == _OPEN).all() and (found[last] == _CLOSE).all() else None


def _parsed(data: bytes, schema: pa.Schema) -> pa.Table | None:
    import pyarrow.json as pa_json

    try:
        return pa_json.read_json(
            io.BytesIO(data),
            pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pa_json.ParseOptions(
                explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _is_whole(layout: Layout, table: pa.Table) -> bool:
    """Whether nothing is missing, and no decimal has more digits than its type: pyarrow does not look."""
    for field, column in zip(layout.schema, table.columns, strict=True):
        is_filled = layout.fill.get(field.name) is not None  # where it is not there, and not where it is null
        if column.null_count and (is_filled or not field.nullable or layout.is_in_folders(field.name)):
            return False
        if pa.types.is_decimal(column.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                return False
    return True
