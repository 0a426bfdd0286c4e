"""The Parquet field ids of data files, as Arrow reads them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from storage import ObjectStore

DELTA_ID, TIMESTAMP_ID = 2_147_483_001, 2_147_483_002


def ids_of(data: bytes) -> dict[str, int]:
    """The ids of a file by dotted path, as Arrow reads them. The engine's own two columns are checked and
    left out."""
    schema = pq.read_schema(pa.BufferReader(data))
    found = dict(part for field in schema for part in _ids("", field))
    own = (found.pop("_offset_delta", None), found.pop("_timestamp", None))
    assert own in ((DELTA_ID, TIMESTAMP_ID), (None, None))
    return found


def _ids(above: str, field: pa.Field) -> Iterator[tuple[str, int]]:
    path = f"{above}{field.name}"
    if field.metadata and b"PARQUET:field_id" in field.metadata:
        yield path, int(field.metadata[b"PARQUET:field_id"])
    kind = field.type
    inside = (
        [kind.key_field, kind.item_field]
        if pa.types.is_map(kind)
        else map(kind.field, range(kind.num_fields))
    )
    for member in inside:
        yield from _ids(f"{path}.", member)


def field_ids(store: ObjectStore, topic: str = "payments") -> dict[str, dict[str, int]]:
    """The ids in each data file of a topic, by key."""
    keys = [info.key for info in store.list(f"topics/{topic}/") if "/data/" in info.key]
    return {key: ids_of(store.get(key)) for key in keys}
