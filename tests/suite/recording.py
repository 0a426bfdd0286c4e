"""Record how long each test takes and what it needs, and sum a run up by folder (a plugin of pytest).

`--results FILE` also writes what became of the tests of this run, as JSON: `failed`, a list of tests, and the numbers
`passed` and `skipped`.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.suite import durations
from tests.suite.durations import Durations, module_of

FIXTURES = {"spark": "spark", "minio_program": "minio", "airflow_database": "airflow", "dag_bag": "airflow"}
MARKS = ("spark", "airflow", "minio")
NEEDS = "needs"
SLOWEST = 30
SHOWN_S = 0.5


def needs_of(item: pytest.Item) -> list[str]:
    """The needs that the balance has to know, by the test's marks and by the fixtures that it uses, directly
    or not."""
    marked = {name for name in MARKS if item.get_closest_marker(name) is not None}
    used = {need for fixture, need in FIXTURES.items() if fixture in getattr(item, "fixturenames", ())}
    groups = {f"together:{mark.args[0]}" for mark in item.iter_markers("together")}
    return sorted(marked | used | groups)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the report carry the needs to the process that records."""
    report = yield
    report.user_properties.append((NEEDS, needs_of(item)))
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--results FILE`."""
    parser.addoption("--results", type=Path, help="Write to this file what became of the tests, as JSON.")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that gets all reports: with xdist it runs no test itself."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    results = config.getoption("--results")
    if results is not None:  # of this run, or of none
        results.unlink(missing_ok=True)
    config.pluginmanager.register(Recorder(results))


class Recorder:
    """Durations and outcomes of one run."""

    def __init__(self, results: Path | None = None) -> None:
        self._results = results
        self._outcomes: dict[str, str] = {}
        self._found = Durations()
        self._began = time.monotonic()
        self._first_report: float | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test."""
        if self._first_report is None:
            self._first_report = time.monotonic() - report.duration
        needs: Any = dict(report.user_properties).get(NEEDS, ())
        self._found.record(report.nodeid, report.duration, needs)
        has_failed = (
            self._outcomes.get(report.nodeid) == "failed"
        )  # a test may pass and its fixture's end fail
        if not has_failed and (report.when == "call" or report.outcome != "passed"):
            self._outcomes[report.nodeid] = report.outcome

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported has failed, too."""
        if report.failed:
            self._outcomes[report.nodeid] = "failed"

    def pytest_sessionfinish(self) -> None:
        """Keep the record for the next run."""
        if self._found.seconds:
            durations.write_own(self._found)
        if self._results is not None:
            outcomes = list(self._outcomes.values())
            failed = sorted(test for test, outcome in self._outcomes.items() if outcome == "failed")
            found = {
                "failed": failed,
                "passed": outcomes.count("passed"),
                "skipped": outcomes.count("skipped"),
            }
            self._results.parent.mkdir(parents=True, exist_ok=True)
            self._results.write_text(json.dumps(found), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the stages of the run, the seconds by folder and the slowest tests."""
        if self._first_report is None or terminalreporter.config.get_verbosity() < 0:
            return
        write = terminalreporter.write_line
        terminalreporter.section("where the time went", sep="-")
        write(f"{self._first_report - self._began:8.1f} s  collection")
        write(f"{time.monotonic() - self._first_report:8.1f} s  tests, of which each process did a part:")
        folders: dict[str, list[float]] = defaultdict(list)
        for test, seconds in self._found.seconds.items():
            folders[module_of(test).rpartition("/")[0]].append(seconds)
        for folder, found in sorted(folders.items(), key=lambda row: -sum(row[1])):
            write(f"{sum(found):8.1f} s  {len(found):6d} tests in {folder}")
        long = [row for row in self._found.seconds.items() if row[1] >= SHOWN_S]
        slowest = sorted(long, key=lambda row: -row[1])[:SLOWEST]
        if slowest:
            terminalreporter.section(f"the {len(slowest)} slowest tests", sep="-")
        for test, seconds in slowest:
            write(f"{seconds:8.1f} s  {test}")
