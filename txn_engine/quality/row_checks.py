"""Expectations of rows that say `on_failure: dead_letter`: apart from those that hold for all rows together.

Great Expectations looks at rows that are there, and says how many are unexpected. These are made row by row before
(`txn_engine.files.RowCheck`): rows that fail become dead letters, and the others are committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from txn_engine.errors import InvalidRequestError
from txn_engine.quality.suites import Suite, load_suite, names_of
from txn_engine.reasons import Reason
from txn_engine.row_checks import RowCheck

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

ON_FAILURE, DEAD_LETTER = "on_failure", "dead_letter"
"""In an expectation's `meta`."""
_ACTOR = "checks"


def row_checks(given: Any) -> tuple[RowCheck, ...]:
    """The checks of rows of a suite, of whatever `load_suite` takes, in which every one says `on_failure: dead_letter`.

    For loads that look at each row as it comes. Raises `InvalidRequestError` for a suite that has others as well.
    """
    suite = load_suite(given)
    found, rest = parted(suite)
    if rest is not None:
        named = names_of(rest)[0] if rest.expectations else rest.name
        raise InvalidRequestError(
            f"check {named}, which does not say {ON_FAILURE}: {DEAD_LETTER} in its meta",
            actor=_ACTOR,
            expected="checks of each row alone: here is nobody to hold others against what is loaded",
            reason=Reason.NOT_A_ROW_CHECK,
            action="load by Spark, or check afterwards: `quality run TOPIC --suite FILE`",
        )
    return found


def parted(suite: Suite) -> tuple[tuple[RowCheck, ...], Suite | None]:
    """The checks whose rows become dead letters, and the suite of the others; None where there are none.

    Raises `InvalidRequestError` for an expectation that no row can be held against by itself, or not all of them.
    """
    names = names_of(suite)
    found = tuple(
        _row_check(expectation, name)
        for expectation, name in zip(suite.expectations, names, strict=True)
        if _is_of_rows(expectation, name)
    )
    rest = tuple(
        expectation
        for expectation, name in zip(suite.expectations, names, strict=True)
        if not _is_of_rows(expectation, name)
    )
    if suite.function is None and not rest:
        return found, None
    return found, replace(suite, expectations=rest)


def _is_of_rows(expectation: Expectation, name: str) -> bool:
    said = (expectation.meta or {}).get(ON_FAILURE)
    if said not in (None, DEAD_LETTER):
        raise InvalidRequestError(
            f"{ON_FAILURE} {said!r}",
            actor=f"{_ACTOR}: {name}",
            expected=f"{DEAD_LETTER}, or none",
            reason=Reason.BAD_FIELD,
        )
    return said is not None


def _row_check(expectation: Expectation, name: str) -> RowCheck:
    held: Mapping[str, Any] = expectation.dict()
    if held.get("mostly", 1) != 1 or held.get("row_condition") is not None:
        raise InvalidRequestError(
            f"{expectation.expectation_type} with mostly or row_condition",
            actor=f"{_ACTOR}: {name}",
            expected="neither: each row that fails is a dead letter (max_dead_letters is how many there may be)",
            reason=Reason.PARTIAL_ROW_CHECK,
        )
    given = {
        key: value
        for key, value in expectation.configuration.kwargs.items()
        if key not in ("mostly", "row_condition", "condition_parser") and value is not None
    }
    return RowCheck(expectation.expectation_type, given, name)
