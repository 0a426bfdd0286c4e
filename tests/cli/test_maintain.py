"""`maintain`: the rules of the command line itself."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize("number", ["nan", "inf", "1e400", "-1"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("compact", "--target-mib"),
        ("compact", "--dirty-ratio"),
        ("retention", "--entries-days"),
        ("clean", "--orphan-days"),
    ],
)
def test_a_number_that_is_not_finite_or_negative_is_a_usage_error(
    run: Run, payments: str, command: str, option: str, number: str
) -> None:
    """The command has exit code 2 and one line with the option."""
    answer = run("maintain", command, option, number, "--dry-run")
    assert answer.code == 2
    assert option in answer.error
