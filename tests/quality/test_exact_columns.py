"""Whatever type a column has: another value in it is found, or the check is refused or errored by name."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from tests.support.internal import FEW_INTERNAL
from tests.support.refusals import refused
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.quality import (
    Declaration,
    LatestByKey,
    Output,
    QualityResult,
    Relation,
    SameRows,
    SameSet,
    SqlReduction,
    SuiteOn,
    check_exactly_once,
)
from txn_engine.reasons import Reason

WIDE = pa.decimal256(76, 0)
MANY, MANY_AND_ONE = Decimal(10**60), Decimal(10**60 + 1)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"memory://{tmp_path.name}", configs=FEW_INTERNAL) as connected:
        yield connected


def write(engine: Engine, topic: str, rows: pa.Table) -> None:
    engine.admin.create_topic(topic, partitions=1, schema=rows.schema)
    with engine.producer(transactional_id=f"load-{topic}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(topic, rows)


def rows_of(kind: pa.DataType, *values: Any) -> pa.Table:
    """A row for each value, numbered from 1 in the column `id`."""
    ids = pa.array(range(1, len(values) + 1), pa.int64())
    return pa.table({"id": ids, "x": pa.array(values, kind)})


def prove_file(engine: Engine, folder: Path, text: str, record_id: str = "id") -> QualityResult:
    file = folder / "rows.csv"
    file.write_text(text, encoding="utf-8")
    declared = Declaration("rows", (record_id,))
    return check_exactly_once(engine, declared, input_file=file, report_folder=folder / "report")


def prove_outputs(engine: Engine, folder: Path, *relations: Relation) -> QualityResult:
    outputs = tuple(Output("copies", relation) for relation in relations)
    return check_exactly_once(engine, Declaration("rows", ("id",), outputs), report_folder=folder / "report")


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [
        (WIDE, str(MANY), MANY_AND_ONE),
        (pa.decimal256(40, 2), "900719925474099.31", Decimal("900719925474099.34")),
        (pa.decimal256(39, 2), "1000000000000000000000.01", Decimal("1000000000000000000000.02")),
    ],
)
def test_a_wide_decimal_beside_the_file(
    engine: Engine, tmp_path: Path, kind: pa.DataType, cell: str, value: Decimal
) -> None:
    """SQL does not hold decimals of more than 38 digits, so comparing such values with the file is errored, and the
    column is named."""
    write(engine, "rows", rows_of(kind, value))
    result = prove_file(engine, tmp_path, f"id;x\n1;{cell}\n")
    (check,) = result.errored
    assert check.name == "row_values_equal"
    assert "column 'x' of rows" in check.detail


def test_a_wide_decimal_as_a_record_id(engine: Engine, tmp_path: Path) -> None:
    """A record id that SQL does not hold exactly is refused before anything is read."""
    write(engine, "rows", rows_of(WIDE, MANY_AND_ONE))
    with refused(InvalidRequestError, Reason.INEXACT_TYPE):
        prove_file(engine, tmp_path, f"id;x\n1;{MANY}\n", record_id="x")


ROWS, SET, LATEST = SameRows({"x": "x"}), SameSet({"x": "x"}), LatestByKey({"id": "id"}, {"x": "x"})


@pytest.mark.parametrize(
    ("kind", "relation"),
    [
        (pa.struct([("d", WIDE)]), ROWS),
        (pa.list_(pa.decimal256(39, 2)), SET),
        (pa.map_(pa.string(), WIDE), LATEST),
        (pa.list_(pa.struct([("d", pa.list_(WIDE))])), ROWS),
        (pa.dictionary(pa.int32(), WIDE), ROWS),
        (pa.list_(pa.float64()), ROWS),
        (pa.struct([("f", pa.float32())]), LATEST),
    ],
)
def test_a_type_that_is_inexact_inside(
    engine: Engine, tmp_path: Path, kind: pa.DataType, relation: Relation
) -> None:
    """Floats and wide decimals are refused at any depth of a column that is compared."""
    for topic in ("rows", "copies"):
        engine.admin.create_topic(topic, schema=pa.schema([("id", pa.int64()), ("x", kind)]))
    with refused(InvalidRequestError, Reason.INEXACT_TYPE):
        prove_outputs(engine, tmp_path, relation)


def test_a_query_over_a_wide_decimal(engine: Engine, tmp_path: Path) -> None:
    """A query may read any column, so it is refused over a topic with a column that SQL does not hold exactly."""
    for topic, value in (("rows", MANY), ("copies", MANY_AND_ONE)):
        write(engine, topic, rows_of(WIDE, value))
    query = "SELECT CAST(x AS VARCHAR) AS x FROM {}"
    with refused(InvalidRequestError, Reason.INEXACT_TYPE):
        prove_outputs(engine, tmp_path, SqlReduction(query.format("topic"), query.format("output")))


def test_a_float_inside_what_a_query_gives(engine: Engine, tmp_path: Path) -> None:
    """A query whose result holds a float at any depth is errored."""
    for topic in ("rows", "copies"):
        write(engine, topic, rows_of(pa.int64(), 2**53 + 1))
    query = "SELECT [x::DOUBLE] AS x FROM {}"
    result = prove_outputs(engine, tmp_path, SqlReduction(query.format("topic"), query.format("output")))
    (check,) = result.errored
    assert "float" in check.detail


def test_a_suite_over_a_wide_decimal(engine: Engine, tmp_path: Path) -> None:
    """A suite would see doubles in place of wide decimals, so its checks are errored, and the column is named."""
    write(engine, "rows", rows_of(WIDE, MANY_AND_ONE))
    (tmp_path / "suite.yaml").write_text(
        "name: few\nexpectations:\n  - type: expect_column_values_to_not_be_null\n    kwargs: {column: x}\n"
    )
    declared = Declaration("rows", ("id",), suites=(SuiteOn(tmp_path / "suite.yaml"),))
    result = check_exactly_once(engine, declared, report_folder=tmp_path / "report")
    (check,) = result.errored
    assert "column 'x' of rows" in check.detail
