"""Each relation between an output and its topic passes on right outputs, and names the rows that break it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.quality.ledger import in_memory, write
from tests.suite.tiers import in_shard
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.loading import load_files
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

PAYMENTS = pa.schema(
    [
        ("id", pa.int64()),
        ('ac"count', pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("count", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
ROWS: list[tuple[Any, ...]] = [
    (1, "a", Decimal("1.10"), 1, 0),
    (2, "b", Decimal("-2.20"), None, 1),
    (3, None, Decimal("3.30"), 3, None),
    (4, "a", None, 4, 3),
    (5, "it's \\ |", Decimal("0.01"), 5, 4),
    (6, "a", Decimal("7.00"), 1, 0),
]
COPIES = pa.schema(
    [
        ("id", pa.int32()),
        ("account", pa.large_string()),
        ("amount", pa.decimal128(12, 3)),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
SUMS = pa.schema([("account", pa.string()), ("total", pa.decimal128(20, 2)), ("records", pa.int32())])
RIGHT_SUMS = [("a", "8.10", 3), ("b", "-2.20", 1), (None, "3.30", 1), ("it's \\ |", "0.01", 1)]

BY = {"account": 'ac"count'}
COPY = SameRows({"id": "id", "account": 'ac"count', "amount": "amount", "at": "at"})
TOTALS = Totals(BY, {"total": Amount("amount")}, "records")
LATEST = LatestByKey(BY, {"id": "id", "amount": "amount"})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    yield from in_memory(tmp_path.name)


def table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def load_payments(engine: Engine, partitions: int = 2) -> None:
    engine.admin.create_topic("payments", partitions=partitions, schema=PAYMENTS, key='ac"count')
    write(engine, "payments", table(PAYMENTS, ROWS))


def load_copies(engine: Engine, rows: list[tuple[Any, ...]] = ROWS, partitions: int = 1) -> None:
    engine.admin.create_topic("copies", partitions=partitions, schema=COPIES, key="account")
    copied = [(number, account, amount, at) for number, account, amount, _, at in rows]
    write(engine, "copies", table(COPIES, copied))


def load_sums(engine: Engine, rows: list[tuple[Any, ...]] = RIGHT_SUMS) -> None:
    engine.admin.create_topic("sums", partitions=2, schema=SUMS, key="account")
    write(engine, "sums", table(SUMS, [(name, Decimal(total), count) for name, total, count in rows]))


def prove(engine: Engine, folder: Path, topic: str, relation: Relation) -> QualityResult:
    declared = Declaration("payments", ("id",), (Output(topic, relation),))
    return check_exactly_once(engine, declared, report_folder=folder)


def only(result: QualityResult) -> tuple[str, str, list[dict[str, str]]]:
    """The name of the one check that failed, what it observed, and its examples."""
    assert result.errored == ()
    (check,) = result.failed
    return check.name, check.observed, [dict(example) for example in check.examples]


def test_right_outputs_pass(engine: Engine, tmp_path: Path) -> None:
    """Correct outputs pass, for every relation at once, with two outputs of one topic and other names and
    types than the topic's."""
    load_payments(engine)
    load_copies(engine)
    load_sums(engine)
    relations: list[tuple[str, Relation]] = [
        ("copies", COPY),
        ("copies", SameSet({"account": 'ac"count'})),
        ("copies", LATEST),
        ("copies", Totals(BY, {"amount": Amount("amount")}, "*")),
        ("sums", TOTALS),
        (
            "sums",
            SqlReduction(
                'SELECT "ac""count" AS account, sum(amount)::DECIMAL(20,2) AS total FROM topic GROUP BY ALL',
                "SELECT account, total FROM output;",
            ),
        ),
    ]
    outputs = tuple(Output(topic, relation) for topic, relation in relations)
    result = check_exactly_once(engine, Declaration("payments", ("id",), outputs), report_folder=tmp_path)
    assert result.success, (result.failed, result.errored)
    assert [check.name for check in result.checks if check.section == "Outputs"] == [
        "identity_in_copies",
        "set_in_copies",
        "latest_in_copies",
        "totals_in_copies",
        "totals_in_sums",
        "sql_in_sums",
    ]


def test_a_row_twice_and_one_left_out(engine: Engine, tmp_path: Path) -> None:
    """The identity finds a doubled row and a missing one. The set does not find the doubled one."""
    load_payments(engine)
    load_copies(engine, [*ROWS[1:], ROWS[2]])
    name, observed, examples = only(prove(engine, tmp_path, "copies", COPY))
    assert (name, observed) == ("identity_in_copies", "2 of 6 rows not as often on both sides")
    assert {(row["id"], row["in_topic"], row["in_output"]) for row in examples} == {
        ("1", "1", "0"),
        ("3", "1", "2"),
    }
    assert prove(engine, tmp_path, "copies", SameSet({"account": 'ac"count'})).success


def test_a_set_with_another_member(engine: Engine, tmp_path: Path) -> None:
    """A row on one side only breaks the set. Null counts as a value."""
    load_payments(engine)
    load_copies(engine, [row for row in ROWS if row[1] is not None])
    _, observed, examples = only(prove(engine, tmp_path, "copies", SameSet({"account": 'ac"count'})))
    assert observed == "1 of 4 rows on one side only"
    assert examples == [{"account": "", "in_topic": "1", "in_output": "0"}]


@pytest.mark.parametrize(
    ("wrong", "observed"),
    in_shard(
        "damage",
        [
            ([("a", "8.11", 3), *RIGHT_SUMS[1:]], "1 of 4 keys"),
            ([("a", "8.10", 2), *RIGHT_SUMS[1:]], "1 of 4 keys"),
            (RIGHT_SUMS[1:], "1 of 4 keys"),
            ([*RIGHT_SUMS, ("c", "0.01", 0)], "1 of 5 keys"),
            ([*RIGHT_SUMS, ("a", "0.00", 1), (None, "-3.30", -1)], "2 of 4 keys"),
        ],
        keep=2,
    ),
)
def test_totals_that_do_not_agree(
    engine: Engine, tmp_path: Path, wrong: list[tuple[Any, ...]], observed: str
) -> None:
    """Another sum, another count, a missing key and an extra key break the totals."""
    load_payments(engine)
    load_sums(engine, wrong)
    name, seen, _ = only(prove(engine, tmp_path, "sums", TOTALS))
    assert (name, seen) == ("totals_in_sums", f"{observed} with another sum or count")


def test_a_key_that_comes_to_nothing_on_both_sides(engine: Engine, tmp_path: Path) -> None:
    """A key of the output that adds up to nothing is not a fault."""
    load_payments(engine)
    load_sums(engine, [*RIGHT_SUMS, ("c", "0.00", 0)])
    assert prove(engine, tmp_path, "sums", TOTALS).success


def test_an_older_record_is_not_the_latest(engine: Engine, tmp_path: Path) -> None:
    """The relation of latest records fails if the output's last record of a key has an earlier record's
    values."""
    load_payments(engine)
    load_copies(engine, [*ROWS, ROWS[3]])
    _, observed, examples = only(prove(engine, tmp_path, "copies", LATEST))
    assert observed == "1 of 4 keys with other values"
    assert {row["account"] for row in examples} == {"a"}


def test_the_latest_of_a_key_in_two_partitions(engine: Engine, tmp_path: Path) -> None:
    """If a key has records in two partitions, its latest record is unknown, because partitions have no order,
    so the check does not pass."""
    engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS)
    for number, rows in enumerate((ROWS[:3], ROWS[3:])):
        engine.partition("payments", number).append(table(PAYMENTS, rows))
    load_copies(engine)
    assert not prove(engine, tmp_path, "copies", LATEST).success


def test_the_latest_of_a_key_in_two_partitions_of_both(engine: Engine, tmp_path: Path) -> None:
    """The same holds where the output has the same records in the same partitions: neither side has a latest
    record."""
    for topic, schema in (("payments", PAYMENTS), ("copies", COPIES)):
        engine.admin.create_topic(topic, partitions=2, schema=schema)
        for number, rows in enumerate((ROWS[:3], ROWS[3:])):
            copied = [(row[0], row[1], row[2], row[4]) for row in rows]
            engine.partition(topic, number).append(table(schema, copied if topic == "copies" else rows))
    _, observed, examples = only(prove(engine, tmp_path, "copies", LATEST))
    assert observed == "1 of 4 keys with other values"
    assert {row["account"] for row in examples} == {"a"}


@pytest.mark.parametrize(
    ("query", "said"),
    in_shard(
        "damage",
        [
            ("SELECT nothing FROM topic", "BinderException"),
            ("SELECT CAST('hunter2' AS INT) FROM topic", "ConversionException"),
            ("SELECT first(id) AS account, 0 AS total FROM topic", "in another order"),
            ("SELECT id::DOUBLE AS account, 0 AS total FROM topic", "float"),
            ("SELECT id FROM topic", "same columns"),
        ],
        keep=2,
    ),
)
def test_a_query_that_cannot_be_judged_is_errored(
    engine: Engine, tmp_path: Path, query: str, said: str
) -> None:
    """A query that cannot be judged is errored, and the report does not quote its values."""
    load_payments(engine)
    load_sums(engine)
    relation = SqlReduction(query, "SELECT account, total FROM output")
    result = prove(engine, tmp_path, "sums", relation)
    (check,) = result.errored
    assert check.name == "sql_in_sums"
    assert said in check.detail
    assert "hunter2" not in check.detail


D = Decimal
UNLIKE: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.decimal128(38, 30), D("1.5"), pa.decimal128(38, 0), D("2")),
    (pa.binary(), b"a", pa.string(), "a"),
    (pa.bool_(), True, pa.int64(), 1),
    (pa.int64(), 7, pa.string(), "7"),
    (pa.timestamp("us", "UTC"), 0, pa.timestamp("us"), 0),
    (pa.date32(), 0, pa.string(), "1970-01-01"),
    (pa.date32(), 0, pa.timestamp("us"), 0),
    (pa.list_(pa.int64()), [1], pa.list_(pa.decimal128(20, 0)), [D(1)]),
]
"""Types, each with a value, of which SQL makes one type, where the values may be the same."""


def test_queries_of_unlike_types_are_errored(engine: Engine, tmp_path: Path) -> None:
    """The results of two queries are compared where they have the same types, or are numbers that one decimal holds
    exactly: no engine casts or rounds one to the other."""
    result = _queried(engine, tmp_path, UNLIKE)
    assert {check.name for check in result.failed} == {"sql_in_o0"}
    assert {check.name for check in result.errored} == {f"sql_in_o{at}" for at in range(1, len(UNLIKE))}


def test_queries_of_numbers_are_compared_exactly(engine: Engine, tmp_path: Path) -> None:
    """Decimals of other scales and integers of other widths are compared as they are, and not rounded."""
    numbers: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
        (pa.decimal128(18, 4), D("0.0012"), pa.decimal128(18, 2), D("0.00")),
        (pa.decimal128(18, 4), D("0.1200"), pa.decimal128(18, 2), D("0.12")),
        (pa.int64(), 2**63 - 1, pa.decimal128(20, 0), D(2**63 - 1)),
        (pa.int64(), 2**53 + 1, pa.decimal128(20, 0), D(2**53)),
        (pa.int32(), 7, pa.int64(), 7),
    ]
    result = _queried(engine, tmp_path, numbers, "sum(v)")
    assert result.errored == ()
    assert {check.name for check in result.failed} == {"sql_in_o0", "sql_in_o3"}


def _queried(
    engine: Engine,
    folder: Path,
    pairs: list[tuple[pa.DataType, Any, pa.DataType, Any]],
    value: str = "v",
) -> QualityResult:
    """A proof with an output for each pair: the same query over both values."""
    columns = [("id", pa.int64()), *((f"v{at}", pair[0]) for at, pair in enumerate(pairs))]
    engine.admin.create_topic("payments", partitions=1, schema=pa.schema(columns))
    write(engine, "payments", table(pa.schema(columns), [(1, *(pair[1] for pair in pairs))]))
    outputs = []
    for at, (_, _, kind, other) in enumerate(pairs):
        schema = pa.schema([("v", kind)])
        engine.admin.create_topic(f"o{at}", partitions=1, schema=schema)
        write(engine, f"o{at}", table(schema, [(other,)]))
        of_topic = f"SELECT {value} AS v FROM (SELECT v{at} AS v FROM topic) AS t"
        outputs.append(Output(f"o{at}", SqlReduction(of_topic, f"SELECT {value} AS v FROM output")))
    declared = Declaration("payments", ("id",), tuple(outputs))
    return check_exactly_once(engine, declared, report_folder=folder)


def test_a_collation_does_not_make_texts_equal(engine: Engine, tmp_path: Path) -> None:
    """Texts are compared letter by letter, whatever collation a query gave them."""
    text = pa.schema([("v", pa.string())])
    for topic, value in (("payments", "a"), ("o", "A")):
        engine.admin.create_topic(topic, partitions=1, schema=text)
        write(engine, topic, table(text, [(value,)]))
    query = "SELECT v COLLATE NOCASE AS v FROM"
    relation = SqlReduction(f"{query} topic", f"{query} output")
    declared = Declaration("payments", ("v",), (Output("o", relation),))
    result = check_exactly_once(engine, declared, report_folder=tmp_path)
    assert [check.name for check in result.failed] == ["sql_in_o"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1; SELECT 2",
        "COPY topic TO '/tmp/x.csv'",
        "DROP VIEW topic",
        "SELECT * FROM output",
        "SELECT getvariable('x') FROM topic",
        "SELECT * FROM read_csv('/etc/passwd')",
        "WITH x AS (DELETE FROM topic RETURNING *) FROM x",
        "SELEC",
        "",
    ],
)
def test_a_query_that_is_no_select_is_refused(engine: Engine, tmp_path: Path, query: str) -> None:
    """A query that is not a SELECT is refused in one line, without a report."""
    load_payments(engine)
    load_sums(engine)
    with pytest.raises(InvalidRequestError) as refused:
        prove(engine, tmp_path / "report", "sums", SqlReduction(query, "SELECT 1"))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("topic", "relation", "reason", "place"),
    [
        ("copies", replace(COPY, columns={"id": "nothing"}), Reason.UNKNOWN_COLUMN, "payments"),
        ("copies", replace(COPY, columns={"nothing": "id"}), Reason.UNKNOWN_COLUMN, "copies"),
        ("copies", replace(COPY, columns={"id": 'ac"count'}), Reason.TYPE_MISMATCH, "copies"),
        ("copies", replace(COPY, columns={"at": "id"}), Reason.TYPE_MISMATCH, "copies"),
        ("floats", SameRows({"x": "id"}), Reason.INEXACT_TYPE, "floats"),
        ("floats", Totals({"y": "id"}, {"x": Amount("amount")}), Reason.INEXACT_TYPE, "floats"),
        ("sums", Totals({"records": "id"}, {"account": Amount("amount")}), Reason.NOT_A_NUMBER, "sums"),
        ("sums", Totals(BY, {"total": Amount("amount", "count", ("1",))}), Reason.NOT_A_TEXT, "payments"),
        ("sums", Totals(BY, {}, "total"), Reason.NOT_AN_INTEGER, "sums"),
    ],
)
def test_a_relation_that_does_not_fit_is_refused(
    engine: Engine, tmp_path: Path, topic: str, relation: Relation, reason: Reason, place: str
) -> None:
    """Unknown columns and types that do not compare exactly are refused before anything is read."""
    load_payments(engine)
    load_copies(engine)
    load_sums(engine)
    engine.admin.create_topic("floats", schema=pa.schema([("x", pa.float64()), ("y", pa.int64())]))
    with pytest.raises(InvalidRequestError) as refused:
        prove(engine, tmp_path / "report", topic, relation)
    assert (refused.value.reason, refused.value.place) == (reason, f"topic {place}")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "report").exists()


def test_a_sum_that_fits_no_decimal_is_errored(engine: Engine, tmp_path: Path) -> None:
    """A sum that does not fit a decimal is errored, and never a number that wrapped around."""
    most = Decimal("9" * 38)
    schema = pa.schema([("k", pa.int64()), ("x", pa.decimal128(38, 0))])
    for topic in ("payments", "sums"):
        engine.admin.create_topic(topic, schema=schema)
        write(engine, topic, table(schema, [(1, most), (1, most)]))
    declared = Declaration("payments", ("k",), (Output("sums", Totals({"k": "k"}, {"x": Amount("x")})),))
    result = check_exactly_once(engine, declared, report_folder=tmp_path)
    assert [check.name for check in result.errored] == ["totals_in_sums"]


@pytest.mark.parametrize("is_swapped", [False, True])
def test_null_and_the_empty_text_of_a_file(engine: Engine, tmp_path: Path, is_swapped: bool) -> None:
    """A load keeps "" and an empty field apart, and so do outputs and the reader of the input file. Where a file has
    them the other way round, no comparison with it passes."""
    schema = pa.schema([("id", pa.int64()), ("account", pa.string()), ("amount", pa.decimal128(10, 2))])
    file = tmp_path / "payments.csv"
    file.write_text('id;account;amount\n1;"";1.00\n2;;2.00\n3;"a";4.00\n')
    engine.admin.create_topic("payments", partitions=1, schema=schema)
    load_files(engine, "payments", file, run_id="1", delimiter=";")
    rows = engine.scan("payments").to_table(schema.names)
    assert rows.column("account").to_pylist() == ["", None, "a"]
    engine.admin.create_topic("copies", partitions=1, schema=schema)
    write(engine, "copies", rows)
    engine.admin.create_topic("sums", partitions=1, schema=SUMS)
    sums = [("", Decimal("1.00"), 1), (None, Decimal("2.00"), 1), ("a", Decimal("4.00"), 1)]
    write(engine, "sums", table(SUMS, sums))
    outputs = (
        Output("copies", SameRows({name: name for name in schema.names})),
        Output("copies", SameSet({"account": "account"})),
        Output("sums", Totals({"account": "account"}, {"total": Amount("amount")}, "records")),
    )
    declared = Declaration("payments", ("id",), outputs)
    if is_swapped:
        file.write_text('id;account;amount\n1;;1.00\n2;"";2.00\n3;"a";4.00\n')
    result = check_exactly_once(engine, declared, input_file=file, report_folder=tmp_path / "report")
    assert result.errored == ()
    wrong = (
        ["row_values_equal", "identity_in_copies", "set_in_copies", "totals_in_sums"] if is_swapped else []
    )
    assert [check.name for check in result.failed] == wrong
    if is_swapped:  # the empty text for both is the reading that contradicts the fewest records
        shown = [(row["in the file"], row["in the topic"]) for row in result.failed[0].examples]
        assert shown == [('account ""', "account (nothing)")]
