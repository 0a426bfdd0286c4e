"""Row checks: which expectations can turn rows into dead letters, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
    with pytest.raises(InvalidRequestError) as refused:
        row_checks(suite(tmp_path, {**POSITIVE, **changes}))
    assert refused.value.reason is reason
    assert "\n" not in str(refused.value)


def test_a_function_is_a_vote() -> None:
    """A function is a vote: it judges all rows together, so it cannot turn single rows into dead letters."""

    def holds(_rows: Any) -> bool:
        return True

    found, rest = parted(load_suite(holds))
    assert (found, rest) == ((), load_suite(holds))
    with pytest.raises(InvalidRequestError) as refused:
        row_checks(holds)
    assert refused.value.reason is Reason.NOT_A_ROW_CHECK
