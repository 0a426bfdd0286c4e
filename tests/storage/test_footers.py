"""The columns of a Parquet object are read from its footer alone."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest

from storage import DamagedObjectError, MemoryStore, encode_parquet, stored_columns
from tests.support.faults import FaultyStore

_STORES = count()
SMALL = pa.schema(
    [pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "7"}), ("b", pa.list_(pa.string()))]
)
WIDE = pa.schema([(f"column_{number:04}", pa.int64()) for number in range(1_000)])


def store_of(data: bytes) -> FaultyStore:
    store = FaultyStore(MemoryStore(f"footers-{next(_STORES)}"))
    store.put("a/key", data)
    return store


@pytest.mark.parametrize(("schema", "reads"), [(SMALL, 1), (WIDE, 2)], ids=["small", "wide"])
def test_columns_and_their_ids(schema: pa.Schema, reads: int) -> None:
    """The columns are found in one read if it includes the footer, and in two reads if the footer is
    larger."""
    data = encode_parquet(schema.empty_table(), kind="data")
    store = store_of(data)
    found = stored_columns(store, "a/key", len(data))
    assert found.equals(pa.parquet.read_schema(pa.BufferReader(data)), check_metadata=True)
    assert found.names == schema.names
    assert store.count("get_range") == reads


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 11, 12, 40, -1, -4, -8, -9, -40])
def test_what_is_no_whole_file_is_damaged(cut: int) -> None:
    data = encode_parquet(SMALL.empty_table(), kind="data")[:cut]
    with pytest.raises(DamagedObjectError) as refused:
        stored_columns(store_of(data), "a/key", len(data))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("length", [0, 1, 5, 1_000, 2**31, 2**32 - 1])
def test_a_length_that_is_wrong_is_damage(length: int) -> None:
    data = encode_parquet(SMALL.empty_table(), kind="data")
    data = data[:-8] + length.to_bytes(4, "little") + data[-4:]
    with pytest.raises(DamagedObjectError):
        stored_columns(store_of(data), "a/key", len(data))


def test_an_object_that_is_shorter_than_was_said_is_damaged() -> None:
    data = encode_parquet(SMALL.empty_table(), kind="data")
    with pytest.raises(DamagedObjectError):
        stored_columns(store_of(data), "a/key", len(data) + 1)
