"""Empty cells of an input file: a topic may read them in any of three ways, but every cell of a column alike."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.quality.ledger import create, in_memory
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.quality import (
    Amount,
    Declaration,
    Output,
    QualityResult,
    SameRows,
    Totals,
    check_exactly_once,
)
from txn_engine.reasons import Reason

CELLS = ('""', "") * 3
READINGS = {
    "a load": ("", None) * 3,
    "Python's csv": ("",) * 6,
    "pandas": (None,) * 6,
}
"""What programs read in these cells."""
AMOUNTS = [Decimal(2**number) for number in range(6)]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    yield from in_memory(tmp_path.name)


def written(engine: Engine, values: tuple[Any, ...], kind: pa.DataType) -> None:
    """A topic with these values, a copy of it, and the sums of each value."""
    table = pa.table(
        {
            "id": pa.array(range(6), pa.int64()),
            "x": pa.array([value if value is None else value.encode() for value in values], pa.binary()).cast(
                kind
            ),
            "amount": pa.array(AMOUNTS, pa.decimal128(9, 0)),
        }
    )
    create(engine, "rows", table)
    create(engine, "copies", table)
    create(engine, "sums", table.group_by("x").aggregate([("amount", "sum")]).rename_columns(["x", "total"]))


def prove(engine: Engine, folder: Path, *cells: str, nulls: tuple[str, ...] | None = None) -> QualityResult:
    """Hold the topic, its copy and its sums against a file with these cells."""
    file = folder / "rows.csv"
    lines = [f"{at};{cell};{amount}" for at, (cell, amount) in enumerate(zip(cells, AMOUNTS, strict=True))]
    file.write_text("\n".join(["id;x;amount", *lines]) + "\n", encoding="utf-8")
    outputs = (
        Output("copies", SameRows({"x": "x", "id": "id"})),
        Output("sums", Totals({"x": "x"}, {"total": Amount("amount")})),
    )
    declared = Declaration("rows", ("id",), outputs, input_null_values=nulls)
    return check_exactly_once(engine, declared, input_file=file, report_folder=folder / "report")


ALL_WRONG = ["row_values_equal", "identity_in_copies", "totals_in_sums"]


@pytest.mark.parametrize(
    "kind",
    in_shard("damage", [pa.string(), pa.binary(), pa.large_string(), pa.string_view()], keep=2),
    ids=str,
)
@pytest.mark.parametrize("reading", READINGS)
def test_each_reading_is_proven(engine: Engine, tmp_path: Path, reading: str, kind: pa.DataType) -> None:
    """A topic that reads every empty cell of a column in one of the three ways is right, and so are its outputs."""
    written(engine, READINGS[reading], kind)
    result = prove(engine, tmp_path, *CELLS)
    assert result.success, (result.failed, result.errored)


@pytest.mark.parametrize("at", in_shard("damage", range(6), keep=2))
@pytest.mark.parametrize("reading", READINGS)
def test_one_cell_that_is_read_otherwise(engine: Engine, tmp_path: Path, reading: str, at: int) -> None:
    """A topic that reads one cell otherwise than the rest of its column is wrong, and that one record is named."""
    values = list(READINGS[reading])
    values[at] = "" if values[at] is None else None
    written(engine, tuple(values), pa.string())
    result = prove(engine, tmp_path, *CELLS)
    assert [check.name for check in result.failed] == ALL_WRONG
    assert result.errored == ()
    (example,) = result.failed[0].examples
    assert (result.failed[0].wrong, example["offset"]) == (1, str(at))
    assert {example["in the file"], example["in the topic"]} == {'x ""', "x (nothing)"}


def test_an_exchange_is_wrong(engine: Engine, tmp_path: Path) -> None:
    """Where null and the empty text changed places, no reading fits."""
    written(engine, READINGS["a load"], pa.string())
    result = prove(engine, tmp_path, *reversed(CELLS))
    assert [check.name for check in result.failed] == ALL_WRONG


@pytest.mark.parametrize(
    ("reading", "nulls", "is_right"),
    [
        ("a load", ("",), True),
        ("Python's csv", ("",), False),
        ("Python's csv", (), True),
        ("pandas", ("",), False),
        ("a load", (), False),
    ],
)
def test_declared_words_for_null(
    engine: Engine, tmp_path: Path, reading: str, nulls: tuple[str, ...], is_right: bool
) -> None:
    """Where the declaration says what means null, only a load's reading is right."""
    written(engine, READINGS[reading], pa.string())
    result = prove(engine, tmp_path, *CELLS, nulls=nulls)
    assert [check.name for check in result.failed] == ([] if is_right else ALL_WRONG)


def test_other_words_for_null(engine: Engine, tmp_path: Path) -> None:
    """A declared word without quotes is null, and in quotes it is a text."""
    written(engine, ("NA", None, "", None, "", None), pa.string())
    more = ("NA", "", "NA", "", "NA")
    assert prove(engine, tmp_path, '"NA"', *more, nulls=("NA",)).success
    assert not prove(engine, tmp_path, "NA", *more, nulls=("NA",)).success
    assert not prove(engine, tmp_path, '"NA"', *more).success


@pytest.mark.parametrize("reading", READINGS)
def test_ids_that_are_empty(engine: Engine, tmp_path: Path, reading: str) -> None:
    """An id that is a text may be empty as well: a column of ids is read as the topic has it."""
    quoted, unquoted = READINGS[reading][:2]
    rows = pa.table({"id": pa.array(["a", quoted, "b", unquoted]), "part": pa.array([1, 1, 1, 2])})
    create(engine, "rows", rows)
    (tmp_path / "rows.csv").write_text('id;part\na;1\n"";1\nb;1\n;2\n')
    declared = Declaration("rows", ("id", "part"))
    report = tmp_path / "report"
    result = check_exactly_once(engine, declared, input_file=tmp_path / "rows.csv", report_folder=report)
    assert result.success, (result.failed, result.errored)


def test_words_for_null_are_texts() -> None:
    """Words for null are a list of texts, in a file and in Python."""
    with refused(InvalidRequestError, Reason.BAD_FIELD):
        Declaration("rows", ("id",), input_null_values="NA")  # type: ignore[arg-type]
    with refused(InvalidRequestError, Reason.BAD_FIELD):
        Declaration("rows", ("id",), input_null_values=[None])  # type: ignore[arg-type]
