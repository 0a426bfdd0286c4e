"""Iceberg tables of topics whose columns change: by ids, the rows of the naive model; Delta refuses."""

from __future__ import annotations

import random
from typing import Any

import polars
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import txn_engine
from tests.schemas.model import ModelTopic
from txn_engine import AddColumn, DropColumn, InvalidRequestError
from txn_engine.maintain import MaintenancePolicy

EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
OWN = ("_offset_delta", "_timestamp", "log_partition", "log_base_offset")


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("seed", range(6))
def test_icebergs_readers_give_the_models_rows(tmp_path: Any, seed: int) -> None:
    """pyiceberg and Polars at each version; an older cut has its own columns; `verify` agrees."""
    model = ModelTopic(random.Random(100 + seed), with_defaults=False)
    with txn_engine.connect(str(tmp_path)) as engine:
        engine.admin.create_topic("t", partitions=1, schema=model.schema)
        producer = engine.producer()
        for step in range(4):
            producer.produce("t", model.produce(3)).result()
            uri = engine.tables.publish("t", ["iceberg"])["iceberg"]
            found = StaticTable.from_metadata(uri).scan().to_arrow()
            assert [name for name in found.schema.names if name not in OWN] == model.schema.names
            assert by_id(found.drop_columns(list(OWN)).to_pylist()) == model.expected()
            engine.admin.alter_topic("t", model.change())
            if step == 2:
                engine.maintenance.compact("t", policy=EAGER)
        producer.produce("t", model.produce(2)).result()
        uri = engine.tables.publish("t", ["iceberg"])["iceberg"]
        table = StaticTable.from_metadata(uri)
        assert by_id(table.scan().to_arrow().drop_columns(list(OWN)).to_pylist()) == model.expected()
        frame = polars.scan_iceberg(table).select(model.schema.names).collect()
        assert by_id(frame.to_dicts()) == model.expected()
        assert engine.admin.verify().findings == ()


def test_what_a_format_does_not_have_is_refused(tmp_path: Any) -> None:
    """A default, which Iceberg's second format has not; Delta any change at all. What was published stays readable."""
    schema = pa.schema([("id", pa.int64()), ("note", pa.string())])
    with txn_engine.connect(str(tmp_path)) as engine:
        engine.admin.create_topic("t", partitions=1, schema=schema)
        engine.producer().produce("t", pa.table({"id": [1], "note": ["x"]})).result()
        before = engine.tables.publish("t", ["delta", "iceberg"])
        engine.admin.alter_topic("t", AddColumn(pa.field("kind", pa.string()), default="y"))
        with pytest.raises(InvalidRequestError, match="'kind' with a default"):
            engine.tables.publish("t", ["iceberg"])
        with pytest.raises(InvalidRequestError, match="whose columns were changed"):
            engine.tables.publish("t", ["delta"])
        assert polars.scan_delta(before["delta"]).select("id", "note").collect().rows() == [(1, "x")]
        assert StaticTable.from_metadata(before["iceberg"]).scan().to_arrow().num_rows == 1
        engine.admin.alter_topic("t", DropColumn("kind"))
        engine.producer().produce("t", pa.table({"id": [2], "note": ["z"]})).result()
        again = engine.tables.publish("t", ["iceberg"])["iceberg"]
        assert StaticTable.from_metadata(again).scan().to_arrow().num_rows == 2
        assert engine.admin.verify().findings == ()
