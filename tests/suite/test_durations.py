"""The committed record of durations is renewed by a checkout that ran some of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite import durations
from tests.suite.durations import Durations

MODULE, OTHER = "tests/suite/test_durations.py", "tests/suite/test_balance.py"


def test_what_did_not_run_here_keeps_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A line is replaced when its test ran here, and goes when its module is gone."""
    committed, own = tmp_path / "durations.tsv", tmp_path / "durations.json"
    committed.write_text(
        "seconds\tneeds\ttest\n"
        f"0.100\t\t{MODULE}\n"
        f"3.000\tspark\t{MODULE}::test_faster_now\n"
        f"70.000\tminio,spark\t{MODULE}::test_of_a_shard\n"
        f"0.200\tspark\t{OTHER}\n"
        "9.000\t\ttests/suite/test_gone.py::test_gone\n"
    )
    monkeypatch.setattr(durations, "COMMITTED", committed)
    monkeypatch.setattr(durations, "OWN", own)
    assert durations.main() == 1

    durations.write_own(
        Durations(
            {f"{MODULE}::test_faster_now": 0.5, f"{MODULE}::test_new": 2.0, f"{MODULE}::test_quick": 0.1},
            {
                f"{MODULE}::test_faster_now": frozenset({"spark"}),
                f"{MODULE}::test_new": frozenset({"airflow"}),
            },
        )
    )
    assert durations.main() == 0
    assert committed.read_text().splitlines()[1:] == [
        f"0.200\tspark\t{OTHER}",
        f"0.300\tspark\t{MODULE}",
        f"2.000\tairflow\t{MODULE}::test_new",
        f"70.000\tminio,spark\t{MODULE}::test_of_a_shard",
    ]
