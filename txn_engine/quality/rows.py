"""What a reader gets of a topic: rows in files, to be read natively by whoever reduces them, or a table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from txn_engine.schemas.layout import Schemas
from txn_engine.sql.file_parts import FilePart


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows in files, in the order in which a scan lists them."""

    schemas: Schemas
    parts: tuple[FilePart, ...]

    @property
    def schema(self) -> pa.Schema:
        """The topic's columns."""
        return self.schemas.arrow


Rows = FileRows | pa.Table
"""A table stands for itself, `_partition` and `_offset` among its columns."""
