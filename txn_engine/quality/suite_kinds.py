"""What an expectation of Great Expectations may be: one about the rows that it is given, which runs nobody's text as
code and opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

_ACTOR: Final = "checks"
BATCH: Final = "batch"
"""The name in braces where a query's rows stand."""
_PERMITTED: Final = frozenset(
    Path(__file__).with_name("expectations.txt").read_text(encoding="utf-8").split()
)
"""Those of Great Expectations that somebody has looked at. Others ask other tables or sources."""
OF_TYPES: Final = (
    "expect_column_to_exist",
    "expect_column_type_to_be",
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
)
"""Expectations that look at no value of their column."""
OF_SUMS: Final = frozenset(
    f"expect_{name}"
    for name in (
        "column_kl_divergence_to_be_less_than",
        "column_mean_to_be_between",
        "column_median_to_be_between",
        "column_quantile_values_to_be_between",
        "column_stdev_to_be_between",
        "column_sum_to_be_between",
        "column_value_z_scores_to_be_less_than",
        "column_values_to_not_be_outliers",
        "multicolumn_sum_to_equal",
    )
)
"""Expectations that add numbers up."""
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_IDS: Final = ("$id", "id")


def check_kind(expectation: Expectation, suite: str) -> None:
    """Raise `InvalidRequestError` for an expectation that looks elsewhere than at its rows, or runs text as code.

    An expectation that is not Great Expectations' own is code of the caller's, and goes through.
    """
    kind = type(expectation)
    if kind.__module__.startswith("great_expectations.") and kind.__name__ not in _PERMITTED:
        raise _refused(
            f"suite {suite!r}: {expectation.expectation_type}", "expectations about the rows that are checked"
        )
    _check_condition(getattr(expectation, "row_condition", None), suite)
    _check_query(getattr(expectation, "unexpected_rows_query", None), suite)
    for pattern in _patterns_of(expectation):
        _check_pattern(pattern, suite)
    schema = getattr(expectation, "json_schema", None)
    if schema is not None:
        _check_json_schema(schema, suite)


def _patterns_of(expectation: Expectation) -> list[str]:
    """The regular expressions that it has; one that is a parameter of the suite has no text yet."""
    given = [getattr(expectation, "regex", None)]
    listed = getattr(expectation, "regex_list", None)
    given += listed if isinstance(listed, list | tuple) else []
    return [each for each in given if isinstance(each, str)]


def _check_pattern(pattern: str, suite: str) -> None:
    """RE2 matches in linear time, and so has no look-around and no back-references."""
    try:
        pc.match_substring_regex(pa.scalar(""), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        raise _refused(
            f"suite {suite!r}: a regular expression that RE2 does not take: {pattern!r:.200}",
            "one without look-around and back-references, whose time to match has a bound",
        ) from None


def _check_condition(given: Any, suite: str) -> None:
    from great_expectations.expectations import row_conditions as conditions

    todo = [given]
    while todo:
        condition = todo.pop()
        if isinstance(condition, conditions.AndCondition | conditions.OrCondition):
            todo.extend(condition.conditions)
        elif condition is not None and not (
            isinstance(condition, conditions.ComparisonCondition | conditions.NullityCondition)
            and "`" not in condition.column.name
        ):
            raise _refused(
                f"suite {suite!r}: a row_condition that is code for pandas or Spark",
                "comparisons of columns, as Great Expectations has them",
                'write it as col("amount") > 0 with condition_parser "great_expectations"',
            )


def compared_in(condition: Any) -> Iterator[Any]:
    """The columns' names and the values that a row_condition of comparisons has."""
    todo = [] if condition is None else [condition]
    while todo:
        each = todo.pop()
        todo.extend(getattr(each, "conditions", ()))
        if hasattr(each, "column"):
            yield each.column.name
        found = getattr(each, "parameter", None)
        yield from found if isinstance(found, list | tuple | set) else (found,)


def columns_of(expectation: Expectation) -> set[str]:
    """The columns whose values it looks at, those of its `row_condition` too; values of that may be among them."""
    named = (getattr(expectation, name, None) for name in ("column", "column_A", "column_B", "column_list"))
    found = [each for given in named for each in (given if isinstance(given, list | tuple) else [given])]
    found += compared_in(getattr(expectation, "row_condition", None))
    return {each for each in found if isinstance(each, str)}


def _check_query(query: Any, suite: str) -> None:
    """Great Expectations formats a query's text as Python does, so braces may hold the rows' name and nothing else: a
    format or an attribute would make another text of it than the one that was looked at.
    """
    if not isinstance(query, str):
        return
    try:
        fields = [(name, spec, how) for _, name, spec, how in Formatter().parse(query) if name is not None]
    except ValueError:
        fields = [("", "", None)]
    if not fields or any(field != (BATCH, "", None) for field in fields):
        raise InvalidRequestError(
            f"suite {suite!r}: a query without {{batch}}, or with more than that in braces",
            actor=_ACTOR,
            expected="{batch} where the rows stand that are checked, and other braces doubled",
            reason=Reason.QUERY_WITHOUT_BATCH,
        )


def _check_json_schema(schema: Any, suite: str) -> None:
    """A JSON schema may refer to parts of itself. What it names elsewhere, jsonschema would open."""
    todo: list[tuple[Any, bool]] = [(schema, True)]
    while todo:
        value, is_root = todo.pop()
        if isinstance(value, list | tuple):
            todo.extend((each, False) for each in value)
        if not isinstance(value, Mapping):
            continue
        leads_out = any(
            isinstance(value.get(name), str) and not value[name].startswith("#") for name in _REFERENCES
        )
        if leads_out or any(isinstance(value.get(name), str) and not is_root for name in _IDS):
            raise _refused(
                f"suite {suite!r}: a JSON schema that refers to another document",
                'a schema that is whole: each "$ref" begins with "#", and only the schema itself has an "$id"',
            )
        if isinstance(value.get("pattern"), str) or isinstance(value.get("patternProperties"), Mapping):
            raise _refused(
                f"suite {suite!r}: a JSON schema with a pattern",
                "none: jsonschema's time to match a regular expression has no bound",
                "put the value into a column of its own and use expect_column_values_to_match_regex",
            )
        todo.extend((each, False) for each in value.values())


def _refused(seen: str, expected: str, action: str | None = None) -> InvalidRequestError:
    return InvalidRequestError(
        seen, actor=_ACTOR, expected=expected, action=action, reason=Reason.BAD_EXPECTATION
    )
