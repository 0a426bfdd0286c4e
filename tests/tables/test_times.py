"""A time that microseconds do not reach is refused when its topic is published: no reader of a table reads it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from tests.support.refusals import refused
from tests.tables.ledgers import EAGER
from txn_engine import AddColumn, DropColumn, Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

MILLIS, LAST = pa.timestamp("ms"), (2**63 - 1) // 1_000
FORMATS = ("delta", "iceberg")


def wrapped(shape: str, kind: Any, count: int) -> tuple[Any, Any]:
    """The type and the value, by itself or inside another."""
    match shape:
        case "list":
            return pa.list_(kind), [None, count]
        case "map":
            return pa.map_(pa.string(), kind), [("a", count)]
        case "struct":
            return pa.struct([("n", pa.int64()), ("t", kind)]), {"n": 2**62, "t": count}
    return kind, count


def appended(engine: Engine, topic: str, kind: Any, counts: list[Any]) -> None:
    """Each value in a file of its own, after a record without one."""
    for number, count in enumerate(counts):
        ids, times = pa.array([2 * number, 2 * number + 1], pa.int64()), pa.array([None, count], kind)
        engine.partition(topic, 0).append(pa.table({"id": ids, "t": times}))


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("shape", ["top", "list", "map", "struct"])
@pytest.mark.parametrize("is_merged", [True, False])
def test_a_time_that_no_reader_reaches(
    engine: Engine, table_format: str, shape: str, is_merged: bool
) -> None:
    """It is refused by the record's place and nothing is published, also where the time is inside of others. When its
    record is erased, the table is published, and its readers read the last times that they reach."""
    kind, good = wrapped(shape, MILLIS, -LAST)
    _, bad = wrapped(shape, MILLIS, LAST + 1)
    engine.admin.create_topic("t", partitions=1, schema=pa.schema([("id", pa.int64()), ("t", kind)]))
    appended(engine, "t", kind, [good, bad])
    if is_merged:
        assert not engine.maintenance.compact(policy=EAGER).failures
    with refused(InvalidRequestError, Reason.BAD_DATETIME) as error:
        engine.tables.publish("t", table_format)
    assert error.value.place == "t-0 offset 3"
    assert engine.tables.status("t") == []
    engine.erase("t", "id = 3", execute=True)
    assert read(engine, table_format) == [0, 1, 2]


def read(engine: Engine, table_format: str) -> list[int]:
    """The ids of the published table, of which all columns are read."""
    uri = engine.tables.publish("t", table_format)[table_format]
    is_delta = table_format == "delta"
    found = (
        DeltaTable(uri).to_pyarrow_table() if is_delta else StaticTable.from_metadata(uri).scan().to_arrow()
    )
    return sorted(found.column("id").to_pylist())


@pytest.mark.parametrize("table_format", FORMATS)
def test_seconds_and_columns_that_were_dropped(engine: Engine, table_format: str) -> None:
    """Seconds reach as far as milliseconds. A column that was dropped is not in the table, whatever it held."""
    kind = pa.timestamp("s", "UTC")
    engine.admin.create_topic("t", partitions=1, schema=pa.schema([("id", pa.int64()), ("t", kind)]))
    appended(engine, "t", kind, [LAST // 1_000 + 1])
    with refused(InvalidRequestError, Reason.BAD_DATETIME):
        engine.tables.publish("t", table_format)
    engine.admin.alter_topic("t", DropColumn("t"))
    engine.admin.alter_topic("t", AddColumn(pa.field("later", MILLIS)))
    assert read(engine, table_format) == [0, 1]
