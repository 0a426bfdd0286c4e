"""What a typed condition computes, by Arrow's kernels. NULL is neither true nor false, as in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.exact import InexactError
from txn_engine.held import elements
from txn_engine.sql.conditions.kinds import BOOLEAN, LENGTH, TEXT, Kind, computed, plain
from txn_engine.sql.conditions.refusals import Misfit

Records = Mapping[str, Any]
"""The columns that the condition names, each in one array."""
Evaluate = Callable[[Records], Any]
_NAN: Final = 0x7FF8_0000_0000_0000
"""The bits of NaN. Files hold NaNs of other bits too."""
_MINUS_ZERO: Final = -(2**63)
_LARGEST: Final = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of a condition with one exact type. `evaluate` gives an array, or a scalar where it is a constant."""

    kind: Kind
    evaluate: Evaluate
    constant: Any = None
    name: str | None = None

    @classmethod
    def of_constant(cls, kind: Kind, value: Any) -> Expression:
        """The same value for each record."""
        return cls(kind, lambda _: value, value)

    @classmethod
    def made_by(cls, kind: Kind, function: Callable[..., Any], *arguments: Expression) -> Expression:
        """What a function makes of these. Of its arguments, at least one is an array; constants may be scalars."""
        if all(each.constant is not None for each in arguments):
            return cls.of_constant(kind, function(*(_repeated(each.constant) for each in arguments))[0])
        return cls(kind, lambda records: function(*(each.evaluate(records) for each in arguments)))


def _repeated(constant: Any) -> Any:
    """An array of one value."""
    return pa.repeat(constant, 1)


# --- columns and what is in them ------------------------------------------------------------------------------


def column(name: str, kind: Kind) -> Expression:
    """A column of the records."""
    return Expression(kind, lambda records: plain(records[name]), name=name)


def struct_field(struct: Expression, index: int, kind: Kind, name: str) -> Expression:
    """A field of a struct; null where the struct is."""
    return Expression(
        kind, lambda records: plain(pc.struct_field(struct.evaluate(records), [index])), name=name
    )


def map_value(of: Expression, key: Any, key_kind: Kind, kind: Kind) -> Expression:
    """What a map has for a key; null where it has nothing. A map that has the key twice has no answer."""

    def evaluate(records: Records) -> Any:
        maps = of.evaluate(records)
        entries = maps.cast(pa.list_(pa.struct([maps.type.key_field, maps.type.item_field])))
        pairs, owners = elements(entries), pc.list_parent_indices(entries)
        hits = compare("=", key_kind, plain(pc.struct_field(pairs, [0])), key)
        at = np.flatnonzero(hits.fill_null(False).to_numpy(zero_copy_only=False))
        found = owners.to_numpy(zero_copy_only=False)[at]
        if len(np.unique(found)) != len(found):
            raise InexactError(0)
        indices = np.full(len(maps), -1, np.int64)
        indices[found] = at
        return plain(pc.struct_field(pairs, [1])).take(pa.array(indices, mask=indices < 0))

    return Expression(kind, evaluate)


def list_contains(element: Kind, lists: Any, value: Any) -> Any:
    """Whether a list has the value among its elements; null for a list that is null."""
    hits = compare("=", element, plain(elements(lists)), value).fill_null(False)
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    found = np.zeros(len(lists), np.bool_)
    found[owners[hits.to_numpy(zero_copy_only=False)]] = True
    return pa.array(found, mask=lists.is_null().to_numpy(zero_copy_only=False))


# --- comparisons ----------------------------------------------------------------------------------------------

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare(sign: str, kind: Kind, left: Any, right: Any) -> Any:
    """Compare two values of one kind."""
    return _COMPARISONS[sign](_ordered(kind, left), _ordered(kind, right))


def _ordered(kind: Kind, values: Any) -> Any:
    """The values, in a type whose order is SQL's: for floats, integers in which NaN is itself and after all numbers,
    as in DuckDB, Postgres and Spark, and -0.0 is 0.0.
    """
    if not pa.types.is_floating(kind):
        return values
    if isinstance(values, pa.Scalar):
        return _ordered(kind, _repeated(values))[0]
    held = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(held), _NAN, held.view(np.int64))
    ordered = np.where(
        bits < 0, bits ^ _LARGEST, bits
    )  # the larger a negative float's bits, the smaller it is
    ordered[bits == _MINUS_ZERO] = 0
    return pa.array(ordered, mask=values.is_null().to_numpy(zero_copy_only=False))


def is_same(kind: Kind, left: Any, right: Any) -> Any:
    """IS NOT DISTINCT FROM: null is the same as null."""
    one, other = pc.is_null(left), pc.is_null(right)
    return pc.or_(pc.and_(one, other), pc.fill_null(compare("=", kind, left, right), False))


def is_between(kind: Kind, value: Any, low: Any, high: Any) -> Any:
    """BETWEEN."""
    return pc.and_kleene(compare(">=", kind, value, low), compare("<=", kind, value, high))


def is_among(kind: Kind, constants: Sequence[Any]) -> Callable[..., Any]:
    """IN, for constants, and other values that the function gets."""
    values = pa.array([each for each in constants if each.is_valid], computed(kind))
    known, has_null = _ordered(kind, values), len(values) < len(constants)
    nothing = pa.scalar(None, BOOLEAN)

    def function(item: Any, *others: Any) -> Any:
        found = pc.is_in(_ordered(kind, item), value_set=known)
        found = pc.if_else(pc.is_null(item), nothing, found) if constants else pa.scalar(False)
        if has_null:
            found = pc.or_kleene(found, nothing)
        for other in others:
            found = pc.or_kleene(found, compare("=", kind, item, other))
        return found

    return function


def joined(parts: Sequence[Expression], *, both: bool) -> Expression:
    """AND (both) or OR of any number of conditions, of which only two answers are held at a time."""
    join, neutral = (pc.and_kleene if both else pc.or_kleene), pa.scalar(both)

    def evaluate(records: Records) -> Any:
        found = neutral
        for each in parts:
            found = join(found, each.evaluate(records))
        return found

    if all(each.constant is not None for each in parts):
        return Expression.of_constant(BOOLEAN, evaluate({}))
    return Expression(BOOLEAN, evaluate)


# --- texts ----------------------------------------------------------------------------------------------------


def like(pattern: str, escape: str | None) -> Callable[[Any], Any]:
    """LIKE: % for any characters, _ for one, and each other character for itself."""
    expression = _regular(pattern, escape)

    def function(texts: Any) -> Any:
        return pc.match_substring_regex(texts, expression)

    try:
        function(pa.array([""], TEXT))
    except pa.ArrowException:
        raise Misfit("a LIKE pattern that is too long", "write a shorter one") from None
    return function


def _regular(pattern: str, escape: str | None) -> str:
    found, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            char = pattern[at : at + 1]
            if not char or char not in {"%", "_", escape}:
                raise Misfit(
                    "an escape character in a LIKE pattern that escapes nothing",
                    "write it before %, _ or itself",
                )
            found.append(f"\\x{{{ord(char):x}}}")
        elif char == "\\" and escape is None:
            raise Misfit(
                "a backslash in a LIKE pattern, which some systems take for an escape character",
                "say which character escapes: LIKE '100\\%' ESCAPE '\\', or another one if the text has backslashes",
            )
        else:
            found.append({"%": "(?s:.*)", "_": "(?s:.)"}.get(char, f"\\x{{{ord(char):x}}}"))
        at += 1
    return rf"\A{''.join(found)}\z"


def length(texts: Any) -> Any:
    """How many characters a text has."""
    return pc.utf8_length(texts).cast(LENGTH)


def affix(name: str, wanted: str) -> Callable[[Any], Any]:
    """Whether a text begins with another one, ends with it or contains it, character by character."""
    return lambda texts: AFFIXES[name](texts, wanted)


AFFIXES: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "starts_with": pc.starts_with,
    "prefix": pc.starts_with,
    "ends_with": pc.ends_with,
    "suffix": pc.ends_with,
    "contains": pc.match_substring,
}
"""Functions that look for a text in a text."""
CHANGED_TEXTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "trim": lambda texts: pc.utf8_trim(texts, " "),
    "ltrim": lambda texts: pc.utf8_ltrim(texts, " "),
    "rtrim": lambda texts: pc.utf8_rtrim(texts, " "),
}
"""Functions that make a text of a text."""
ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
"""Of integers of one type, which fails where the type does not have the result."""
