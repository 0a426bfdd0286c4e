"""Which changes of a topic's columns are possible and which are refused, as a table of cases without a
store."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.loading.refusals import because
from txn_engine.errors import InvalidRequestError
from txn_engine.log.schema_format import decoded_value, encoded_value
from txn_engine.reasons import Reason
from txn_engine.schemas.changes import (
    AddColumn,
    Change,
    DropColumn,
    MakeNullable,
    RenameColumn,
    ReorderColumns,
    WidenColumn,
)
from txn_engine.schemas.evolving import Rules, evolved
from txn_engine.schemas.following import difference
from txn_engine.schemas.layout import Layout, original

SCHEMA = pa.schema(
    [
        pa.field("account", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(18, 2)),
        pa.field("count", pa.int32()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
RULES = Rules("payments", "account", is_compacted=False)
COMPACTED = Rules("payments", "account", is_compacted=True)


def after(*changes: Change, rules: Rules = RULES, schema: pa.Schema = SCHEMA) -> Layout:
    return evolved(original(schema), changes, rules)


def test_a_change_of_each_kind() -> None:
    """Ids stay with their columns. A new column gets an id that no column has had, after the ids inside
    nested types."""
    layout = after(
        AddColumn(pa.field("note", pa.string()), default="none"),
        RenameColumn("amount", "value"),
        DropColumn("count"),
        AddColumn(pa.field("rate", pa.float32())),
        WidenColumn("rate", pa.float64()),
        WidenColumn("value", pa.decimal128(20, 2)),
        ReorderColumns(["note", "rate", "tags", "value", "account"]),
    )
    assert [(each.id, each.name, str(each.type)) for each in layout.columns] == [
        (6, "note", "string"),
        (7, "rate", "double"),
        (4, "tags", "list<item: string>"),
        (2, "value", "decimal128(20, 2)"),
        (1, "account", "int64"),
    ]
    assert layout.version == 1
    assert dict(layout.retired) == {"amount": 2, "count": 3}
    assert layout.by_name["note"].default == pa.scalar("none")
    assert difference(original(SCHEMA), layout) is None


def test_a_column_may_have_its_own_name_again_and_no_other_may() -> None:
    first = after(RenameColumn("amount", "value"))
    again = evolved(first, [RenameColumn("value", "amount")], RULES)
    assert [each.name for each in again.columns] == SCHEMA.names
    assert dict(again.retired) == {"value": 2}
    with pytest.raises(InvalidRequestError, check=because(Reason.COLUMN_NAME_WAS_USED)):
        evolved(again, [RenameColumn("count", "value")], RULES)


REFUSED: list[tuple[list[Change], Reason]] = [
    ([], Reason.NO_CHANGES),
    ([AddColumn(pa.field("amount", pa.string()))], Reason.COLUMN_EXISTS),
    ([DropColumn("count"), AddColumn(pa.field("count", pa.int32()))], Reason.COLUMN_NAME_WAS_USED),
    ([DropColumn("count"), RenameColumn("amount", "count")], Reason.COLUMN_NAME_WAS_USED),
    ([AddColumn(pa.field("_mine", pa.string()))], Reason.BAD_COLUMN_NAME),
    ([AddColumn(pa.field("a\x00b", pa.string()))], Reason.BAD_COLUMN_NAME),
    ([AddColumn(pa.field("note", pa.string(), nullable=False))], Reason.NO_DEFAULT),
    ([AddColumn(pa.field("note", pa.string()), default=5)], Reason.BAD_DEFAULT),
    ([AddColumn(pa.field("n", pa.int64()), default="5")], Reason.BAD_DEFAULT),
    ([AddColumn(pa.field("n", pa.int64()), default=1.5)], Reason.BAD_DEFAULT),
    ([AddColumn(pa.field("n", pa.int32()), default=2**40)], Reason.BAD_DEFAULT),
    ([AddColumn(pa.field("n", pa.decimal128(5, 2)), default=Decimal("1.555"))], Reason.BAD_DEFAULT),
    ([AddColumn(pa.field("n", pa.string()), default=b"x")], Reason.BAD_DEFAULT),
    ([AddColumn(pa.field("n", pa.date32()), default=5)], Reason.BAD_DEFAULT),
    ([AddColumn(pa.field("n", pa.list_(pa.int8())))], Reason.UNSUPPORTED_TYPE),
    ([RenameColumn("amount", "count")], Reason.COLUMN_EXISTS),
    ([RenameColumn("nothing", "x")], Reason.UNKNOWN_COLUMN),
    ([RenameColumn("amount", "amount")], Reason.UNCHANGED),
    ([RenameColumn("account", "id")], Reason.KEY_COLUMN),
    ([DropColumn("account")], Reason.KEY_COLUMN),
    ([WidenColumn("account", pa.int64())], Reason.KEY_COLUMN),
    ([DropColumn("nothing")], Reason.UNKNOWN_COLUMN),
    ([DropColumn("count"), DropColumn("count")], Reason.UNKNOWN_COLUMN),
    ([WidenColumn("count", pa.int16())], Reason.NOT_A_WIDENING),
    ([WidenColumn("count", pa.int32())], Reason.NOT_A_WIDENING),
    ([WidenColumn("count", pa.float64())], Reason.NOT_A_WIDENING),
    ([WidenColumn("amount", pa.decimal128(17, 2))], Reason.NOT_A_WIDENING),
    ([WidenColumn("amount", pa.decimal128(20, 3))], Reason.NOT_A_WIDENING),
    ([WidenColumn("tags", pa.string())], Reason.NOT_A_WIDENING),
    ([MakeNullable("amount")], Reason.UNCHANGED),
    ([ReorderColumns(["amount"])], Reason.INCOMPLETE_ORDER),
    ([ReorderColumns(SCHEMA.names)], Reason.UNCHANGED),
    ([ReorderColumns("account")], Reason.BAD_ARGUMENT),
    ([ReorderColumns(5)], Reason.BAD_ARGUMENT),  # type: ignore[arg-type]
    ([ReorderColumns([1, 2, 3, 4])], Reason.INCOMPLETE_ORDER),  # type: ignore[list-item]
    ([WidenColumn("count", "int64")], Reason.BAD_ARGUMENT),  # type: ignore[arg-type]
    ([DropColumn(["count"])], Reason.UNKNOWN_COLUMN),  # type: ignore[arg-type]
    ([RenameColumn({}, "x")], Reason.UNKNOWN_COLUMN),  # type: ignore[arg-type]
    ([AddColumn(pa.field("AMOUNT", pa.string()))], Reason.COLUMN_NAMES_ALIKE),
    ([RenameColumn("tags", "Amount")], Reason.COLUMN_NAMES_ALIKE),
    ([DropColumn("tags"), AddColumn(pa.field("Tags", pa.string()))], Reason.COLUMN_NAMES_ALIKE),
    (
        [AddColumn(pa.field("\u03c4\u03c3", pa.string())), AddColumn(pa.field("\u03c4\u03c2", pa.string()))],
        Reason.COLUMN_NAMES_ALIKE,
    ),  # a long s
    ([RenameColumn("count", 5)], Reason.BAD_COLUMN_NAME),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
def test_what_is_refused_in_one_line(changes: list[Change], reason: Reason) -> None:
    with pytest.raises(InvalidRequestError, check=because(reason)) as refused:
        after(*changes)
    assert refused.value.actor == "alter topic 'payments'"


UTC = dt.UTC
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=UTC)
MILLIS, PLAIN = pa.timestamp("ms", tz="UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("kind", "given", "becomes"),
    [
        (pa.float32(), 1e300, "inf"),
        (pa.float32(), 1e-60, "0"),
        (pa.float32(), 3.14159265358979, "3.1415927"),
        (pa.float64(), True, "1"),
        (MILLIS, NOON.replace(microsecond=123_456), "12:00:00.123"),
        (MILLIS, NOON.replace(tzinfo=None), "12:00:00"),
        (PLAIN, NOON, "12:00:00"),
        (pa.date32(), NOON, "2026-01-01"),
        (pa.date32(), 5, "1970-01-06"),
        (pa.binary(), "x", "b'x'"),
        (pa.int64(), 1.5, "1"),
        (pa.int32(), pa.scalar(2.5), "2"),
    ],
)
def test_a_default_that_would_become_another_value_is_refused_with_that_value(
    kind: pa.DataType, given: object, becomes: str
) -> None:
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_DEFAULT)) as refused:
        after(AddColumn(pa.field("c", kind), default=given))
    expected, _, shown = str(refused.value.expected).partition(": it would become ")
    assert (expected, becomes in shown) == (f"a value of {kind}", True)


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (pa.date32(), 2**31 - 1),
        (pa.timestamp("ms"), 2**62),
        (pa.timestamp("us", "UTC"), -(2**63) + 1),
        (pa.timestamp("ns"), 2**63 - 1),
    ],
)
def test_a_default_that_sql_does_not_have_is_refused(kind: pa.DataType, count: int) -> None:
    """Else every query of the topic would fail."""
    width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_DEFAULT)):
        after(AddColumn(pa.field("c", kind), default=pa.scalar(count, width).cast(kind)))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.float32(), 0.1),
        (pa.float32(), float("nan")),
        (pa.float32(), float("-inf")),
        (pa.float64(), 5e-324),
        (MILLIS, NOON.replace(microsecond=123_000)),
        (MILLIS, NOON.astimezone(dt.timezone(dt.timedelta(hours=5)))),
        (PLAIN, NOON.replace(tzinfo=None, microsecond=1)),
        (pa.timestamp("ns"), pa.scalar(1, pa.timestamp("ns"))),
        (pa.decimal128(10, 10), Decimal("1E-10")),
        (pa.decimal128(18, 2), Decimal("1E+2")),
        (pa.int64(), pa.scalar(5, pa.int8())),
        (pa.date32(), pa.scalar(3_000_000, pa.int32()).cast(pa.date32())),
    ],
)
def test_a_default_as_it_was_given(kind: pa.DataType, given: object) -> None:
    """A default is the same after it was written to an object and read back."""
    change = AddColumn(pa.field("c", kind), default=given)
    column = after(change).by_name["c"]
    again = decoded_value(json.loads(json.dumps(encoded_value(column.default))), kind)
    assert again.cast(pa.string()).as_py() == column.default.cast(pa.string()).as_py()
    assert f"add 'c' {kind} with default " in str(change)
    assert column.default.type == kind


def test_the_last_column_stays() -> None:
    with pytest.raises(InvalidRequestError, check=because(Reason.ONLY_COLUMN)):
        after(
            DropColumn("a"), rules=Rules("t", None, is_compacted=False), schema=pa.schema([("a", pa.int8())])
        )


TABLE = pa.schema([pa.field("account", pa.int64(), nullable=False), ("a", pa.int32()), ("b", pa.string())])
STRICT = TABLE.set(1, pa.field("a", pa.int32(), nullable=False))
KAFKA = pa.schema(
    [pa.field("key", pa.binary(), nullable=False), ("value", pa.binary()), ("headers", pa.binary())]
)


@pytest.mark.parametrize(
    ("schema", "change", "is_taken"),
    [
        (TABLE, AddColumn(pa.field("c", pa.int8())), True),
        (TABLE, AddColumn(pa.field("c", pa.int8()), default=1), False),  # old tombstones would be records
        (TABLE, AddColumn(pa.field("c", pa.int8(), nullable=False), default=1), False),
        (TABLE, DropColumn("b"), False),  # records of `b` alone would be tombstones
        (TABLE, RenameColumn("a", "c"), True),
        (TABLE, WidenColumn("a", pa.int64()), True),
        (TABLE, ReorderColumns(["b", "a", "account"]), True),
        (TABLE, MakeNullable("account"), False),
        (STRICT, AddColumn(pa.field("c", pa.int8()), default=1), True),
        (STRICT, DropColumn("b"), True),
        (STRICT, DropColumn("a"), False),  # records with no `b` would be tombstones
        (STRICT, MakeNullable("a"), True),  # no record so far has a null there
        (
            KAFKA,
            AddColumn(pa.field("c", pa.int8())),
            False,
        ),  # a tombstone has no value there, whatever its headers
        (KAFKA, RenameColumn("headers", "c"), False),
    ],
)
def test_compaction_judges_no_record_anew(schema: pa.Schema, change: Change, is_taken: bool) -> None:
    """In a compacted topic a tombstone stays a tombstone, and no other record becomes one. Changes that would
    do so are refused."""
    rules = Rules("t", schema.names[0], is_compacted=True)
    if is_taken:
        after(change, rules=rules, schema=schema)
        return
    with pytest.raises(InvalidRequestError):
        after(change, rules=rules, schema=schema)
    if not isinstance(change, MakeNullable):
        after(change, rules=Rules("t", schema.names[0], is_compacted=False), schema=schema)
