"""Parquet field ids: each data file has the field ids of its topic, by any writer. Older files without
field ids are read too."""

from __future__ import annotations

from unittest import mock

import pyarrow as pa
import pytest

from tests.engine.conftest import SCHEMA, payments
from tests.support.field_ids import field_ids
from txn_engine import Engine
from txn_engine.maintain import MaintenancePolicy
from txn_engine.schemas.layout import TIMESTAMP_TYPE, Layout

EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
NESTED = pa.schema(
    [
        ("number", pa.int64()),
        ("lists", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.large_string()))]))),
        ("map", pa.map_(pa.string(), pa.struct([("c", pa.float64())]))),
        ("fixed", pa.list_(pa.int8(), 2)),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)
NESTED_IDS = {
    "number": 1,
    "lists": 2,
    "map": 3,
    "fixed": 4,
    "kind": 5,
    "lists.element": 6,
    "lists.element.a": 7,
    "lists.element.b": 8,
    "lists.element.b.element": 9,
    "map.key": 10,
    "map.value": 11,
    "map.value.c": 12,
    "fixed.element": 13,
}


def _without_any(layout: Layout) -> pa.Schema:
    own = [pa.field("_offset_delta", pa.int64(), False), pa.field("_timestamp", TIMESTAMP_TYPE, False)]
    return pa.schema([*layout.arrow, *own])


def produce_as_before(engine: Engine, records: pa.Table) -> None:
    """Write records into `payments-0` in a file without field ids, as older versions did."""
    with mock.patch.object(Layout, "physical", property(_without_any)):
        engine.producer().produce("payments", records, partition=0).result()


@pytest.mark.parametrize("rows", [3, 40_000])
def test_every_producers_file_has_them(engine: Engine, rows: int) -> None:
    """Small and large files have the topic's field ids: first the columns in their order, then what is nested
    in them, depth first.

    Field ids and other metadata of the caller's own columns are not stored.
    """
    engine.admin.create_topic("nested", partitions=1, schema=NESTED)
    row = {
        "number": 1,
        "lists": [{"a": 1, "b": ["x"]}],
        "map": [("k", {"c": 1.0})],
        "fixed": [1, 2],
        "kind": "q",
    }
    foreign = pa.schema(
        [field.with_metadata({"PARQUET:field_id": "77", "of": "another"}) for field in NESTED]
    )
    producer = engine.producer()
    producer.produce("nested", pa.Table.from_pylist([row] * rows, schema=foreign)).result()
    (found,) = field_ids(engine.store, "nested").values()
    assert found == NESTED_IDS
    read = engine.scan("nested").to_table()
    assert read.num_rows == rows
    assert not any(field.metadata for field in read.schema)
    assert engine.admin.verify().findings == ()


def test_what_is_inside_an_extension_type_has_none_and_is_counted(engine: Engine) -> None:
    """Fields inside an extension type have no field id, because Arrow takes none for them. They are counted
    all the same, so the columns after them keep their ids."""
    schema = pa.schema([("tensor", pa.fixed_shape_tensor(pa.int8(), (2,))), ("list", pa.list_(pa.int8()))])
    engine.admin.create_topic("tensors", partitions=1, schema=schema)
    tensors = pa.ExtensionArray.from_storage(schema.field(0).type, pa.array([[1, 2]], pa.list_(pa.int8(), 2)))
    table = pa.Table.from_arrays([tensors, pa.array([[3]], pa.list_(pa.int8()))], schema=schema)
    engine.producer().produce("tensors", table).result()
    (found,) = field_ids(engine.store, "tensors").values()
    assert found == {"tensor": 1, "list": 2, "list.element": 4}
    assert engine.admin.verify().findings == ()


def test_files_of_before_have_none_and_are_read_beside_new_ones(engine: Engine) -> None:
    """Scans and polls read files with and without field ids together, and `verify` finds nothing wrong.
    Compaction merges both into a file with field ids."""
    produce_as_before(engine, payments(1, 2))
    engine.producer().produce("payments", payments(3, 4), partition=0).result()
    expected = {"account_id": 1, "amount": 2}
    assert sorted(field_ids(engine.store).values(), key=len) == [{}, expected]
    assert engine.scan("payments").to_table().column("account_id").to_pylist() == [1, 2, 3, 4]
    with engine.consumer() as consumer:
        consumer.subscribe(["payments"])
        batch = consumer.poll()
        assert batch is not None
        assert batch.column("account_id").to_pylist() == [1, 2, 3, 4]
        assert not any(field.metadata for field in batch.schema)
    assert engine.admin.verify().findings == ()
    before = set(field_ids(engine.store))
    engine.maintenance.compact("payments", policy=EAGER)
    (merged,) = (ids for key, ids in field_ids(engine.store).items() if key not in before)
    assert merged == expected
    assert engine.scan("payments").to_table().column("account_id").to_pylist() == [1, 2, 3, 4]
    assert engine.admin.verify().findings == ()


def test_compaction_by_key_keeps_them(engine: Engine) -> None:
    """Compaction merges files with and without field ids."""
    engine.admin.create_topic(
        "table", partitions=1, schema=SCHEMA, key="account_id", cleanup_policy="compact"
    )
    for amount in ("1.00", "2.00"):
        engine.producer().produce("table", payments(1, 2, amount=amount), partition=0).result()
    before = set(field_ids(engine.store, "table"))
    engine.maintenance.compact("table", policy=EAGER)
    (compacted,) = (ids for key, ids in field_ids(engine.store, "table").items() if key not in before)
    assert compacted == {"account_id": 1, "amount": 2}
    assert engine.scan("table").to_table().num_rows == 2
