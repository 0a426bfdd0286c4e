"""What a reader gets of a topic: whole files and parts of files, to be read natively by whoever reduces them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

PARTITION, OFFSET, OFFSET_DELTA = "_partition", "_offset", "_offset_delta"


@dataclass(frozen=True, slots=True)
class FilePart:
    """A data file, and which of its offsets are meant: from `start` to below `end`; all of them where it `is_whole`.

    `key` and `size`: of the object on the store.
    """

    key: str
    size: int
    partition: int
    base_offset: int
    start: int
    end: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows in files, in the order in which a scan lists them."""

    schema: pa.Schema
    parts: tuple[FilePart, ...]


Rows = FileRows | pa.Table
"""A table stands for itself, `_partition` and `_offset` among its columns."""
