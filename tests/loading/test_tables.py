"""A program's tables are loaded into a topic. Rows that do not fit become dead letters in the same
transaction."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.loading.ledgers import DEAD, SCHEMA, TOPIC, dead, ids
from tests.loading.refusals import because
from txn_engine import AddColumn, Engine
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.loading import replay
from txn_engine.loading.load import dead_letters_for
from txn_engine.loading.tables import TableLoad
from txn_engine.reasons import Reason
from txn_engine.row_checks import RowCheck

WIDE = pa.schema(
    [
        pa.field("amount", pa.decimal128(30, 6)),
        pa.field("id", pa.uint64()),
        pa.field("day", pa.date32()),
        pa.field("paid", pa.bool_()),
    ]
)


def rows(*given: tuple[int | None, str]) -> pa.Table:
    """A table of ids and amounts, in wider types than the topic's."""
    found = [{"id": number, "amount": Decimal(amount)} for number, amount in given]
    return pa.Table.from_pylist(found, schema=WIDE)


def load(engine: Engine, *parts: Any, most: str | None = None, **settings: Any) -> TableLoad:
    letters = dead_letters_for(engine, DEAD, most, topic=TOPIC, run_id="r", is_dry=False)
    assert letters is not None
    with engine.producer(transactional_id="tables") as producer:
        producer.init_transactions()
        with producer.transaction("r"):
            topic = engine.logs.topics.look_up(TOPIC)
            loading = TableLoad(topic, producer, letters, "pipeline/pay", **settings)
            for part in parts:
                loading.take(part)
            loading.check()
    return loading


def test_input_is_output_and_dead_letters(engine: Engine) -> None:
    """Rows of tables, batches and readers are loaded. A letter has the row's number over all of them, and can
    be replayed after it is repaired."""
    first = rows((1, "1.00"), (2, "0.001"), (3, "3.5"))
    reader = pa.RecordBatchReader.from_batches(WIDE, rows((None, "5"), (6, "6")).to_batches())
    done = load(engine, first, rows((2**63, "4")).to_batches()[0], reader, partition=1)
    assert (done.rows, ids(engine)) == (6, [1, 3, 6])
    assert set(engine.scan(TOPIC).to_table().column("_partition").to_pylist()) == {1}
    letters = dead(engine)
    assert [(row["source_file"], row["source_line"], row["run_id"]) for row in letters] == [
        ("pipeline/pay", line, "r") for line in (2, 4, 5)
    ]
    assert json.loads(letters[0]["columns"]) == {"amount": "0.001000", "id": 2, "day": None, "paid": None}
    assert [row["reason"].partition(";")[0] for row in letters] == [
        "amount does not fit",
        "id does not fit",
        "id is empty",
    ]
    mended = json.loads(letters[0]["columns"]) | {"amount": "2.00"}
    again = replay(engine, DEAD, repaired={(0, letters[0]["_offset"]): json.dumps(mended)})
    assert (again.records, again.failed_again) == (1, 2)
    assert ids(engine) == [1, 2, 3, 6]
    assert not engine.admin.verify().findings


def test_above_the_limit_nothing_is_loaded(engine: Engine) -> None:
    """If there are more dead letters than the limit, nothing is loaded, and the error names the first of the
    rows."""
    table = rows((1, "1"), (2, "0.001"), (3, "0.001"))
    with pytest.raises(InvalidRecordError, check=because(Reason.TOO_MANY_BAD_ROWS, "pipeline/pay row 2")):
        load(engine, table, most="50%")
    assert (ids(engine), dead(engine)) == ([], [])


def test_checks_of_rows(engine: Engine) -> None:
    """Rows are checked in the topic's types."""
    check = RowCheck("expect_column_values_to_be_between", {"column": "amount", "min_value": 2})
    assert load(engine, rows((1, "1"), (2, "2")), row_checks=[check]).rows == 2
    assert ids(engine) == [2]
    assert dead(engine)[0]["reason"].startswith("check expect_column_values_to_be_between(amount) failed")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"id": [1]}), Reason.MISSING_COLUMN),
        (rows((1, "1")).append_column("x", pa.array([1])), Reason.UNKNOWN_COLUMN),
        (rows((1, "1")).append_column("id", pa.array([1])), Reason.DUPLICATE_COLUMN),
        (
            rows((1, "1")).set_column(1, "id", pa.array(["1"])),
            Reason.TYPE_MISMATCH,
        ),
    ],
)
def test_columns_that_are_not_the_topics(engine: Engine, table: pa.Table, reason: Reason) -> None:
    """If a table's columns are not the topic's, every row is wrong, so the load is refused."""
    with pytest.raises(InvalidRecordError, check=because(reason)):
        load(engine, table)
    assert (ids(engine), dead(engine)) == ([], [])


def test_what_is_no_table(engine: Engine) -> None:
    """An object that is not a table is refused with its type."""
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)):
        load(engine, {"id": [1]})


def test_what_produce_takes_is_taken(engine: Engine) -> None:
    """Dictionaries, and a table without a column that was added later, are accepted, as by `produce`."""
    engine.admin.alter_topic(TOPIC, [AddColumn(pa.field("note", pa.string(), nullable=False), default="-")])
    table = pa.table(
        {"id": [1, 2], "amount": [Decimal("1.00")] * 2, "day": [None] * 2, "paid": [True] * 2}, SCHEMA
    )
    notes = pa.array(["a", "b"]).dictionary_encode()
    load(
        engine,
        table,
        table.append_column("note", notes),
        table.append_column("note", pa.array(["a", "b"], pa.string_view())),
    )
    assert sorted(engine.scan(TOPIC).to_table().column("note").to_pylist()) == ["-", "-", "a", "a", "b", "b"]
    assert dead(engine) == []
