"""`produce` takes frames, dicts of columns and lists of dicts: each value as it was, or one error with its column."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.support.bare_install import link_required_packages
from tests.support.refusals import refused
from tests.support.servers import REPOSITORY
from txn_engine import AddColumn, Engine, connect
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.reasons import Reason

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.decimal128(18, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("ms", tz="UTC")),
        ("ratio", pa.float64()),
        ("note", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 2**53 + 1,
        "amount": Decimal("0.10"),
        "day": dt.date(2026, 1, 31),
        "at": dt.datetime(2026, 1, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        "ratio": 0.1,
        "note": "caf\u00e9",
        "tags": ["a", None],
    },
    {"id": -1, "amount": None, "day": None, "at": None, "ratio": None, "note": None, "tags": None},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in SCHEMA.names}


@pytest.fixture
def engine() -> Iterator[Engine]:
    with connect("memory://frames") as opened:
        for topic in opened.admin.list_topics():
            opened.admin.delete_topic(topic)
        opened.admin.create_topic("t", schema=SCHEMA)
        yield opened


def produce(engine: Engine, given: Any) -> list[dict[str, Any]]:
    with engine.producer() as producer:
        producer.produce("t", given).result()
    return engine.scan("t").to_table(columns=SCHEMA.names).to_pylist()


def pandas_frame(rows: list[dict[str, Any]] = ROWS) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"id": "int64", "ratio": "float64"})


MADE: dict[str, Callable[[], Any]] = {
    "a list of dicts": lambda: ROWS,
    "rows that lack what is null": lambda: [
        {name: value for name, value in row.items() if value is not None} for row in ROWS
    ],
    "a dict of columns": lambda: COLUMNS,
    "a dict of arrays": lambda: {
        **COLUMNS,
        "id": np.array(COLUMNS["id"]),
        "ratio": pa.array(COLUMNS["ratio"]),
        "note": pl.Series(COLUMNS["note"]),
        "amount": pd.Series(COLUMNS["amount"]),
    },
    "a dict of columns of one index": lambda: {
        **COLUMNS,
        "id": pd.Series(COLUMNS["id"], index=[7, 7]),
        "amount": pd.Series(COLUMNS["amount"], index=[7, 7]),
    },
    "pandas": pandas_frame,
    "pandas, its own types": lambda: pandas_frame().convert_dtypes().astype({"note": "category"}),
    "pandas, an index with a name": lambda: pandas_frame().set_index("id"),
    "pandas, filtered": lambda: pandas_frame([ROWS[1], *ROWS]).iloc[1:],
    "polars": lambda: pl.DataFrame(ROWS),
    "polars, a categorical": lambda: pl.DataFrame(ROWS).with_columns(pl.col("note").cast(pl.Categorical)),
    "polars, other units": lambda: pl.DataFrame(ROWS).with_columns(pl.col("at").dt.cast_time_unit("ns")),
    "numpy, the other byte order": lambda: {**COLUMNS, "id": np.array(COLUMNS["id"], ">i8")},
    "pandas, the other byte order": lambda: pandas_frame().astype({"id": ">i8"}),
    "pandas, sparse": lambda: pandas_frame().astype({"id": pd.SparseDtype("int64", 0)}),
    "other orders": lambda: pl.DataFrame(ROWS).select(reversed(SCHEMA.names)),
}


@pytest.mark.parametrize("name", MADE)
def test_every_value_arrives_as_it_was(engine: Engine, name: str) -> None:
    """Whatever holds the records, readers get the same values."""
    assert produce(engine, MADE[name]()) == ROWS


PRAGUE = ZoneInfo("Europe/Prague")


@pytest.mark.parametrize(
    ("moment", "hour"),
    [
        (dt.datetime(2024, 10, 27, 2, 30, tzinfo=PRAGUE), "2024-10-27 00:30"),
        (dt.datetime(2024, 10, 27, 2, 30, tzinfo=PRAGUE, fold=1), "2024-10-27 01:30"),
        (dt.datetime(2024, 3, 31, 2, 30, tzinfo=PRAGUE), "2024-03-31 01:30"),
    ],
)
def test_an_hour_that_comes_twice_or_never(engine: Engine, moment: dt.datetime, hour: str) -> None:
    """A time with its zone is one moment, also in the hours in which the clocks change."""
    for given in (
        [{**ROWS[0], "at": moment}],
        pd.DataFrame([{**ROWS[0], "at": moment}]).astype({"at": object}),
    ):
        (*_, last) = produce(engine, given)
        assert f"{last['at'].astimezone(UTC):%Y-%m-%d %H:%M}" == hour


@pytest.mark.parametrize(
    "numbers",
    [
        [2.0**53 - 1, -(2.0**53) + 1],
        np.array([2**53 - 1, 1 - 2**53], np.float64),
        [np.float32(2**24 - 1), np.float32(0)],
        np.array([2**24 - 1, 0], np.float32),
    ],
    ids=["list", "array", "list of small floats", "array of small floats"],
)
def test_whole_floats_that_are_one_integer(engine: Engine, numbers: Any) -> None:
    """The largest floats that stand for one integer alone arrive as that integer."""
    assert [row["id"] for row in produce(engine, {**COLUMNS, "id": numbers})] == [int(n) for n in numbers]


def test_a_list_in_each_row_of_an_array(engine: Engine) -> None:
    """An array of two dimensions is a column of lists."""
    found = produce(engine, {**COLUMNS, "tags": np.array([["a", "b"], ["c", "d"]])})
    assert [row["tags"] for row in found] == [["a", "b"], ["c", "d"]]


WRONG: dict[str, tuple[Callable[[], Any], str, Reason | None]] = {
    "a fraction": (lambda: [{**ROWS[0], "id": 1.5}], "'id', row 0", Reason.INEXACT_VALUE),
    "an integer as a large float": (
        lambda: [{**ROWS[0], "id": 2.0**53}],
        "'id', row 0",
        Reason.INEXACT_VALUE,
    ),
    "an integer as a large small float": (
        lambda: [{**ROWS[0], "id": np.float32(-(2**24))}],
        "'id', row 0",
        Reason.INEXACT_VALUE,
    ),
    "a zero with a sign": (lambda: [{**ROWS[0], "id": -0.0}], "'id', row 0", Reason.INEXACT_VALUE),
    "half a cent": (
        lambda: [*ROWS, {"id": 3, "amount": Decimal("0.005")}],
        "'amount', row 2",
        Reason.INEXACT_VALUE,
    ),
    "a float of money": (lambda: [{**ROWS[0], "amount": 0.1}], "'amount', row 0", Reason.INEXACT_VALUE),
    "a time of day": (
        lambda: [{**ROWS[0], "day": dt.datetime(2026, 1, 1, 12, tzinfo=UTC)}],
        "'day', row 0",
        Reason.INEXACT_VALUE,
    ),
    "microseconds": (
        lambda: [{**ROWS[0], "at": dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)}],
        "'at', row 0",
        Reason.INEXACT_VALUE,
    ),
    "a time without a zone": (
        lambda: [{**ROWS[0], "at": dt.datetime(2026, 1, 1)}],  # noqa: DTZ001 -- none is the point
        "'at', row 0",
        Reason.INEXACT_VALUE,
    ),
    "a truth": (lambda: [{**ROWS[0], "id": True}], "'id', row 0", Reason.INEXACT_VALUE),
    "a number as text": (lambda: [{**ROWS[0], "id": "7"}], "'id', row 0", Reason.INEXACT_VALUE),
    "too large a number": (lambda: [{**ROWS[0], "id": 2**63}], "'id', row 0", Reason.INEXACT_VALUE),
    "an unknown column": (lambda: [{**ROWS[0], "nope": 1}], "'nope'", Reason.OTHER_COLUMNS),
    "a missing column": (lambda: {"id": [1]}, "'amount'", Reason.OTHER_COLUMNS),
    "no id": (lambda: [{"note": "x"}], "'id'", Reason.NULL_IN_NOT_NULL),
    "other lengths": (lambda: {**COLUMNS, "id": [1]}, "'id' 1", Reason.BAD_ARGUMENT),
    "pandas, columns of other indexes": (
        lambda: {**COLUMNS, "id": pd.Series([1, 2]), "amount": pd.Series(COLUMNS["amount"], index=[1, 0])},
        "'id' and 'amount'",
        Reason.BAD_ARGUMENT,
    ),
    "one value": (lambda: {**COLUMNS, "id": 1}, "'id' of type int", Reason.BAD_ARGUMENT),
    "pandas, money as floats": (
        lambda: pandas_frame().assign(amount=[0.5, 0.25]),
        "'amount' of type double",
        Reason.TYPE_MISMATCH,
    ),
    "pandas, a fraction": (lambda: pandas_frame().assign(id=[1.0, 1.5]), "'id', row 1", Reason.INEXACT_VALUE),
    "pandas, large floats": (
        lambda: pandas_frame().assign(id=[1.0, 2.0**53]),
        "'id', row 1",
        Reason.INEXACT_VALUE,
    ),
    "numpy, large small floats": (
        lambda: {**COLUMNS, "id": np.array([1, 2**24], np.float32)},
        "'id', row 1",
        Reason.INEXACT_VALUE,
    ),
    "polars, a zero with a sign": (
        lambda: pl.DataFrame([{**ROWS[0], "id": 1.0}, {**ROWS[0], "id": -0.0}]),
        "'id', row 1",
        Reason.INEXACT_VALUE,
    ),
    "pandas, no zone": (
        lambda: pandas_frame().assign(at=pd.to_datetime(["2026-01-01", "2026-01-02"])),
        "'at' of type timestamp[ns]",
        Reason.TYPE_MISMATCH,
    ),
    "pandas, nanoseconds": (
        lambda: pandas_frame().assign(
            at=pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True) + pd.Timedelta(1)
        ),
        "'at', row 0",
        Reason.INEXACT_VALUE,
    ),
    "pandas, mixed values": (
        lambda: pandas_frame().assign(note=["x", 1]),
        "'note', row 1",
        Reason.INEXACT_VALUE,
    ),
    "pandas, an unknown index": (
        lambda: pandas_frame().rename_axis("day_of_load"),
        "'day_of_load'",
        Reason.OTHER_COLUMNS,
    ),
    "pandas, two columns of a name": (
        lambda: pd.concat([pandas_frame(), pandas_frame()[["id"]]], axis=1),
        "'id' is given twice",
        Reason.OTHER_COLUMNS,
    ),
    "pandas, a column without a name": (
        lambda: pandas_frame().rename(columns={"id": 0}),
        "type int",
        Reason.BAD_ARGUMENT,
    ),
    "polars, half a cent": (
        lambda: pl.DataFrame([{**ROWS[0], "amount": Decimal("0.005")}]),
        "'amount', row 0",
        Reason.INEXACT_VALUE,
    ),
    "polars, a fraction": (
        lambda: pl.DataFrame([{**ROWS[0], "id": 1.5}]),
        "'id', row 0",
        Reason.INEXACT_VALUE,
    ),
    "polars, a type that Arrow does not have": (
        lambda: pl.DataFrame([ROWS[0]]).with_columns(pl.lit(1).cast(pl.Int128).alias("id")),
        "'id' holds values",
        Reason.BAD_ARGUMENT,
    ),
    "polars, text": (lambda: pl.DataFrame([{**ROWS[0], "id": "7"}]), "'id' of type", Reason.TYPE_MISMATCH),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_would_be_changed_is_refused(engine: Engine, name: str) -> None:
    """The error names the column, and quotes no value. Nothing is written."""
    make, seen, reason = WRONG[name]
    with refused(InvalidRecordError, reason) as caught:
        produce(engine, make())
    assert seen in str(caught.value)
    assert "2026" not in str(caught.value)
    assert engine.scan("t").to_table().num_rows == 0


@pytest.mark.parametrize(
    "given",
    [None, 7, "rows", [1, 2], ["x"], pl.Series([1]), pl.LazyFrame(ROWS), pd.Series([1]), np.array([1])],
)
def test_what_holds_no_records(engine: Engine, given: Any) -> None:
    """One sentence says what is taken."""
    with refused(InvalidRequestError, Reason.BAD_ARGUMENT) as caught:
        produce(engine, given)
    assert "a list of dicts" in str(caught.value)


def test_no_rows_are_no_records(engine: Engine) -> None:
    """An empty list, and a frame without rows, write nothing."""
    for given in ([], pandas_frame().iloc[:0], pl.DataFrame(ROWS).head(0)):
        assert produce(engine, given) == []


def test_uploads_and_times_of_records(engine: Engine) -> None:
    """Uploads take the same, and each record of a frame may have a time of its own."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        uploads = producer.upload()
        uploads.produce("t", pl.DataFrame(ROWS), timestamp_ms=pa.array([1, 2], pa.int64()))
        with producer.transaction():
            uploads.send()
    found = engine.scan("t").to_table()
    assert found.column("_timestamp").cast(pa.int64()).to_pylist() == [1, 2]
    assert found.select(SCHEMA.names).to_pylist() == ROWS


def test_a_column_that_is_younger_than_the_topic(engine: Engine) -> None:
    """A row that lacks it has its default, as older records have."""
    engine.admin.alter_topic("t", AddColumn(pa.field("currency", pa.string()), default="EUR"))
    with engine.producer() as producer:
        producer.produce("t", [ROWS[0], {**ROWS[1], "currency": "CHF"}]).result()
        producer.produce("t", ROWS[:1]).result()
    assert engine.scan("t").to_table().column("currency").to_pylist() == ["EUR", "CHF", "EUR"]


def test_without_pandas_and_polars(tmp_path: Path) -> None:
    """Lists and dicts need neither of them installed."""
    code = """
import pyarrow as pa, txn_engine
with txn_engine.connect("memory://x") as engine:
    engine.admin.create_topic("t", schema=pa.schema([("id", pa.int64())]))
    with engine.producer() as producer:
        producer.produce("t", [{"id": 1}]).result()
        producer.produce("t", {"id": [2]}).result()
    assert engine.scan("t").to_table().num_rows == 2
try:
    import pandas
except ImportError:
    print("done")
"""
    path = os.pathsep.join(map(str, (link_required_packages(tmp_path), REPOSITORY)))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "done\n"
