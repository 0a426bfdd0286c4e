"""The exactly-once reports that runs left below `AIRFLOW_HOME/txn_engine_reports/<dag>/<run>/`."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txn_engine.protocol.measures import CLOCKS_DIFFER_MS
from txn_engine_airflow.pages.dag_runs import VERIFICATION, Run
from txn_engine_airflow.verification import read_json, reports_home

REPORTS_MAX = 200
PAGE, RESULT = "index.html", "validation.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a run: counts and texts, none of the records that broke it."""

    name: str
    description: str
    section: str
    status: str
    observed: str
    expected: str
    meaning: str
    action: str


@dataclass(frozen=True, slots=True)
class Report:
    """One run of the suite. `folder`: its place below the reports' home; `made_ms`: when what it says was read, as it
    says itself; `written_ms`: its file's time; `has_page`: the full report is there too.
    """

    dag_id: str
    folder: str
    run_name: str
    made_ms: int
    written_ms: int
    success: bool
    passed: int
    failed: int
    errored: int
    not_applicable: int
    warnings: int
    committed_records: int
    aborted_records: int
    seconds: float
    checks: tuple[Check, ...]
    has_page: bool


class ReportShelf:
    """Reads each report once: it is written whole, and its file's time changes where it is written again.

    One that cannot be read is tried again at every look (a disk may answer again), and warned of once.
    """

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, Report | None]] = {}

    def look(self) -> tuple[Report, ...]:
        """The newest reports, newest first; those that cannot be read are left out."""
        found = []
        for path in reports_home().glob(f"*/*/{RESULT}"):
            try:
                found.append((path.stat().st_mtime_ns, path))
            except OSError:
                continue  # removed since it was listed
        newest = sorted(found, reverse=True)[:REPORTS_MAX]
        self._known = {path: (changed, self._report(path, changed)) for changed, path in newest}
        return tuple(report for _, report in self._known.values() if report is not None)

    def _report(self, path: Path, changed: int) -> Report | None:
        then, report = self._known.get(path, (None, None))
        if then == changed and report is not None:
            return report
        try:
            return _read(path, changed)
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            if then != changed:
                log.warning("report %s cannot be read: %s", path, error)
            return None


def without_report(runs: Iterable[Run], reports: Iterable[Report]) -> tuple[Run, ...]:
    """The runs of the verification that left no report here: a report older than the run is an earlier try's."""
    written = {report.run_name: report.written_ms for report in reports if report.dag_id == VERIFICATION}
    return tuple(run for run in runs if written.get(run.run_id, -1) < max(run.start_ms - CLOCKS_DIFFER_MS, 0))


def folder_of(dag_id: str, folder: str) -> Path | None:
    """The folder of a report; None for one that is not there, and for names that lead elsewhere."""
    try:
        home = reports_home().resolve()
        report = (home / dag_id / folder).resolve()
        is_one = report.parent.parent == home and (report.parent.name, report.name) == (dag_id, folder)
        return report if is_one and report.is_dir() else None
    except (OSError, ValueError):
        return None  # a name that no file system takes


def file_of(report: Path, name: str) -> Path | None:
    """A file of a report; None for one that is not there, and for a name that leads out of the report's folder."""
    try:
        path = (report / name).resolve()
        return path if path.is_relative_to(report) and path.is_file() else None
    except (OSError, ValueError):
        return None


def _finite(number: Any) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{value}; expected a number")  # which no browser takes for JSON
    return value


def _read(path: Path, changed_ns: int) -> Report:
    if folder_of(path.parent.parent.name, path.parent.name) is None:
        raise OSError(f"{path.parent} leads out of {reports_home()}")
    content: dict[str, Any] = read_json(path)
    numbers = content["statistics"]
    return Report(
        dag_id=path.parent.parent.name,
        folder=path.parent.name,
        run_name=str(content["run_name"]),
        made_ms=int(content.get("gathered_ms", changed_ns // 1_000_000)),
        written_ms=changed_ns // 1_000_000,
        success=bool(content["success"]),
        passed=int(numbers["passed"]),
        not_applicable=int(numbers["not_applicable"]),
        failed=int(numbers["failed"]),
        warnings=int(numbers.get("warnings", 0)),
        errored=int(numbers["errored"]),
        committed_records=int(numbers["committed_records"]),
        aborted_records=int(numbers["aborted_records"]),
        seconds=_finite(numbers["seconds"]),
        checks=tuple(
            Check(**{name: str(check[name]) for name in Check.__dataclass_fields__})
            for check in content["checks"]
        ),
        has_page=(path.parent / PAGE).is_file(),
    )
