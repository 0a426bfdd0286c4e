"""Whatever the columns of a topic are called, a proof judges their values: right ones pass, and wrong ones fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.quality.ledger import create, in_memory
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine import AddColumn, Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.quality import (
    Amount,
    Declaration,
    LatestByKey,
    Output,
    QualityResult,
    Relation,
    SameRows,
    SameSet,
    SqlReduction,
    Totals,
    check_exactly_once,
)
from txn_engine.reasons import Reason

NAMES = [
    "in_output", "in_topic", "records", "latest", "line", "unlike", "times", "in_one_partition", "partition", "offset",
    "r_id", "i_id", "r", "i", "f", "g", "topic", "output", "matched", "wrong", "held", "select", "a.b", 'q"uote', "c0",
    "keys", "missing", "more", "first_line", "side_topic", "latest_id", "waits", "twice", "struct_pack", "id_1",
]  # fmt: skip
"""Words of the queries that a proof makes, and names that SQL needs quotes for."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    yield from in_memory(tmp_path.name)


def write(engine: Engine, topic: str, name: str, values: Sequence[int], kind: pa.DataType) -> None:
    create(
        engine,
        topic,
        pa.table({"id": pa.array(range(len(values)), pa.int64()), name: pa.array(values, kind)}),
    )


def relations(name: str) -> list[Relation]:
    quoted = '"' + name.replace('"', '""') + '"'
    return [
        SameRows({name: name}),
        SameRows({name: name, "id": "id"}),
        SameSet({name: name}),
        Totals({name: name}, count="*"),
        Totals({"id": "id"}, {name: Amount(name)}, "*"),
        LatestByKey({name: name}, {"id": "id"}),
        LatestByKey({"id": "id"}, {name: name}),
        SqlReduction(f"SELECT {quoted} FROM topic", f"SELECT {quoted} FROM output"),
    ]


def prove(engine: Engine, folder: Path, name: str) -> QualityResult:
    outputs = tuple(Output("copies", each) for each in relations(name))
    return check_exactly_once(engine, Declaration("rows", ("id",), outputs), report_folder=folder / "report")


@pytest.mark.parametrize("name", in_shard("damage", NAMES, keep=6))
@pytest.mark.parametrize(("ours", "theirs"), in_shard("damage", [((1, 1), (0, 0)), ((0, 0), (1, 1))], keep=1))
def test_a_column_of_any_name(
    engine: Engine, tmp_path: Path, name: str, ours: tuple[int, ...], theirs: tuple[int, ...]
) -> None:
    """Right outputs pass and wrong ones fail in every relation, whatever a column is called."""
    write(engine, "rows", name, ours, pa.int64())
    write(engine, "copies", name, ours, pa.int64())
    right = prove(engine, tmp_path, name)
    assert right.success, (right.failed, right.errored)
    engine.admin.delete_topic("copies")
    write(engine, "copies", name, theirs, pa.int64())
    wrong = prove(engine, tmp_path, name)
    assert len(wrong.failed) + len(wrong.errored) == len(relations(name))
    assert wrong.errored == ()


@pytest.mark.parametrize("name", in_shard("damage", NAMES, keep=6))
def test_a_record_id_of_any_name(engine: Engine, tmp_path: Path, name: str) -> None:
    """A file is compared row by row, whatever the record id is called, and an id that is 0 counts as any other."""
    rows = pa.table({name: pa.array([0, 1, 2], pa.int64()), "x": pa.array([5, 6, 7], pa.int64())})
    engine.admin.create_topic("rows", partitions=1, schema=rows.schema)
    with engine.producer() as producer:
        producer.produce("rows", rows)
    file = tmp_path / "rows.csv"
    heading = '"' + name.replace('"', '""') + '"'
    declared = Declaration("rows", (name,))
    for cells, wrong in (((5, 6, 7), 0), ((9, 6, 7), 1)):
        file.write_text(f"{heading};x\n" + "".join(f"{at};{cell}\n" for at, cell in enumerate(cells)))
        result = check_exactly_once(engine, declared, input_file=file, report_folder=tmp_path / "report")
        assert [check.wrong for check in result.failed] == [1] * wrong, (result.failed, result.errored)
        assert result.errored == ()


def test_names_that_sql_does_not_tell_apart(engine: Engine, tmp_path: Path) -> None:
    """A topic whose columns differ by case alone is refused before anything is read: SQL would take one for the
    other."""
    rows = pa.table({"id": [1], "x": [1], "X": [2]})
    engine.admin.create_topic("rows", partitions=1, schema=rows.schema)
    with refused(InvalidRequestError, Reason.COLUMN_NAMES_ALIKE):
        check_exactly_once(engine, Declaration("rows", ("id",)), report_folder=tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_query_that_names_a_column_as_we_do(engine: Engine, tmp_path: Path) -> None:
    """A query's column whose name begins with an underscore is errored: it could be taken for one of ours."""
    for topic in ("rows", "copies"):
        write(engine, topic, "x", (1, 1), pa.int64())
    query = 'SELECT x AS "_in_topic" FROM {}'
    outputs = (Output("copies", SqlReduction(query.format("topic"), query.format("output"))),)
    result = check_exactly_once(
        engine, Declaration("rows", ("id",), outputs), report_folder=tmp_path / "report"
    )
    assert [check.name for check in result.errored] == ["sql_in_copies"]


def test_a_column_in_two_parts_of_a_relation() -> None:
    """A column of an output that is named as a key and as a sum, or twice in another way, is refused."""
    for make in (
        lambda: Totals({"k": "k"}, {"k": Amount("x")}),
        lambda: Totals({"k": "k"}, {"x": Amount("x")}, "k"),
        lambda: LatestByKey({"k": "k"}, {"k": "x"}),
    ):
        with refused(InvalidRequestError, Reason.BAD_FIELD):
            Declaration("rows", ("id",), (Output("copies", make()),))


@pytest.mark.parametrize("kind", [pa.uint8(), pa.uint64(), pa.int8(), pa.int64()], ids=str)
def test_amounts_that_are_taken_away(engine: Engine, tmp_path: Path, kind: pa.DataType) -> None:
    """An amount of any whole type is taken away exactly, its lowest value too."""
    bits = kind.bit_width
    low = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (bits - 1))
    high = 2**bits - 1 + low
    rows = pa.table({"id": [1, 2], "way": ["out", "out"], "x": pa.array([low, high], kind)})
    sums = pa.table({"way": ["out"], "x": pa.array([Decimal(-low - high)], pa.decimal128(38, 0))})
    for topic, table in (("rows", rows), ("sums", sums)):
        engine.admin.create_topic(topic, partitions=1, schema=table.schema)
        with engine.producer() as producer:
            producer.produce(topic, table)
    relation = Totals({"way": "way"}, {"x": Amount("x", direction="way", plus=("in",))})
    result = check_exactly_once(
        engine, Declaration("rows", ("id",), (Output("sums", relation),)), report_folder=tmp_path
    )
    assert result.success, (result.failed, result.errored)


# --- columns that the file calls otherwise


def prove_file(engine: Engine, folder: Path, text: str, **declared: Any) -> QualityResult:
    """A topic with the rows (1, 10) and (2, 20) in `id` and `x`, held against a file."""
    if not engine.admin.list_topics():
        rows = pa.table({"id": pa.array([1, 2], pa.int64()), "x": pa.array([10, 20], pa.int64())})
        engine.admin.create_topic("rows", partitions=1, schema=rows.schema)
        with engine.producer() as producer:
            producer.produce("rows", rows)
    file = folder / "rows.csv"
    file.write_text(text)
    declaration = Declaration("rows", ("id",), **declared)
    return check_exactly_once(engine, declaration, input_file=file, report_folder=folder / "report")


@pytest.mark.parametrize("heading", ["amount", "X", "_x"])
def test_a_column_of_another_name(engine: Engine, tmp_path: Path, heading: str) -> None:
    """A column that the file calls otherwise is compared once the declaration says so. Until then the check is
    errored: it would have looked at nothing."""
    right, wrong = (f"id;{heading}\n1;10\n2;{cell}\n" for cell in (20, 99))
    for text in (right, wrong):
        assert [check.name for check in prove_file(engine, tmp_path, text).errored] == ["row_values_equal"]
    assert prove_file(engine, tmp_path, right, input_columns={heading: "x"}).success
    failed = prove_file(engine, tmp_path, wrong, input_columns={heading: "x"}).failed
    assert [(check.name, check.wrong) for check in failed] == [("row_values_equal", 1)]


def test_columns_that_only_one_side_has(engine: Engine, tmp_path: Path) -> None:
    """A column of the file that was not loaded is passed over. A column of the topic that the file lacks is named in
    the report, and if nothing but ids is left to compare, the check is errored."""
    text = "id;x;note\n1;10;a\n2;20;b\n"
    assert prove_file(engine, tmp_path, text).success
    assert [check.name for check in prove_file(engine, tmp_path, "id\n1\n2\n").errored] == [
        "row_values_equal"
    ]
    engine.admin.alter_topic("rows", [AddColumn(pa.field("loaded_by", pa.string()))])
    assert [check.name for check in prove_file(engine, tmp_path, text).errored] == ["row_values_equal"]
    result = prove_file(engine, tmp_path, text, input_columns={"note": None})
    assert result.success
    assert "loaded_by of rows was not compared" in result.report.read_text()


@pytest.mark.parametrize("columns", [{"other": "x"}, {"x": "id"}], ids=str)
def test_a_renaming_that_does_not_fit(engine: Engine, tmp_path: Path, columns: dict[str, str]) -> None:
    """A name that the file does not have, and two columns for one of the topic, are refused."""
    with pytest.raises(InvalidRequestError):
        prove_file(engine, tmp_path, "id;x\n1;10\n2;20\n", input_columns=columns)
