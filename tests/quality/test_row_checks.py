"""Row checks: which expectations can turn rows into dead letters, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import refused
from txn_engine.errors import InvalidRequestError
from txn_engine.quality import load_suite, row_checks
from txn_engine.quality.row_checks import parted
from txn_engine.reasons import Reason

DEAD = {"on_failure": "dead_letter"}


def suite(tmp_path: Path, *expectations: dict[str, Any]) -> Path:
    path = tmp_path / "amounts.json"
    path.write_text(json.dumps({"name": "amounts", "expectations": list(expectations)}))
    return path


POSITIVE = {
    "type": "expect_column_values_to_be_between",
    "kwargs": {"column": "amount", "min_value": 0, "mostly": 1},
    "meta": {**DEAD, "name": "positive"},
}
NAMED = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}, "meta": DEAD}
VOTES = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}}


def test_rows_and_votes_are_parted(tmp_path: Path) -> None:
    """A suite is split into checks of single rows, with their names, and a rest that is a vote on all
    rows."""
    found, rest = parted(load_suite(suite(tmp_path, POSITIVE, VOTES, NAMED)))
    assert [(check.name, dict(check.arguments)) for check in found] == [
        ("positive", {"column": "amount", "min_value": 0}),
        ("expect_column_values_to_not_be_null(id)", {"column": "id"}),
    ]
    assert rest is not None
    assert [each.expectation_type for each in rest.expectations] == [VOTES["type"]]
    only = row_checks(suite(tmp_path, POSITIVE, NAMED))
    assert only == found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kwargs": {"column": "amount", "min_value": 0, "mostly": 0.9}}, Reason.PARTIAL_ROW_CHECK),
        ({"meta": {"on_failure": "dead_letters"}}, Reason.BAD_FIELD),
        (
            {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}},
            Reason.UNKNOWN_CHECK,
        ),
        ({"meta": {}}, Reason.NOT_A_ROW_CHECK),
    ],
)
def test_a_check_that_cannot_judge_single_rows_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: Reason
) -> None:
    """The error is one line."""
    with refused(InvalidRequestError, reason) as error:
        row_checks(suite(tmp_path, {**POSITIVE, **changes}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize(
    ("type_", "arguments", "is_exact"),
    [
        ("be_in_set", '{"column": "v", "value_set": [9007199254740993.0]}', False),
        ("be_in_set", '{"column": "v", "value_set": [0.12345678901234567890]}', False),
        ("be_in_set", '{"column": "v", "value_set": ["0.12345678901234567890", 9007199254740993]}', True),
        ("be_in_set", '{"column": "v", "value_set": [0.1, 1.50, -0.0, 1.0e+20]}', True),
        ("be_between", '{"column": "v", "min_value": 9007199254740992.5}', False),
        ("be_between", '{"column": "v", "min_value": "9007199254740993.5"}', False),
        ("be_between", '{"column": "v", "max_value": 9007199254740993}', False),
        ("be_between", '{"column": "v", "min_value": 0.1, "max_value": 1.0e+20}', True),
    ],
)
def test_numbers_are_exact_or_refused(
    tmp_path: Path, suffix: str, type_: str, arguments: str, is_exact: bool
) -> None:
    """A number is compared as it is written in the suite, or the suite is refused: no digit is lost in a float."""
    path = tmp_path / f"suite.{suffix}"
    kind = f"expect_column_values_to_{type_}"
    meta = json.dumps(DEAD)
    path.write_text(
        f'{{"name": "numbers", "expectations": [{{"type": "{kind}", "kwargs": {arguments}, "meta": {meta}}}]}}'
    )
    if not is_exact:
        with refused(InvalidRequestError, Reason.INEXACT_NUMBER):
            row_checks(path)
        return
    (check,) = row_checks(path)
    given = {name: value for name, value in check.arguments.items() if name != "column"}
    written = {name: value for name, value in json.loads(arguments).items() if name != "column"}
    assert given == written


def test_a_function_is_a_vote() -> None:
    """A function is a vote: it judges all rows together, so it cannot turn single rows into dead letters."""

    def holds(_rows: Any) -> bool:
        return True

    found, rest = parted(load_suite(holds))
    assert (found, rest) == ((), load_suite(holds))
    with refused(InvalidRequestError, Reason.NOT_A_ROW_CHECK):
        row_checks(holds)
