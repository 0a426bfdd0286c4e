"""Whatever the columns of a topic are called, a proof judges their values: right ones pass, and wrong ones fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import txn_engine
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.refusals import refused
from txn_engine import Engine
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
    with txn_engine.connect(f"memory://{tmp_path.name}", configs=FEW_INTERNAL) as connected:
        yield connected


def write(engine: Engine, topic: str, name: str, values: Sequence[int], kind: pa.DataType) -> None:
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), name: pa.array(values, kind)})
    engine.admin.create_topic(topic, partitions=1, schema=rows.schema)
    with engine.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(topic, rows)


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
