"""Checks that each row passes or not by itself, so that those that fail can go elsewhere and the others stay.

They have the names and arguments of Great Expectations' expectations of columns, and are made here on Arrow's columns:
exactly, and of nothing but the row. A null passes, as there, but for the check that there is none.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRequestError
from txn_engine.held import nulls
from txn_engine.names import printable
from txn_engine.reasons import Reason

_ACTOR: Final = "load"
NAME_CHARS_MAX: Final = 200
_BOUNDS: Final = frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"})
_PAIR: Final = frozenset({"column_A", "column_B", "or_equal"})
_ARGUMENTS: Final[Mapping[str, frozenset[str]]] = {
    "expect_column_values_to_not_be_null": frozenset({"column"}),
    "expect_column_values_to_be_between": _BOUNDS,
    "expect_column_values_to_be_in_set": frozenset({"column", "value_set"}),
    "expect_column_values_to_not_be_in_set": frozenset({"column", "value_set"}),
    "expect_column_values_to_match_regex": frozenset({"column", "regex"}),
    "expect_column_values_to_not_match_regex": frozenset({"column", "regex"}),
    "expect_column_value_lengths_to_be_between": _BOUNDS,
    "expect_column_pair_values_a_to_be_greater_than_b": _PAIR,
}
ROW_CHECKS: Final = tuple(sorted(_ARGUMENTS))
"""The checks that there are."""

Passes = Callable[[pa.RecordBatch], Any]
"""Of rows: which pass, null for neither."""


@dataclass(frozen=True)
class RowCheck:
    """A check of rows: its type and arguments, as Great Expectations has them, and a name that quotes no record.

    Raises `InvalidRequestError` for a type that is none of `ROW_CHECKS`, and for arguments that it has not.
    """

    type: str
    arguments: Mapping[str, Any]
    name: str = field(default="")

    def __post_init__(self) -> None:
        if (
            type(self.type) is not str
            or type(self.name) is not str
            or not isinstance(self.arguments, Mapping)
        ):
            raise self._refused(
                "the check of each row is invalid",
                "a type and a name that are texts, and a mapping of arguments",
                Reason.BAD_ARGUMENT,
            )
        known = _ARGUMENTS.get(self.type)
        if known is None:
            raise self._refused(
                f"{self.type!r} of each row", f"one of {', '.join(ROW_CHECKS)}", Reason.UNKNOWN_CHECK
            )
        if unknown := sorted(set(self.arguments) - known):
            raise self._refused(
                f"{unknown[0]} of {self.type}", f"only {', '.join(sorted(known))}", Reason.BAD_ARGUMENT
            )
        if not self.columns or not all(isinstance(each, str) and each for each in self.columns):
            raise self._refused(f"{self.type} without a column", "the name of one", Reason.BAD_ARGUMENT)
        named = f"{self.type}({', '.join(self.columns)})"
        object.__setattr__(self, "name", printable(self.name or named)[:NAME_CHARS_MAX])

    @property
    def columns(self) -> tuple[Any, ...]:
        """Those that it looks at."""
        names = ("column_A", "column_B") if "column_A" in _ARGUMENTS[self.type] else ("column",)
        return tuple(self.arguments[name] for name in names if name in self.arguments)

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON has it; `RowCheck(**plain)` is the same check."""
        return {
            "type": self.type,
            "arguments": json.loads(json.dumps(self.arguments, default=str)),
            "name": self.name,
        }

    @property
    def expected(self) -> str:
        """What it asks for."""
        told = ", ".join(f"{name} {value!r}" for name, value in self.arguments.items())
        return f"{self.type}: {told}"[:NAME_CHARS_MAX]

    def on(self, schema: pa.Schema) -> Passes:
        """The check of rows of this schema. Raises `InvalidRequestError` where it cannot be made of them."""
        missing = [name for name in self.columns if name not in schema.names]
        if missing:
            raise self._refused(
                f"no column {missing[0]!r}", f"some of {', '.join(schema.names)}", Reason.UNKNOWN_COLUMN
            )
        kinds = [schema.field(name).type for name in self.columns]
        try:
            passes = self._passes(*kinds)
            passes(pa.RecordBatch.from_arrays([nulls(0, each.type) for each in schema], schema=schema))
        except (pa.ArrowException, ValueError, TypeError, InvalidOperation):
            pass  # its text may quote what was given
        else:
            return self._told(passes)
        raise self._refused(
            f"{self.type} of a column of type {', '.join(map(str, kinds))}",
            "arguments that such a column's values can be compared with",
            Reason.CHECK_NOT_APPLICABLE,
        )

    def _told(self, passes: Passes) -> Passes:
        """The check, which says it by itself where it cannot be made of some values."""

        def told(rows: pa.RecordBatch) -> Any:
            try:
                return passes(rows)
            except pa.ArrowException:
                pass  # its text quotes a value
            raise self._refused(
                f"{self.type} of values that cannot be compared",
                "columns of one type, or values in both's range",
                Reason.INCOMPARABLE_VALUES,
            )

        return told

    def _passes(self, kind: pa.DataType, other: pa.DataType | None = None) -> Passes:
        given, column = self.arguments, self.columns[0]
        match self.type:
            case "expect_column_values_to_not_be_null":
                return lambda rows: pc.is_valid(rows.column(column))
            case "expect_column_values_to_be_between":
                return _between(given, kind, lambda rows: rows.column(column))
            case "expect_column_value_lengths_to_be_between":
                return _between(given, pa.int32(), lambda rows: _lengths(rows.column(column)))
            case "expect_column_values_to_be_in_set":
                return _in_set(given, kind, column)
            case "expect_column_values_to_not_be_in_set":
                is_in = _in_set(given, kind, column)
                return lambda rows: pc.invert(is_in(rows))
            case "expect_column_values_to_match_regex":
                return _matching(given, kind, column)
            case "expect_column_values_to_not_match_regex":
                matches = _matching(given, kind, column)
                return lambda rows: pc.invert(matches(rows))
        if other is None or not _are_comparable(kind, other):
            raise TypeError("a pair that no one type holds exactly")
        compare: Any = pc.greater_equal if given.get("or_equal") else pc.greater
        return lambda rows: compare(*(rows.column(name) for name in self.columns))

    def _refused(self, seen: str, expected: str, reason: Reason) -> InvalidRequestError:
        actor = f"{_ACTOR}: check {self.name}" if self.name else _ACTOR
        return InvalidRequestError(seen, actor=actor, expected=expected, reason=reason)


def checks_on(checks: Sequence[RowCheck], schema: pa.Schema) -> tuple[tuple[RowCheck, Passes], ...]:
    """Each check, made for rows of this schema. Raises as `RowCheck.on`."""
    return tuple((check, check.on(schema)) for check in checks)


def failing(passes: Passes, rows: pa.RecordBatch) -> list[int]:
    """The rows that do not pass."""
    found: Any = pc.fill_null(passes(rows), True)
    places: list[int] = np.flatnonzero(~found.to_numpy(zero_copy_only=False)).tolist()
    return places


def _between(given: Mapping[str, Any], kind: pa.DataType, values: Callable[[pa.RecordBatch], Any]) -> Passes:
    rules: list[tuple[Any, Any]] = []
    for name, strict, compare, compare_strictly in (
        ("min_value", "strict_min", pc.greater_equal, pc.greater),
        ("max_value", "strict_max", pc.less_equal, pc.less),
    ):
        if given.get(name) is not None:
            rules.append((compare_strictly if given.get(strict) else compare, _scalar(given[name], kind)))
    if not rules:
        raise ValueError("no bound")

    def passes(rows: pa.RecordBatch) -> Any:
        column = values(rows)
        found = [compare(column, bound) for compare, bound in rules]
        return found[0] if len(found) == 1 else pc.and_kleene(*found)

    return passes


def _in_set(given: Mapping[str, Any], kind: pa.DataType, column: str) -> Passes:
    held = given.get("value_set")
    if not isinstance(held, list | tuple | set | frozenset) or not held:
        raise TypeError("no values")
    known = [_scalar(each, kind) for each in held]

    def passes(rows: pa.RecordBatch) -> Any:
        return reduce(pc.or_kleene, (pc.equal(rows.column(column), each) for each in known))

    return passes


def _matching(given: Mapping[str, Any], kind: pa.DataType, column: str) -> Passes:
    pattern = given.get("regex")
    if not isinstance(pattern, str) or not _is_text(kind):
        raise TypeError("no text")
    pc.match_substring_regex(pa.array([""]), pattern)  # one that is none is told of values only
    return lambda rows: pc.match_substring_regex(rows.column(column), pattern)


def _lengths(column: Any) -> Any:
    return pc.utf8_length(column) if _is_text(column.type) else pc.binary_length(column)


def _scalar(value: Any, kind: pa.DataType) -> Any:
    """What values of the type are compared with: exactly that, or an error."""
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        if isinstance(value, bool):
            raise TypeError("no number")
        number = Decimal(str(value))
        exponent = number.as_tuple().exponent
        if not isinstance(exponent, int):
            raise ValueError("no finite number")
        return pa.scalar(number)
    if pa.types.is_floating(kind):
        if isinstance(value, bool):
            raise TypeError("no number")
        if math.isnan(bound := float(value)):
            raise ValueError("which nothing is compared with")
        return pa.scalar(bound, kind)
    if pa.types.is_temporal(kind):
        text = value.isoformat() if isinstance(value, dt.date | dt.datetime) else value
        if not isinstance(text, str):
            raise TypeError("no time")
        return pa.scalar(text).cast(kind)
    if pa.types.is_boolean(kind) or _is_text(kind):
        if not isinstance(value, str if _is_text(kind) else bool):
            raise TypeError("a value of another type")
        return pa.scalar(value, kind)
    raise TypeError("a type without an order")


def _are_comparable(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether pairs are compared exactly: with a float Arrow makes the other one a float."""
    if pa.types.is_floating(one) == pa.types.is_floating(other):
        return True
    whole, wide = (other, one) if pa.types.is_floating(one) else (one, other)
    return bool(pa.types.is_integer(whole) and whole.bit_width <= 32 and wide == pa.float64())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
