"""What suites came to as a page, and for a machine; both hold values of records and are their owner's alone."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from txn_engine.quality.data_docs import build_data_docs
from txn_engine.quality.expectations import new_context
from txn_engine.quality.page_templates import templates
from txn_engine.quality.report_files import (
    DOCS_NAME,
    JSON_NAME,
    REPORT_NAME,
    made_folder,
    path_of,
    write_whole,
)
from txn_engine.quality.suite_run import Asked, SuiteCheck, SuiteResult, SuitesRun, run_suites
from txn_engine.quality.suites import Severity, load_suite

_ACTOR = "checks"


def check_rows(
    rows: Any,
    checks: Any,
    *,
    about: str = "rows",
    severity: Severity | None = None,
    report_folder: str | os.PathLike[str] | None = None,
) -> SuitesRun:
    """Hold a user's suite against rows: a DataFrame of Spark (`read_topic(...).df`), a pyarrow Table, a pandas one.

    `checks` and `severity`: what `load_suite` takes. What the rows hold never raises; a check that cannot be made is
    *errored*. Spark's rows are judged in Spark, others (at most a million) by pandas. With `report_folder`, which is
    made, a page that opens offline, `validation.json` and Great Expectations' Data Docs are written there.

    Raises `InvalidRequestError` for checks that are none, or rows that cannot be taken.
    """
    folder = None if report_folder is None else path_of(report_folder, "report_folder", actor=_ACTOR)
    suite = load_suite(checks, severity=severity)
    return run_with_report([Asked(about, suite, rows)], report_folder=folder, name=about)


def run_with_report(asked: Sequence[Asked], *, report_folder: Path | None, name: str) -> SuitesRun:
    """`run_suites`, and its report where a folder is given. Raises `StoreAccessError` where that cannot be written."""
    context = new_context()
    run = run_suites(asked, name=name, context=context)
    if report_folder is None:
        return run
    folder = made_folder(report_folder, actor=_ACTOR)
    has_any = any(result.validations for result in run.results)
    failure = build_data_docs(context, folder / DOCS_NAME) if has_any else ""
    done = replace(run, report=folder / REPORT_NAME, docs_failure=failure)
    write_whole(folder / JSON_NAME, json.dumps(_as_json(done), indent=1, default=str), actor=_ACTOR)
    has_docs = has_any and not failure
    write_whole(
        folder / REPORT_NAME, render(done, has_docs=has_docs), actor=_ACTOR
    )  # last: what it links to is there
    return done


def render(run: SuitesRun, *, has_docs: bool) -> str:
    """The page as one HTML document; everything that comes from data is escaped."""
    when = f"{dt.datetime.fromtimestamp(run.run_ms / 1000, dt.UTC):%d %b %Y, %H:%M:%S} UTC"
    template = templates().get_template("suites.html.j2")
    return template.render(
        run=run,
        when=f"{when}, in {run.seconds:.1f} s",
        verdict=_verdict(run),
        lede=_lede(run),
        tiles=_tiles(run),
        troubles=(*run.red, *run.warnings),
        evidence_json=JSON_NAME,
        data_docs=f"{DOCS_NAME}/{REPORT_NAME}" if has_docs else "",
    )


def _verdict(run: SuitesRun) -> str:
    if not run.success:
        return "Checks: red"
    return "Checks: passed, with warnings" if run.warnings else "Checks: passed"


def _lede(run: SuitesRun) -> str:
    total = len(run.checks)
    if run.success and not run.warnings:
        return f"All {total} checks passed."
    said = []
    if run.red:
        said.append(f"{len(run.red)} of {total} checks decide against these rows")
    if run.warnings:
        said.append(f"{len(run.warnings)} only warn" + ("s" if len(run.warnings) == 1 else ""))
    return "; ".join(said) + "."


def _tiles(run: SuitesRun) -> tuple[tuple[str, str], ...]:
    checks = [check for _, check in run.checks]
    tiles = [
        (f"Rows of {result.about}", f"{result.rows:,}") for result in run.results if result.rows is not None
    ]
    tiles += [
        (label, f"{sum(check.status == status for check in checks):,}")
        for label, status in (("Passed", "passed"), ("Failed", "failed"), ("Not made", "errored"))
    ]
    return tuple(tiles)


def _as_json(run: SuitesRun) -> Mapping[str, Any]:
    return {
        "run_name": run.name,
        "run_ms": run.run_ms,
        "success": run.success,
        "seconds": round(run.seconds, 3),
        "suites": [_suite_json(result) for result in run.results],
        "data_docs_failure": run.docs_failure,
    }


def _suite_json(result: SuiteResult) -> Mapping[str, Any]:
    return {
        "about": result.about,
        "suite": result.suite,
        "rows": result.rows,
        "checks": [_check_json(check) for check in result.checks],
        "great_expectations": list(result.validations),
    }


def _check_json(check: SuiteCheck) -> Mapping[str, Any]:
    return {**asdict(check), "counts": check.counts}
