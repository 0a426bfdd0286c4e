"""A time of milliseconds that no count of microseconds reaches: SQL shows it, and all other records, as `scan` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import txn_engine
from tests.sql.test_rows import put
from tests.support.refusals import refused
from txn_engine import Engine, RenameColumn
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

MS = pa.timestamp("ms")
FAR = 2**62
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", MS),
        ("zoned", pa.timestamp("ms", tz="Europe/Prague")),
        ("list", pa.list_(MS)),
        ("s", pa.struct([("x", pa.timestamp("ms", tz="UTC")), ("name", pa.string())])),
        ("map", pa.map_(pa.string(), MS)),
        ("second", pa.timestamp("s")),
        ("uuid", pa.uuid()),
    ]
)


def records(ids: list[int], time: int) -> pa.Table:
    """Records of this time in each column."""
    count = len(ids)
    at = pa.array([time] * count).cast(MS)
    struct = pa.StructArray.from_arrays(
        [at.cast(pa.timestamp("ms", tz="UTC")), pa.array(["n"] * count)], fields=list(SCHEMA.field("s").type)
    )
    values = [
        pa.array(ids),
        at,
        at.cast(SCHEMA.field("zoned").type),
        pa.array([[time]] * count).cast(pa.list_(MS)),
        struct,
        pa.MapArray.from_arrays(list(range(count + 1)), ["k"] * count, at),
        pa.array([time // 1_000] * count).cast(pa.timestamp("s")),
        pa.array([b"a" * 16] * count, pa.binary(16)).cast(pa.uuid()),
    ]
    return pa.table(values, schema=SCHEMA)


@pytest.fixture(params=["memory", "folder"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A topic whose files have times of now and far ones, under two versions of its schema, and one with a cut file."""
    url = f"file://{tmp_path}/ledger" if request.param == "folder" else f"memory://{tmp_path.name}"
    with txn_engine.connect(url) as made:
        made.admin.create_topic("times", partitions=1, schema=SCHEMA)
        for ids, time in (([0, 1], 1_000), ([2, 3], FAR), ([4], 2_000), ([5], -FAR)):
            put(made, "times", records(ids, time))
        made.admin.alter_topic("times", [RenameColumn("at", "moment")])
        later = records([6, 7], 3_000)
        put(
            made,
            "times",
            later.rename_columns(["moment" if name == "at" else name for name in later.schema.names]),
        )
        yield made


def test_every_record_is_shown_as_scan_shows_it(engine: Engine) -> None:
    expected = engine.scan("times").to_table()
    assert engine.sql("SELECT * EXCLUDE (_topic) FROM times ORDER BY _offset").equals(expected)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("SELECT id FROM times WHERE moment > '2020-01-01' ORDER BY id", [2, 3]),
        ("SELECT id FROM times ORDER BY moment DESC, id LIMIT 3", [2, 3, 6]),
        ("SELECT id FROM times WHERE moment = (SELECT min(moment) FROM times)", [5]),
        (
            "SELECT a.id FROM times a JOIN times b USING (moment) GROUP BY a.id HAVING count(*) = 1 ORDER BY 1",
            [4, 5],
        ),
        (
            "SELECT id FROM times WHERE TRY_CAST(zoned AS TIMESTAMP) < TIMESTAMP '2020-01-01' ORDER BY id",
            [0, 1, 4, 6, 7],
        ),
        (
            "SELECT id FROM times WHERE list[1] = s.x AND map['k'] = moment AND _offset < 4 ORDER BY id",
            [0, 1, 2, 3],
        ),
    ],
)
def test_queries_compute_with_the_records(engine: Engine, query: str, ids: list[int]) -> None:
    assert engine.sql(query).column("id").to_pylist() == ids


@pytest.mark.parametrize(
    "query",
    [
        "SELECT moment::VARCHAR FROM times",
        "SELECT year(moment) FROM times",
        "SELECT id FROM times WHERE moment > TIMESTAMP '2020-01-01'",
        "SELECT make_timestamp_ms(4611686018427387904) FROM times",
    ],
)
def test_a_conversion_that_such_a_time_does_not_have_is_refused(engine: Engine, query: str) -> None:
    with refused(InvalidRequestError, Reason.BAD_DATETIME):
        engine.sql(query)
    assert engine.sql("SELECT count(id) AS n FROM times WHERE id >= 0").to_pylist() == [{"n": 8}]
