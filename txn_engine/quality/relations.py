"""What ties an output to its topic, as SQL: both sides are reduced to rows, which have to be the same, as often.

The SQL is what DuckDB and Spark share; where they differ a `Dialect` says how. Nulls are grouped like any value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.quality.declaration import (
    ACTOR,
    RECORDS,
    Amount,
    LatestByKey,
    Output,
    Relation,
    SameRows,
    SameSet,
    SqlReduction,
    Totals,
    columns_of_output,
    columns_of_topic,
)
from txn_engine.reasons import Reason
from txn_engine.sql.columns import DIGITS_MAX, inner_type, wide_decimal
from txn_engine.sql.file_parts import OFFSET, PARTITION

IN_TOPIC: Final = "_in_topic"
IN_OUTPUT: Final = "_in_output"
_COUNTED, _LATEST, _ONE_PARTITION = "_records", "_latest", "_in_one_partition"
"""Names of what queries add to a user's columns: no column of a topic begins with an underscore."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine writes what the other writes differently."""

    name: str
    quote: str
    latest: str
    """The function that gives the value at the highest second argument."""
    struct: str

    def column(self, name: str) -> str:
        """The name as an identifier, whatever it holds."""
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def text(self, value: str) -> str:
        """A literal."""
        escaped = value.replace("'", "''")
        return f"'{escaped}'" if self.name == "DuckDB" else "'" + escaped.replace("\\", "\\\\") + "'"


DUCKDB: Final = Dialect("DuckDB", '"', "arg_max", "struct_pack")
SPARK: Final = Dialect("Spark", "`", "max_by", "struct")


@dataclass(frozen=True, slots=True)
class Sides:
    """Both reductions of a relation: `keys` and `values` are the columns that each gives, in this order."""

    topic: str
    output: str
    keys: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All that each gives."""
        return (*self.keys, *self.values)


def check_columns(output: Output, topic_schema: pa.Schema, output_schema: pa.Schema, topic: str) -> None:
    """Raise `InvalidRequestError` for a column that is not there, and for types that do not compare exactly."""
    relation = output.relation
    for name, schema, columns in (
        (topic, topic_schema, columns_of_topic(relation)),
        (output.topic, output_schema, columns_of_output(relation)),
    ):
        need_columns(name, schema, columns)
        for column in columns:
            check_exact(name, schema.field(column))
        if isinstance(relation, SqlReduction):  # which columns a query compares is not known
            for field in schema:
                check_held_exactly(name, field)
    pairs: Mapping[str, str] = {}
    match relation:
        case Totals():
            pairs = relation.by
            _check_totals(relation, output.topic, topic, topic_schema, output_schema)
        case LatestByKey():
            pairs = {**relation.by, **relation.columns}
        case SameRows() | SameSet():
            pairs = relation.columns
    for ours, theirs in pairs.items():
        common_type(output_schema.field(ours), topic_schema.field(theirs), output.topic)


def need_columns(topic: str, schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raise `InvalidRequestError` unless the topic has them all."""
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise InvalidRequestError(
            f"no column {', '.join(missing)}",
            actor=ACTOR,
            place=f"topic {topic}",
            expected=f"some of {', '.join(schema.names)}",
            reason=Reason.UNKNOWN_COLUMN,
        )


def check_exact(topic: str, field: pa.Field[Any]) -> None:
    """Raise `InvalidRequestError` for a column whose values, or values inside of them, do not compare exactly."""
    inexact = inner_type(field.type, pa.types.is_floating) or wide_decimal(field.type)
    if inexact is not None:
        raise _inexact(topic, field, inexact, f"no float, and {_HELD}")


def check_held_exactly(topic: str, field: pa.Field[Any]) -> None:
    """Raise `InvalidRequestError` for a column that SQL reads as other values than the topic has."""
    wide = wide_decimal(field.type)
    if wide is not None:
        raise _inexact(topic, field, wide, _HELD)


_HELD: Final = f"a decimal of at most {DIGITS_MAX} digits"


def _inexact(topic: str, field: pa.Field[Any], inexact: pa.DataType, expected: str) -> InvalidRequestError:
    inside = "" if inexact == field.type else f", with {inexact} inside"
    return InvalidRequestError(
        f"column {field.name!r} is {field.type}{inside}",
        actor=ACTOR,
        place=f"topic {topic}",
        expected=f"a type that is compared exactly: {expected}",
        reason=Reason.INEXACT_TYPE,
    )


def _check_totals(
    relation: Totals, output: str, topic: str, topic_schema: pa.Schema, output_schema: pa.Schema
) -> None:
    for name, amount in relation.sums.items():
        for place, field in ((output, output_schema.field(name)), (topic, topic_schema.field(amount.column))):
            if not (pa.types.is_decimal(field.type) or pa.types.is_integer(field.type)):
                raise InvalidRequestError(
                    f"column {field.name!r} is {field.type}",
                    actor=ACTOR,
                    place=f"topic {place}",
                    expected="a decimal or an integer: sums are compared exactly",
                    reason=Reason.NOT_A_NUMBER,
                )
        if amount.direction is not None:
            kind = topic_schema.field(amount.direction).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise InvalidRequestError(
                    f"column {amount.direction!r} is {kind}",
                    actor=ACTOR,
                    place=f"topic {topic}",
                    expected="a text column, as the direction of an amount",
                    reason=Reason.NOT_A_TEXT,
                )
    count = relation.count
    if count not in (None, RECORDS):
        kind = output_schema.field(str(count)).type
        if not pa.types.is_integer(kind):
            raise InvalidRequestError(
                f"column {count!r} is {kind}",
                actor=ACTOR,
                place=f"topic {output}",
                expected="an integer column that counts",
                reason=Reason.NOT_AN_INTEGER,
            )


def common_type(ours: pa.Field[Any], theirs: pa.Field[Any], output: str) -> str | None:
    """The SQL type to which both are cast before they are compared; None where they are the same already."""
    left, right = ours.type, theirs.type
    if left.equals(right) or all(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in (left, right)
    ):
        return None
    if all(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in (left, right)):
        scale = max(kind.scale if pa.types.is_decimal(kind) else 0 for kind in (left, right))
        whole = max(
            (kind.precision - kind.scale) if pa.types.is_decimal(kind) else 20 for kind in (left, right)
        )
        if scale + whole <= DIGITS_MAX:
            return f"DECIMAL({DIGITS_MAX},{scale})"
    raise InvalidRequestError(
        f"column {ours.name!r} is {left}, and {theirs.name!r} of the topic {right}",
        actor=ACTOR,
        place=f"topic {output}",
        expected="types that compare exactly",
        reason=Reason.TYPE_MISMATCH,
    )


def sides_of(
    relation: Relation,
    dialect: Dialect,
    *,
    topic_view: str,
    output_view: str,
    topic_schema: pa.Schema,
    output_schema: pa.Schema,
) -> Sides:
    """The two queries; the views have the topics' columns, `_partition` and `_offset`."""
    make = _Writer(dialect, topic_view, output_view, topic_schema, output_schema)
    match relation:
        case Totals():
            return make.totals(relation)
        case LatestByKey():
            return make.latest(relation)
        case SameSet():
            return make.rows(relation.columns, distinct="DISTINCT ")
        case SameRows():
            return make.rows(relation.columns, distinct="")
        case SqlReduction():
            return Sides(relation.topic, relation.output, (), ())


class _Writer:
    def __init__(
        self,
        dialect: Dialect,
        topic_view: str,
        output_view: str,
        topic: pa.Schema,
        output: pa.Schema,
    ) -> None:
        self._dialect = dialect
        self._topic_view = topic_view
        self._output_view = output_view
        self._topic = topic
        self._output = output

    def rows(self, columns: Mapping[str, str], *, distinct: str) -> Sides:
        ours, theirs = self._both(columns)
        return Sides(
            f"SELECT {distinct}{', '.join(theirs)} FROM {self._topic_view}",
            f"SELECT {distinct}{', '.join(ours)} FROM {self._output_view}",
            tuple(columns),
            (),
        )

    def latest(self, relation: LatestByKey) -> Sides:
        quoted = self._dialect.column
        ours, theirs = self._both({**relation.by, **relation.columns})
        keys, values = tuple(relation.by), tuple(relation.columns)
        is_one, sides = f"CASE WHEN min({PARTITION}) = max({PARTITION}) THEN 1", []
        for view, columns, several in ((self._topic_view, theirs, 0), (self._output_view, ours, -1)):
            # a key in several partitions has no latest record, so that the two sides are not equal there either
            parts = f"{is_one} ELSE {several} END AS {_ONE_PARTITION}"
            held = ", ".join(quoted(name) for name in values)
            taken = ", ".join(f"{_LATEST}.{quoted(name)} AS {quoted(name)}" for name in values)
            names = ", ".join(quoted(name) for name in keys)
            packed = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in values)
            struct = f"struct_pack({packed})" if self._dialect.name == "DuckDB" else f"struct({held})"
            sides.append(
                f"SELECT {names}, {taken}, {_ONE_PARTITION} FROM (SELECT {names}, "
                f"{self._dialect.latest}({struct}, {OFFSET}) AS {_LATEST}, {parts} "
                f"FROM (SELECT {', '.join(columns)}, {PARTITION}, {OFFSET} FROM {view}) AS cast_rows "
                f"GROUP BY {names}) AS by_key"
            )
        return Sides(sides[0], sides[1], keys, (*values, _ONE_PARTITION))

    def totals(self, relation: Totals) -> Sides:
        quoted = self._dialect.column
        ours, theirs = self._both(relation.by)
        keys = ", ".join(quoted(name) for name in relation.by)
        scales = {name: self._scale(name, amount) for name, amount in relation.sums.items()}
        topic = [
            f"{_sum(self._signed(amount, scales[name]), scales[name])} AS {quoted(name)}"
            for name, amount in relation.sums.items()
        ]
        output = [f"{_sum(quoted(name), scales[name])} AS {quoted(name)}" for name in relation.sums]
        counted = _COUNTED if relation.count in (None, RECORDS) else str(relation.count)
        values = [*relation.sums]
        if relation.count is not None:
            topic.append(f"CAST(count(*) AS DECIMAL({DIGITS_MAX},0)) AS {quoted(counted)}")
            source = "count(*)" if relation.count == RECORDS else f"coalesce(sum({quoted(counted)}), 0)"
            output.append(f"CAST({source} AS DECIMAL({DIGITS_MAX},0)) AS {quoted(counted)}")
            values.append(counted)
        there = " OR ".join(f"{quoted(name)} <> 0" for name in values)
        sides = []
        for view, columns, sums in (
            (self._topic_view, theirs, topic),
            (self._output_view, ours, output),
        ):
            grouped = ", ".join(str(number + 1) for number in range(len(columns)))
            sides.append(
                f"SELECT * FROM (SELECT {', '.join(columns)}, {', '.join(sums)} FROM {view} "
                f"GROUP BY {grouped}) AS by_key WHERE {there}"
            )
        del keys
        return Sides(sides[0], sides[1], tuple(relation.by), tuple(values))

    def _scale(self, name: str, amount: Amount) -> int:
        kinds = (self._output.field(name).type, self._topic.field(amount.column).type)
        return max(kind.scale if pa.types.is_decimal(kind) else 0 for kind in kinds)

    def _signed(self, amount: Amount, scale: int) -> str:
        """The amount, wide enough to be taken away: a type may have no negative number, or one less of them."""
        column = f"CAST({self._dialect.column(amount.column)} AS DECIMAL({DIGITS_MAX},{scale}))"
        if amount.direction is None:
            return column
        values = ", ".join(self._dialect.text(value) for value in amount.plus)
        direction = self._dialect.column(amount.direction)
        return f"CASE WHEN {direction} IN ({values}) THEN {column} ELSE -{column} END"

    def _both(self, columns: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """The columns of both sides in one type, under the output's names."""
        ours: list[str] = []
        theirs: list[str] = []
        for name, source in columns.items():
            kind = common_type(self._output.field(name), self._topic.field(source), "")
            for found, column in ((ours, name), (theirs, source)):
                quoted = self._dialect.column(column)
                value = quoted if kind is None else f"CAST({quoted} AS {kind})"
                found.append(f"{value} AS {self._dialect.column(name)}")
        return ours, theirs


def _sum(value: str, scale: int) -> str:
    """Exact, or an error: never a number that has wrapped around."""
    return f"CAST(coalesce(sum(CAST({value} AS DECIMAL({DIGITS_MAX},{scale}))), 0) AS DECIMAL({DIGITS_MAX},{scale}))"


def differing(columns: Sequence[str], dialect: Dialect, topic: str, output: str) -> str:
    """The rows that the two reductions, kept under these names, do not have as often: `IN_TOPIC`, `IN_OUTPUT`."""
    names = ", ".join(dialect.column(name) for name in columns)
    return (
        f"SELECT {names}, sum({IN_TOPIC}) AS {IN_TOPIC}, sum({IN_OUTPUT}) AS {IN_OUTPUT} FROM ("
        f"SELECT {names}, 1 AS {IN_TOPIC}, 0 AS {IN_OUTPUT} FROM {topic} UNION ALL "
        f"SELECT {names}, 0 AS {IN_TOPIC}, 1 AS {IN_OUTPUT} FROM {output}) AS both_sides "
        f"GROUP BY {names} HAVING sum({IN_TOPIC}) <> sum({IN_OUTPUT})"
    )
