"""A topic's columns change at random with records between the changes, and every reader returns the rows of a
naive model."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from tests.schemas.model import ModelTopic
from tests.suite.tiers import in_shard
from txn_engine import Engine
from txn_engine.maintain import MaintenancePolicy

EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
OWN = ["_partition", "_offset", "_timestamp"]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    own = [name for name in (*OWN, "_topic") if name in table.schema.names]
    return sorted(table.drop_columns(own).to_pylist(), key=lambda row: row["id"])


def polled(engine: Engine) -> pa.Table:
    with engine.consumer() as consumer:
        consumer.subscribe(["t"])
        table = consumer.poll()
        assert table is not None
        return table


@pytest.mark.parametrize("seed", in_shard("engines", range(20), keep=3))
def test_every_reader_gives_the_models_rows(seed: int) -> None:
    """Scans, consumers, the log itself and SQL return the model's rows, while small files are merged now and
    then. `verify` agrees."""
    model = ModelTopic(random.Random(seed))
    with txn_engine.connect(f"memory://schemas-{seed}") as engine:
        engine.admin.create_topic("t", partitions=1, schema=model.schema)
        producer = engine.producer()
        for _step in range(6):
            producer.produce("t", model.produce(model.chance.randint(1, 4))).result()
            engine.admin.alter_topic("t", model.change())
            if model.chance.random() < 0.3:
                engine.maintenance.compact("t", policy=EAGER)
            scanned = engine.scan("t").to_table()
            assert scanned.schema.names == [*model.schema.names, *OWN]
            assert [scanned.schema.field(name).type for name in model.schema.names] == model.schema.types
            assert rows_of(scanned) == model.expected()
        producer.produce("t", model.produce(2)).result()
        expected = model.expected()
        assert rows_of(polled(engine)) == expected
        assert rows_of(engine.partition("t", 0).read(0)) == expected
        found = engine.sql("SELECT * FROM t")
        assert [found.schema.field(name).type for name in model.schema.names] == model.schema.types
        assert rows_of(found) == expected
        assert engine.admin.verify().findings == ()
