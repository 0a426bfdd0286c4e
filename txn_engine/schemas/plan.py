"""Where the columns that are asked for come from, in a file of another version: one plan for every reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txn_engine.errors import InvalidRequestError, SchemaChangedError
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import Column, Schemas


@dataclass(frozen=True, slots=True)
class Source:
    """What a column is made of: the file's column of this name, cast where it has another type; without one the value
    that stands for it, or nulls.
    """

    name: str
    type: pa.DataType
    stored: str | None
    stored_type: pa.DataType
    fill: Any = None

    @property
    def is_cast(self) -> bool:
        """Whether the file's values have another type."""
        return self.stored_type != self.type


def sources(schemas: Schemas, file_version: int, names: Sequence[str], *, topic: str) -> list[Source]:
    """What columns of the topic are made of, in a file of that version of the schema.

    Raises `SchemaChangedError` for a file of a version that is not known; `InvalidRequestError` for a column that was
    dropped before the file was written, of which it has nothing.
    """
    if names:
        check_known(schemas, file_version, topic=topic)
    asked = schemas.layout.by_name
    return [_source(schemas, asked[name], file_version, topic) for name in names]


def check_known(schemas: Schemas, file_version: int, *, topic: str) -> None:
    """Raise `SchemaChangedError` for a version that is not among those known."""
    if file_version >= len(schemas.layouts):
        raise SchemaChangedError(
            f"a file of version {file_version} of the schema",
            actor=f"read of topic {topic!r}",
            expected=f"at most {len(schemas.layouts) - 1}, as the topic had when it was looked up",
        )


def _source(schemas: Schemas, column: Column, file_version: int, topic: str) -> Source:
    layout = schemas.layouts[file_version]
    stored = layout.by_id.get(column.id)
    if stored is not None:
        return Source(column.name, column.type, stored.name, stored.type)
    if column.id >= layout.next_id:
        return Source(column.name, column.type, None, column.type, column.default)
    raise InvalidRequestError(
        f"column {column.name!r} of version {schemas.version}, which was dropped in version "
        f"{schemas.dropped_in(column.id)}: a file that was written since has none of it",
        actor=f"read of topic {topic!r}",
        expected="a version of the schema with columns that are still there, or a read as of a cut of then",
        reason=Reason.COLUMN_DROPPED,
    )
