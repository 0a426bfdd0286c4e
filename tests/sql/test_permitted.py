"""`engine.sql` runs what computes with the records of topics, and shows nothing that DuckDB says of itself."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from tests.sql.test_rows import put
from tests.sql.tpch import QUERIES, tables
from tests.support.refusals import refused
from tests.tables.ledgers import engine_on
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.reasons import Reason
from txn_engine.sql.permitted import ANSWERED

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amt", pa.decimal128(18, 2)),
        ("f", pa.float64()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", tz="UTC")),
        ("l", pa.list_(pa.int64())),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("b", pa.bool_()),
        ("bin", pa.binary()),
        ("j", pa.string()),
    ]
)
ROWS = [
    {
        "id": number,
        "name": f"n{number % 3}",
        "amt": Decimal(number),
        "f": number / 2,
        "d": dt.date(2020, 1, 1 + number),
        "ts": dt.datetime(2020, 1, 1, number, tzinfo=dt.UTC),
        "tz": dt.datetime(2020, 1, 1, number, tzinfo=dt.UTC),
        "l": [number, number + 1],
        "s": {"a": number, "b": "x"},
        "m": [("k", number)],
        "b": number % 2 == 0,
        "bin": b"ab",
        "j": '{"a": [1, 2, {"b": 3}]}',
    }
    for number in range(8)
]
USED = [
    query.strip()
    for query in Path(__file__).with_name("used.sql").read_text(encoding="utf-8").split(";\n")
    if query.strip()
]
"""What people write in queries: each has to run."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with engine_on() as made:
        for topic in ("t", "u"):
            made.admin.create_topic(topic, partitions=1, schema=SCHEMA)
            put(made, topic, pa.Table.from_pylist(ROWS, SCHEMA))
        yield made


@pytest.mark.parametrize("query", USED)
def test_what_computes_with_records_runs(engine: Engine, query: str) -> None:
    """A query runs if its parts can only compute with records."""
    engine.sql(query)


def test_the_queries_of_tpch() -> None:
    """The 22 queries have the answers that DuckDB has over the same tables."""
    data = tables()
    empty = 0
    with engine_on() as engine, duckdb.connect() as beside:
        for topic, table in data.items():
            engine.admin.create_topic(topic, partitions=1, schema=table.schema)
            put(engine, topic, table)
            beside.register(topic, table)
        for query in QUERIES:
            expected = beside.sql(query).to_arrow_table().to_pylist()
            assert engine.sql(query).to_pylist() == expected, query
            empty += not expected
    assert (len(QUERIES), empty) == (22, 0)


def test_names_that_duckdb_answers_are_columns_or_unknown(engine: Engine) -> None:
    """A name of DuckDB's functions, settings, words, views and schemas is a column, a time, or refused."""
    with duckdb.connect() as beside:
        found = beside.execute(
            "SELECT function_name FROM duckdb_functions() UNION SELECT name FROM duckdb_settings()"
            " UNION SELECT keyword_name FROM duckdb_keywords() UNION SELECT view_name FROM duckdb_views()"
            " UNION SELECT column_name FROM duckdb_columns() UNION SELECT schema_name FROM duckdb_schemas()"
        ).fetchall()
        names = {name for (name,) in found if name.isidentifier()}
        beside.execute("CREATE TABLE t (id BIGINT)")
        answered = {name for name in names if _is_answered(beside, name)}
    assert len(names) > 1_000
    assert answered >= set(ANSWERED)
    by_us = set()
    for name in answered:
        with suppress(InvalidRequestError):
            engine.sql(f"SELECT {name} FROM t")
            by_us.add(name)
    time = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
    assert by_us - {"id", "name"} <= time | {"null", "true", "false"}


def _is_answered(beside: duckdb.DuckDBPyConnection, name: str) -> bool:
    with suppress(duckdb.Error):
        beside.sql(f"SELECT {name} FROM t")
        return True
    return False


@pytest.mark.parametrize("name", ANSWERED)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT {} FROM t",
        'SELECT upper("{}") AS name FROM t WHERE false',
        "SELECT id FROM t ORDER BY {}",
        "SELECT id FROM t WHERE name = {}",
        "SELECT (SELECT {}) FROM t, (SELECT 1 AS other)",
        "WITH w AS (SELECT id AS {} FROM t) SELECT {} FROM t",
        "SELECT list_transform(l, lambda x: {}) FROM t",
    ],
)
def test_what_duckdb_says_of_itself_by_a_name(engine: Engine, query: str, name: str) -> None:
    with refused(InvalidRequestError, Reason.NOT_PERMITTED_IN_SQL):
        engine.sql(query.format(name, name))


def test_a_column_may_have_a_name_that_duckdb_answers(engine: Engine) -> None:
    engine.admin.create_topic(
        "people", partitions=1, schema=pa.schema([(name, pa.int64()) for name in ANSWERED])
    )
    put(engine, "people", pa.table({name: [number] for number, name in enumerate(ANSWERED)}))
    found = engine.sql(f"SELECT {', '.join(ANSWERED)} FROM people p WHERE p.user = user")
    assert found.to_pylist() == [{name: number for number, name in enumerate(ANSWERED)}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT s.* FROM t ORDER BY id LIMIT 1", {"a": 0, "b": "x"}),
        ("SELECT unnest(s), id FROM t ORDER BY id LIMIT 1", {"a": 0, "b": "x", "id": 0}),
        ("SELECT s.*, t.amt FROM t ORDER BY id LIMIT 1", {"a": 0, "b": "x", "amt": Decimal(0)}),
    ],
)
def test_the_fields_of_a_struct_are_not_columns_of_the_topic(
    engine: Engine, query: str, expected: dict[str, object] | None
) -> None:
    """A field that is called like a column has its own type."""
    (found,) = engine.sql(query).to_pylist()
    assert found == expected


def test_a_plain_column_keeps_its_type_next_to_a_subquery(engine: Engine) -> None:
    """A subquery gives one column, so what it is made of says nothing about the columns next to it."""
    engine.admin.create_topic("keys", partitions=1, schema=pa.schema([("k", pa.uuid())]))
    put(engine, "keys", pa.table({"k": pa.array([uuid.UUID(int=1).bytes], pa.binary(16)).cast(pa.uuid())}))
    for other in ("(SELECT max(x) FROM unnest([1]) AS u(x))", "EXISTS (SELECT * FROM t)"):
        assert engine.sql(f"SELECT k, {other} AS other FROM keys").schema.field("k").type == pa.uuid()


def test_an_error_says_what_a_name_may_be(engine: Engine) -> None:
    with pytest.raises(
        TxnEngineError, match="'session_user', which is not a column here; expected columns of"
    ):
        engine.sql("SELECT session_user FROM t")
