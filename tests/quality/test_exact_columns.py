"""Whatever type a column has: another value in it is found, or the check is refused or errored by name."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.quality.ledger import create, in_memory
from tests.support.refusals import refused
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.loading import load_files
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
    yield from in_memory(tmp_path.name)


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
    create(engine, "rows", rows_of(kind, value))
    result = prove_file(engine, tmp_path, f"id;x\n1;{cell}\n")
    (check,) = result.errored
    assert check.name == "row_values_equal"
    assert "column 'x' of rows" in check.detail


CELLS: list[tuple[pa.DataType, str, str]] = [
    (pa.time64("us"), "09:30:00", "09:30:00.000001"),
    (pa.time64("ns"), "09:30:00.123456789", "09:30:00.123456788"),
    (pa.time32("s"), "09:30:00", "09:30:01"),
    (pa.time32("ms"), "23:59", "23:59:00.001"),
    (pa.uuid(), "0000000A-0000-0000-0000-000000000005", "0000000a-0000-0000-0000-000000000004"),
    (pa.json_(), '{"a": 1}', '{"a":1}'),
    (pa.timestamp("ns", "UTC"), "2024-01-01T00:00:00.123456789Z", "2024-01-01T00:00:00.123456788Z"),
    (pa.binary(3), "abc", "abd"),
    (pa.string_view(), "a", "b"),
    (pa.dictionary(pa.int8(), pa.string()), "a", "b"),
    (pa.decimal128(38, 10), "0.1", "0.1000000001"),
]
"""For each type a cell of a file, and one that means another value."""


def write_cells(path: Path, at: int) -> Path:
    rows = [["id", *(f"x{number}" for number in range(len(CELLS)))], ["1", *(row[at] for row in CELLS)]]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    return path


def test_a_file_of_every_type_is_proven(engine: Engine, tmp_path: Path) -> None:
    """A file that was loaded is proven, whatever types its columns have. Every column with another value is named."""
    schema = pa.schema([("id", pa.int64()), *((f"x{at}", kind) for at, (kind, _, _) in enumerate(CELLS))])
    engine.admin.create_topic("rows", partitions=1, schema=schema)
    right, other = write_cells(tmp_path / "right.csv", 1), write_cells(tmp_path / "other.csv", 2)
    load_files(engine, "rows", right, run_id="1", delimiter=";")
    declared = Declaration("rows", ("id",))
    proven = check_exactly_once(engine, declared, input_file=right, report_folder=tmp_path / "right")
    assert proven.success, (proven.failed, proven.errored)
    result = check_exactly_once(engine, declared, input_file=other, report_folder=tmp_path / "other")
    (check,) = result.failed
    (example,) = check.examples
    assert check.name == "row_values_equal"
    assert all(f"x{at} " in example["in the topic"] for at in range(len(CELLS)))


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_zeros_of_either_sign(engine: Engine, tmp_path: Path, kind: pa.DataType) -> None:
    """A load keeps the sign of -0.0, and a file with the other sign is another file."""
    create(engine, "rows", rows_of(kind, -0.0, 0.0, 0.1, None))
    assert prove_file(engine, tmp_path, "id;x\n1;-0.0\n2;0.0\n3;0.1\n4;\n").success
    (check,) = prove_file(engine, tmp_path, "id;x\n1;0.0\n2;-0.0\n3;0.1\n4;\n").failed
    assert (check.name, check.wrong) == ("row_values_equal", 2)


def test_a_text_that_takes_no_null(engine: Engine, tmp_path: Path) -> None:
    """Where a text column takes no null, an empty field is the empty text."""
    schema = pa.schema([("id", pa.string(), False), ("x", pa.binary(), False)])
    engine.admin.create_topic("rows", partitions=1, schema=schema)
    (tmp_path / "f.csv").write_text('id;x\n;\na;""\n')
    load_files(engine, "rows", tmp_path / "f.csv", run_id="1", delimiter=";")
    assert prove_file(engine, tmp_path, 'id;x\n;\na;""\n').success


def test_a_wide_decimal_as_a_record_id(engine: Engine, tmp_path: Path) -> None:
    """A record id that SQL does not hold exactly is refused before anything is read."""
    create(engine, "rows", rows_of(WIDE, MANY_AND_ONE))
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


COUNTS = [1_704_067_200_123_456_789, 1_704_067_200_123_456_790]


def of_counts(kind: pa.DataType, counts: list[int]) -> pa.Array[Any]:
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array(counts, width).cast(kind)


def in_struct(values: pa.Array[Any]) -> pa.Array[Any]:
    return pa.StructArray.from_arrays([values], ["t"])


UNLIKE: list[pa.Array[Any]] = [
    pa.array([["x"], ["y"]], pa.list_(pa.string())),
    pa.array([[None], []], pa.list_(pa.string())),
    pa.array([None, ""], pa.string()),
    pa.array([{"s": None}, {"s": ""}], pa.struct([("s", pa.string())])),
    pa.array([[("a", 1)], [("a", 2)]], pa.map_(pa.string(), pa.int64())),
    pa.array([[Decimal(10**37)], [Decimal(10**37 + 1)]], pa.list_(pa.decimal256(38, 0))),
    pa.array([2**64 - 1, 2**64 - 2], pa.uint64()),
    pa.array([[2**53], [2**53 + 1]], pa.large_list(pa.int64())),
    of_counts(pa.date32(), [2**31 - 1, 2**31 - 2]),
    of_counts(pa.timestamp("us"), [2**63 - 1, 2**63 - 2]),
    of_counts(pa.timestamp("us", "UTC"), [-(2**63), -(2**63) + 1]),
    of_counts(pa.timestamp("ns"), COUNTS),
    of_counts(pa.timestamp("ns", "UTC"), COUNTS),
    in_struct(of_counts(pa.timestamp("ns", "UTC"), COUNTS)),
    of_counts(pa.time64("ns"), [34_200_000_000_001, 34_200_000_000_002]),
    in_struct(of_counts(pa.time64("ns"), [34_200_000_000_001, 34_200_000_000_002])),
    of_counts(pa.time32("s"), [34_200, 34_201]),
    of_counts(pa.duration("ns"), [1, 2]),
    in_struct(of_counts(pa.duration("ns"), [1, 2])),
    pa.array([bytes(16), bytes(15) + b"\1"], pa.uuid()),
    in_struct(pa.array([bytes(16), bytes(15) + b"\1"], pa.uuid())),
    pa.array(['{"a":1}', '{"a": 1}'], pa.json_()),
    pa.array([b"abc", b"abd"], pa.binary(3)),
    pa.array(["a", "b"], pa.dictionary(pa.int8(), pa.string())),
    pa.array(["a\0b", "a\0c"], pa.string_view()),
]
"""Two values of each type that differ in the last thing that the type keeps."""


def test_another_value_of_every_type_is_found(engine: Engine, tmp_path: Path) -> None:
    """Whatever type a column has, an output with another value in it is red, and the report shows both."""
    kinds = {f"x{at}": values for at, values in enumerate(UNLIKE)}
    for topic, at in (("rows", 0), ("copies", 1)):
        columns = {name: values[at : at + 1] for name, values in kinds.items()}
        create(engine, topic, pa.table({"id": pa.array([1], pa.int64()), **columns}))
    result = prove_outputs(engine, tmp_path, *(SameRows({"id": "id", name: name}) for name in kinds))
    assert result.errored == ()
    assert [check.name for check in result.failed] == [
        "identity_in_copies",
        *(f"identity_in_copies_{number}" for number in range(2, len(kinds) + 1)),
    ]
    for name, check in zip(kinds, result.failed, strict=True):
        shown = {example[name] for example in check.examples}
        assert len(shown) == 2 or kinds[name].type == pa.string(), (
            name,
            shown,
        )  # null and "" are written alike


@pytest.mark.parametrize("relation", [SET, LATEST])
def test_another_list_in_other_relations(engine: Engine, tmp_path: Path, relation: Relation) -> None:
    """A list that differs makes every relation red."""
    for topic, value in (("rows", ["x"]), ("copies", ["y"])):
        create(engine, topic, rows_of(pa.list_(pa.string()), value))
    assert not prove_outputs(engine, tmp_path, relation).success


def test_a_query_over_a_wide_decimal(engine: Engine, tmp_path: Path) -> None:
    """A query may read any column, so it is refused over a topic with a column that SQL does not hold exactly."""
    for topic, value in (("rows", MANY), ("copies", MANY_AND_ONE)):
        create(engine, topic, rows_of(WIDE, value))
    query = "SELECT CAST(x AS VARCHAR) AS x FROM {}"
    with refused(InvalidRequestError, Reason.INEXACT_TYPE):
        prove_outputs(engine, tmp_path, SqlReduction(query.format("topic"), query.format("output")))


def test_a_float_inside_what_a_query_gives(engine: Engine, tmp_path: Path) -> None:
    """A query whose result holds a float at any depth is errored."""
    for topic in ("rows", "copies"):
        create(engine, topic, rows_of(pa.int64(), 2**53 + 1))
    query = "SELECT [x::DOUBLE] AS x FROM {}"
    result = prove_outputs(engine, tmp_path, SqlReduction(query.format("topic"), query.format("output")))
    (check,) = result.errored
    assert "float" in check.detail


def test_a_suite_over_a_wide_decimal(engine: Engine, tmp_path: Path) -> None:
    """A suite would see doubles in place of wide decimals, so its checks are errored, and the column is named."""
    create(engine, "rows", rows_of(WIDE, MANY_AND_ONE))
    (tmp_path / "suite.yaml").write_text(
        "name: few\nexpectations:\n  - type: expect_column_values_to_not_be_null\n    kwargs: {column: x}\n"
    )
    declared = Declaration("rows", ("id",), suites=(SuiteOn(tmp_path / "suite.yaml"),))
    result = check_exactly_once(engine, declared, report_folder=tmp_path / "report")
    (check,) = result.errored
    assert "column 'x' of rows" in check.detail
