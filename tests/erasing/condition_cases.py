"""Random conditions over every type, each with a naive evaluation: `python -m tests.erasing.condition_cases`.

--minutes 60     as long; by default 1
--cases 1000     as many, instead
--seed today     the first part of each case's name; by default a fresh one
--case SEED/7    this one alone

A condition is refused, or chooses exactly the records that the naive evaluation chooses. Values are compared there as
the exact numbers that they are, so a condition that compares two types is right only if no value was changed on the
way. At least half of the conditions are accepted.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import count
from random import Random
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa

from tests.erasing.condition_meaning import (
    SIGNS,
    NoAnswerError,
    both,
    compared,
    converted,
    either,
    is_like,
    negated,
)
from tests.erasing.condition_spelling import spelled
from tests.erasing.condition_values import (
    NANOSECONDS,
    WORDS,
    Type,
    scalar_types,
)
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.sql.conditions import parsing
from txn_engine.sql.predicate import SqlPredicate

ROWS = 24
_TABLES = 8
_INSIDE = ("int64", "float64", "large_text", "decimal128_10", "at_ns_UTC")
"""Columns that are fields of structs, too."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of a condition: its text, its kind, and its value in a record."""

    sql: str
    kind: tuple[Any, ...]
    value: Callable[[Row], Any]


@dataclass(frozen=True)
class Case:
    """A condition on the records of a table, and what it chooses: None where a record has no answer."""

    name: str
    condition: str
    table: pa.Table
    expected: list[bool] | None
    is_mixed: bool


@dataclass
class Tally:
    """What became of the cases. choosing: of those accepted, how many chose some of the records and not all."""

    total: int = 0
    accepted: int = 0
    choosing: int = 0
    mixed: int = 0
    mixed_accepted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The figures, in one line."""
        unanswered = self.reasons[Reason.CONDITION_UNANSWERED]
        return (
            f"{self.total} conditions: {self.accepted} accepted ({100 * self.accepted / max(self.total, 1):.0f} %), "
            f"of which {self.choosing} chose some of the records; {unanswered} without an answer for every record, "
            f"{self.total - self.accepted - unanswered} refused; {self.mixed_accepted} of {self.mixed} that mix types "
            f"were accepted; {len(self.wrong)} wrong"
        )


# --- records --------------------------------------------------------------------------------------------------


@cache
def _types() -> dict[str, Type]:
    return {each.name: each for each in scalar_types()}


@cache
def table_of(seed: str) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Records with a column of every type, also in structs, lists and maps; and the same in Python."""
    draw = Random(seed)
    columns: dict[str, Any] = {}
    rows: list[dict[str, Any]] = [{} for _ in range(ROWS)]

    def add(name: str, arrow: Any, values: Sequence[Any]) -> None:
        columns[name] = arrow
        for row, value in zip(rows, values, strict=True):
            row[name] = value

    for name, kind in _types().items():
        values = [None if draw.random() < 0.2 else kind.draw(draw) for _ in range(ROWS)]
        add(name, _in_parts(kind.column(values), draw), values)
    _add_structs(add, draw)
    _add_lists(add, draw)
    add("nothing", pa.chunked_array([pa.nulls(ROWS)]), [None] * ROWS)
    return pa.table(columns), rows


def _in_parts(array: Any, draw: Random) -> Any:
    """A column in several chunks, as records of several files are."""
    at = draw.randint(0, len(array))
    return pa.chunked_array([array.slice(0, at), array.slice(at)], array.type)


def _add_structs(add: Callable[..., None], draw: Random) -> None:
    inside = [_types()[name] for name in _INSIDE]
    hidden = [draw.random() < 0.2 for _ in range(ROWS)]
    drawn = [[None if draw.random() < 0.2 else kind.draw(draw) for _ in range(ROWS)] for kind in inside]
    arrays = [kind.column(values) for kind, values in zip(inside, drawn, strict=True)]
    inner = pa.StructArray.from_arrays(arrays, _INSIDE, mask=pa.array(hidden))
    words = [draw.choice(WORDS) for _ in range(ROWS)]
    outer = pa.StructArray.from_arrays([inner, _types()["category"].column(words)], ["Inner", "category"])
    found: list[Any] = [
        None if hidden[at] else {name: values[at] for name, values in zip(_INSIDE, drawn, strict=True)}
        for at in range(ROWS)
    ]
    add("of", pa.chunked_array([inner.slice(0, 5), inner.slice(5)]), found)
    add("Deep", outer, [{"Inner": held, "category": word} for held, word in zip(found, words, strict=True)])


def _add_lists(add: Callable[..., None], draw: Random) -> None:
    elements = [2**53, 2**53 + 1, 1, None, 0]
    lists = [None if draw.random() < 0.2 else draw.choices(elements, k=2) for _ in range(ROWS)]
    for name, arrow in (
        ("ids", pa.list_(pa.int64())),
        ("many", pa.large_list(pa.int64())),
        ("pair", pa.list_(pa.int64(), 2)),
    ):
        add(name, _in_parts(pa.array(lists, arrow), draw), lists)
    words = [None if draw.random() < 0.2 else draw.sample(WORDS, k=draw.randint(0, 3)) for _ in range(ROWS)]
    add("words", _in_parts(pa.array(words, pa.list_(pa.string_view())), draw), words)
    maps = [None if each is None else [(word, draw.choice(elements)) for word in each] for each in words]
    add("facts", _in_parts(pa.array(maps, pa.map_(pa.string(), pa.int64())), draw), maps)
    numbered = [
        None
        if draw.random() < 0.2
        else [(key, draw.choice(WORDS)) for key in draw.sample([2**53, 2**53 + 1, 1], 2)]
        for _ in range(ROWS)
    ]
    add("numbered", _in_parts(pa.array(numbered, pa.map_(pa.int64(), pa.string())), draw), numbered)


# --- conditions -----------------------------------------------------------------------------------------------


class Chooser:
    """Draws conditions over the permitted grammar, and now and then one that mixes types."""

    def __init__(self, draw: Random, rows: Sequence[Row]) -> None:
        self._draw = draw
        self._rows = rows
        self._one_of = draw.choice
        self.is_mixed = False

    def condition(self, depth: int) -> Part:
        """A condition with at most so many levels of AND, OR and NOT."""
        if depth and self._draw.random() < 0.7:
            return self._joined(depth)
        leaves = (
            *(self._comparison,) * 5,
            *(self._in, self._between, self._null, self._distinct, self._like, self._flag, self._cast) * 2,
            *(self._affix, self._list, self._map, self._coalesced, self._sum, self._text_function),
        )
        return self._one_of(leaves)()

    def _joined(self, depth: int) -> Part:
        parts = [self.condition(depth - 1) for _ in range(self._draw.randint(1, 3))]
        if len(parts) == 1:
            return _boolean(f"NOT ({parts[0].sql})", lambda row: negated(parts[0].value(row)))
        word, join = self._one_of([(" AND ", both), (" OR ", either)])
        sql = word.join(f"({each.sql})" for each in parts)
        return _boolean(sql, lambda row: join([each.value(row) for each in parts]))

    # --- columns ----------------------------------------------------------------------------------------------

    def _column(self, *families: str) -> Part:
        kind = self._one_of([each for each in _types().values() if not families or each.kind[0] in families])
        if kind.name in (*_INSIDE, "category") and self._draw.random() < 0.5:
            return self._field(kind)
        quoted = self._one_of([kind.name, f'"{kind.name}"', kind.name.upper()])
        return Part(quoted, kind.kind, lambda row: row[kind.name])

    def _field(self, kind: Type) -> Part:
        name = kind.name
        if name == "category":
            return Part("deep.Category", kind.kind, lambda row: row["Deep"][name])
        written = self._one_of([f"of.{name}", f"of['{name}']", f"(of).{name}", f"deep.inner.{name}"])

        def value(row: Row) -> Any:
            struct = row["Deep"]["Inner"] if written.startswith("deep") else row["of"]
            return None if struct is None else struct[name]

        return Part(written, kind.kind, value)

    def _value_near(self, part: Part) -> Any:
        """A value that a record has, or one next to it."""
        found = [value for row in self._rows if (value := part.value(row)) is not None]
        if not found or self._draw.random() < 0.15:
            types = [each for each in _types().values() if each.kind == part.kind]
            return self._one_of(types).draw(self._draw)
        value, family = self._one_of(found), part.kind[0]
        if self._draw.random() < 0.6 or isinstance(value, (float, str, bytes, bool)):
            return value
        step = {"decimal": lambda: Fraction(1, 10 ** part.kind[2]), "int": lambda: 1, "date": lambda: 1}
        by = step[family]() if family in step else NANOSECONDS[part.kind[1]]
        return value + self._one_of([-by, by])

    def _literal(self, like: Part) -> Part:
        """A literal of the kind of a part; now and then of another one."""
        if self._draw.random() < 0.03:
            return Part("NULL", like.kind, lambda _: None)
        if self._draw.random() < 0.06:
            self.is_mixed = True
            return self._other_literal(like)
        for _ in range(20):
            value = self._value_near(like)
            sql = spelled(value, like.kind, self._draw)
            if sql is not None:
                return _constant(sql, like.kind, value)
        return Part("NULL", like.kind, lambda _: None)

    def _other_literal(self, like: Part) -> Part:
        value = self._value_near(like)
        if (
            isinstance(value, (int, Fraction, float))
            and not isinstance(value, bool)
            and like.kind[0] in ("int", "decimal", "float")
        ):
            if isinstance(value, float):
                value = Fraction(value) if math.isfinite(value) else Fraction(1)
            value = value + self._one_of([0, 1, Fraction(1, 2), Fraction(1, 1000)])
            number = Decimal(value.numerator) / Decimal(value.denominator)
            if Fraction(number) != value:
                number = Decimal(int(value))
            sql = self._one_of([f"{number:f}", f"{number:E}", f"CAST({number:f} AS DOUBLE)", f"'{number:f}'"])
            if "'" in sql:
                return _constant(sql, ("text",), f"{number:f}")
            if "E" in sql:
                return _constant(sql, ("float", 64), float(number))
            return _constant(sql, like.kind, Fraction(number))
        other = self._one_of([each for each in _types().values() if each.kind[0] != like.kind[0]])
        for _ in range(20):
            drawn = other.draw(self._draw)
            sql = spelled(drawn, other.kind, self._draw)
            if sql is not None:
                return _constant(sql, other.kind, drawn)
        return _constant("'text'", ("text",), "text")

    def _operand(self, like: Part) -> Part:
        """What a part is compared with: mostly a literal, else a column."""
        if self._draw.random() < 0.85:
            return self._literal(like)
        if self._draw.random() < 0.25:
            self.is_mixed = True
            return self._column()
        return self._one_of([Part(each.name, each.kind, lambda row, name=each.name: row[name])
                             for each in _types().values() if each.kind == like.kind])  # fmt: skip

    # --- leaves -----------------------------------------------------------------------------------------------

    def _comparison(self) -> Part:
        left = self._column()
        right, sign = self._operand(left), self._one_of(list(SIGNS))
        if self._draw.random() < 0.2:
            left, right = right, left
        return _boolean(
            f"{left.sql} {sign} {right.sql}", lambda row: compared(sign, left.value(row), right.value(row))
        )

    def _in(self) -> Part:
        left = self._column()
        others = [self._operand(left) for _ in range(self._draw.randint(1, 4))]
        word, turn = self._one_of([("IN", lambda found: found), ("NOT IN", negated)])
        return _boolean(
            f"{left.sql} {word} ({', '.join(each.sql for each in others)})",
            lambda row: turn(either([compared("=", left.value(row), each.value(row)) for each in others])),
        )

    def _between(self) -> Part:
        left = self._column()
        low, high = self._operand(left), self._operand(left)
        word, turn = self._one_of([("BETWEEN", lambda found: found), ("NOT BETWEEN", negated)])
        return _boolean(
            f"{left.sql} {word} {low.sql} AND {high.sql}",
            lambda row: turn(
                both(
                    [
                        compared(">=", left.value(row), low.value(row)),
                        compared("<=", left.value(row), high.value(row)),
                    ]
                )
            ),
        )

    def _null(self) -> Part:
        name = self._one_of(["of", "Deep", "ids", "pair", "facts", "nothing"])
        left = Part(name, (), lambda row: row[name]) if self._draw.random() < 0.3 else self._column()
        word, is_null = self._one_of([("IS NULL", True), ("IS NOT NULL", False)])
        return _boolean(f"{left.sql} {word}", lambda row: (left.value(row) is None) is is_null)

    def _distinct(self) -> Part:
        left = self._column()
        right, (word, same) = (
            self._operand(left),
            self._one_of([("IS NOT DISTINCT FROM", True), ("IS DISTINCT FROM", False)]),
        )

        def value(row: Row) -> bool:
            one, other = left.value(row), right.value(row)
            is_same = (
                one is None and other is None if one is None or other is None else compared("=", one, other)
            )
            return is_same is same

        return _boolean(f"{left.sql} {word} {right.sql}", value)

    def _flag(self) -> Part:
        left = self._column("bool")
        word, value = self._one_of(
            [("", lambda v: v), (" IS TRUE", lambda v: v is True), (" IS NOT FALSE", lambda v: v is not False),
             (" = true", lambda v: v), (" IS UNKNOWN", lambda v: v is None)]
        )  # fmt: skip
        return _boolean(f"{left.sql}{word}", lambda row: value(left.value(row)))

    def _like(self) -> Part:
        left, escape = self._column("text"), self._one_of(["", "!"])
        near = self._one_of([word for row in self._rows if (word := left.value(row))] or ["a"])
        characters = [each for each in near if escape or each not in "%_"]
        pattern = [self._one_of([each, each, each, "ANY", "ONE", "b"]) for each in characters]
        pattern.insert(self._draw.randint(0, len(pattern)), "ANY")
        special = {"ANY": "%", "ONE": "_", "%": "!%", "_": "!_", "'": "''"}
        sql = "".join(special.get(each, each) for each in pattern)
        word, turn = self._one_of([("LIKE", lambda found: found), ("NOT LIKE", negated)])
        written = f"{left.sql} {word} '{sql}'" + (f" ESCAPE '{escape}'" if escape else "")
        return _boolean(
            written, lambda row: None if left.value(row) is None else turn(is_like(left.value(row), pattern))
        )

    def _affix(self) -> Part:
        left, part = self._column("text"), self._one_of(["", "a", "b", "é", "c", "x ", "%"])
        name, holds = self._one_of(
            [("starts_with", str.startswith), ("ends_with", str.endswith), ("contains", str.__contains__)]
        )
        return _boolean(
            f"{name}({left.sql}, '{part}')",
            lambda row: None if left.value(row) is None else holds(left.value(row), part),
        )

    def _text_function(self) -> Part:
        name, function = self._one_of(
            [("lower", str.lower), ("upper", str.upper), ("trim", lambda v: v.strip(" "))]
        )
        column = self._column("text")
        left = Part(
            f"{name}({column.sql})",
            ("text",),
            lambda row: None if column.value(row) is None else function(column.value(row)),
        )
        if self._draw.random() < 0.3:
            left = Part(
                f"length({column.sql})",
                ("int", 64, True),
                lambda row: None if column.value(row) is None else len(column.value(row)),
            )
        right = self._literal(left)
        return _boolean(
            f"{left.sql} = {right.sql}", lambda row: compared("=", left.value(row), right.value(row))
        )

    def _list(self) -> Part:
        name = self._one_of(["ids", "many", "pair", "words"])
        element = Part("", ("text",) if name == "words" else ("int", 64, True), lambda row: None)
        wanted = self._literal(element)

        def value(row: Row) -> bool | None:
            if wanted.value(row) is None:
                raise NoAnswerError
            held = row[name]
            return None if held is None else any(compared("=", each, wanted.value(row)) for each in held)

        written = self._one_of(["list_contains({0}, {1})", "{1} IN {0}"])
        return _boolean(written.format(name, wanted.sql), value)

    def _map(self) -> Part:
        name = self._one_of(["facts", "numbered"])
        kinds = [("text",), ("int", 64, True)]
        key_kind, kind = kinds if name == "facts" else kinds[::-1]
        key = self._literal(Part("", key_kind, lambda row: None))

        def value(row: Row) -> Any:
            if key.value(row) is None:
                raise NoAnswerError
            found = [held for each, held in row[name] or () if compared("=", each, key.value(row))]
            return found[0] if found else None

        held = Part(f"{name}[{key.sql}]", kind, value)
        try:
            right = self._literal(held)
        except NoAnswerError:
            return _boolean(f"{held.sql} IS NULL", lambda row: value(row) is None)
        return _boolean(
            f"{held.sql} = {right.sql}", lambda row: compared("=", held.value(row), right.value(row))
        )

    def _coalesced(self) -> Part:
        left = self._column()
        other, right = self._operand(left), self._operand(left)

        def value(row: Row) -> bool | None:
            compared("=", left.value(row), other.value(row))  # of one type, or refused
            held = left.value(row)
            return compared("=", other.value(row) if held is None else held, right.value(row))

        return _boolean(f"coalesce({left.sql}, {other.sql}) = {right.sql}", value)

    def _sum(self) -> Part:
        left = self._column("int")
        sign, function = self._one_of([("+", int.__add__), ("-", int.__sub__), ("*", int.__mul__)])
        by = self._draw.randint(0, 3)
        right = self._literal(left)
        bits, signed = left.kind[1:]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)

        def value(row: Row) -> bool | None:
            if (held := left.value(row)) is None:
                return None
            if not low <= function(held, by) < high:
                raise NoAnswerError
            return compared("=", function(held, by), right.value(row))

        return _boolean(f"{left.sql} {sign} {by} = {right.sql}", value)

    def _cast(self) -> Part:
        column = self._column()
        target = self._one_of(_CASTS.get(column.kind[0], [("VARCHAR", ("text",))]))
        sql = self._one_of([f"CAST({column.sql} AS {target[0]})", f"{column.sql}::{target[0]}"])
        left = Part(sql, target[1], lambda row: converted(column.value(row), column.kind, target[1]))
        try:
            right = self._literal(left)
        except NoAnswerError:
            right = Part("NULL", target[1], lambda _: None)
        return _boolean(
            f"{left.sql} = {right.sql}", lambda row: compared("=", left.value(row), right.value(row))
        )


def _constant(sql: str, kind: tuple[Any, ...], value: Any) -> Part:
    return Part(sql, kind, lambda _: value)


def _boolean(sql: str, value: Callable[[Row], Any]) -> Part:
    return Part(sql, ("bool",), value)


# --- casts ----------------------------------------------------------------------------------------------

_NUMBERS: list[tuple[str, tuple[Any, ...]]] = [
    *(("SMALLINT", ("int", 16, True)), ("BIGINT", ("int", 64, True)), ("UBIGINT", ("int", 64, False))),
    *(("DECIMAL(38, 10)", ("decimal", 38, 10)), ("DECIMAL(10, 2)", ("decimal", 10, 2))),
    *(("DOUBLE", ("float", 64)), ("FLOAT", ("float", 32)), ("VARCHAR", ("text",))),
]
_CASTS: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "int": _NUMBERS,
    "decimal": _NUMBERS,
    "float": _NUMBERS,
    "text": [("BIGINT", ("int", 64, True)), ("VARCHAR", ("text",)), ("DATE", ("date",))],
    "bool": [("VARCHAR", ("text",)), ("BOOLEAN", ("bool",)), ("BIGINT", ("int", 64, True))],
    "date": [
        *(("VARCHAR", ("text",)), ("TIMESTAMP", ("timestamp", "us", False))),
        ("TIMESTAMP_S", ("timestamp", "s", False)),
    ],
    "timestamp": [
        *(("DATE", ("date",)), ("TIMESTAMP", ("timestamp", "us", False)), ("TIMESTAMP_NS", ("timestamp", "ns", False))),
        *(("TIMESTAMPTZ", ("timestamp", "us", True)), ("TIMESTAMP_MS", ("timestamp", "ms", False))),
    ],
    "time": [("TIME", ("time", "us")), ("TIME_NS", ("time", "ns"))],
    "uuid": [("VARCHAR", ("text",)), ("UUID", ("uuid",))],
}  # fmt: skip


# --- running --------------------------------------------------------------------------------------------------


def case_of(seed: str, number: int) -> Case:
    """The case of this name, always the same."""
    draw = Random(f"{seed}/{number}")
    table, rows = table_of(f"{seed}/{number % _TABLES}")
    chooser = Chooser(draw, rows)
    part = chooser.condition(draw.choice([0, 0, 1, 1, 2, 3]))
    try:
        expected = [part.value(row) is True for row in rows]
    except NoAnswerError:
        expected = None
    return Case(f"{seed}/{number}", part.sql, table, expected, chooser.is_mixed)


def run_case(case: Case, tally: Tally) -> None:
    """Evaluate a case, and count what became of it."""
    tally.total += 1
    tally.mixed += case.is_mixed
    try:
        found = SqlPredicate(case.condition, case.table.schema, topic="payments").matches(case.table).tolist()
    except InvalidRequestError as error:
        tally.reasons[str(error.reason)] += 1
        return
    tally.accepted += 1
    tally.choosing += 0 < sum(found) < len(found)
    tally.mixed_accepted += case.is_mixed
    if found != case.expected:
        tally.wrong.append(f"{case.name}: {case.condition}")


def run(cases: Iterator[Case]) -> Tally:
    """Evaluate cases, and count what became of them."""
    tally = Tally()
    with one_duckdb():
        for case in cases:
            run_case(case, tally)
    return tally


@contextlib.contextmanager
def one_duckdb() -> Iterator[None]:
    """Conditions are parsed with one DuckDB meanwhile: to open it takes longer than to parse one."""
    with duckdb.connect() as shared:

        def connect(**_: Any) -> duckdb.DuckDBPyConnection:
            return shared.cursor()

        with mock.patch.object(parsing.duckdb, "connect", connect):
            yield


def cases_until(seed: str, *, minutes: float, number: int | None) -> Iterator[Case]:
    """Cases of a seed: so many, or for so long."""
    until = time.monotonic() + minutes * 60
    for at in count():
        if at >= number if number is not None else time.monotonic() >= until:
            return
        yield case_of(seed, at)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.erasing.condition_cases")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", default=f"{int(time.time())}")
    parser.add_argument("--case")
    asked = parser.parse_args()
    if asked.case:
        seed, _, number = asked.case.rpartition("/")
        case = case_of(seed, int(number))
        print(case.condition, f"expected: {case.expected}", sep="\n")
        with contextlib.suppress(InvalidRequestError):
            predicate = SqlPredicate(case.condition, case.table.schema, topic="payments")
            print(f"found:    {predicate.matches(case.table).tolist()}")
        return 0
    tally = run(cases_until(asked.seed, minutes=asked.minutes, number=asked.cases))
    for name, times in tally.reasons.most_common():
        print(f"{times:8d}  {name}")
    for wrong in tally.wrong[:50]:
        print(f"WRONG {wrong}")
    print(f"seed {asked.seed}: {tally.text()}")
    return bool(tally.wrong) or 2 * tally.accepted < tally.total


if __name__ == "__main__":
    sys.exit(main())
