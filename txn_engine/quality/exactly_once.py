"""The whole run: gather the evidence, judge it, write the report."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txn_engine.errors import StoreAccessError

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.quality.declaration import Declaration
    from txn_engine.quality.evidence import Evidence
    from txn_engine.quality.judge import Judgement
    from txn_engine.quality.records import Reductions
    from txn_engine.quality.reducer import Reducer
    from txn_engine.quality.result import CheckResult, QualityResult

Progress = Callable[[str], None]

REPORT_NAME, JSON_NAME, DOCS_NAME = "index.html", "validation.json", "data_docs"


def check_exactly_once(
    engine: Engine,
    declaration: Declaration,
    *,
    input_file: Path | None = None,
    report_folder: Path,
    run_name: str | None = None,
    reducer: Reducer | None = None,
    progress: Progress | None = None,
) -> QualityResult:
    """Prove, from what the store holds, that a topic and its consumers' outputs came out exactly once.

    Reads only. With `input_file` the records are compared with the file row by row; without it, only with themselves.
    `reducer` goes through the rows: in this process by default, within 1.5 GB of memory and the rest on disk.
    What the data holds never raises: it makes checks fail. A part that cannot be read makes its checks *errored*; where
    retention or compaction by key has taken records away those that compare whole histories are *not applicable* (that
    no row of the file is missing: only while no more are than records may be gone).
    Raises, before anything is written, for a wrong call: an unknown topic, a column that is not there, what does not
    compare exactly, an input file that is not whole. `report_folder` is made; an earlier report there is replaced.
    """
    from txn_engine.quality.gather import gather
    from txn_engine.quality.in_process import InProcess

    started = time.perf_counter()
    tell = progress or _silent
    with contextlib.ExitStack() as held:
        reduces = reducer or held.enter_context(InProcess(engine.store))
        evidence = gather(engine, declaration, input_file=input_file, folder=reduces.folder, progress=tell)
        return report_evidence(
            evidence,
            reduces,
            report_folder=report_folder,
            run_name=run_name,
            progress=tell,
            started=started,
        )


def report_evidence(
    evidence: Evidence,
    reducer: Reducer,
    *,
    report_folder: Path,
    run_name: str | None = None,
    progress: Progress | None = None,
    started: float | None = None,
) -> QualityResult:
    """Judge evidence that is at hand and write its report; `started` is when the run began (`time.perf_counter`)."""
    from txn_engine.quality.counting import count
    from txn_engine.quality.data_docs import build_data_docs
    from txn_engine.quality.history import not_applicable
    from txn_engine.quality.judge import judge
    from txn_engine.quality.records import Reductions
    from txn_engine.quality.suite import named_checks

    begun = time.perf_counter() if started is None else started
    tell = progress or _silent
    run_time = dt.datetime.fromtimestamp(evidence.gathered_ms / 1000, dt.UTC)
    run_name = run_name or f"{evidence.check.topic} {run_time:%Y-%m-%d %H:%M:%S}"
    checks = named_checks(evidence.check, has_input=evidence.input is not None)
    tell(f"counting what {len(checks)} checks judge, {reducer.name}")
    reductions = Reductions(evidence, reducer)
    counted = count(evidence, reductions)
    folder = _made_folder(report_folder)
    tell(f"judging {len(checks)} checks with Great Expectations")
    judgement = judge(
        counted,
        checks,
        not_applicable=not_applicable(evidence, counted),
        run_name=_file_name(run_name),
        run_time=run_time,
        docs=lambda context: build_data_docs(context, folder / DOCS_NAME),
    )
    tell("writing the report")
    return _write_report(evidence, reductions, judgement, folder, run_name, time.perf_counter() - begun)


def _write_report(
    evidence: Evidence,
    reductions: Reductions,
    judgement: Judgement,
    folder: Path,
    run_name: str,
    seconds: float,
) -> QualityResult:
    from txn_engine.quality.report import make_page, render
    from txn_engine.quality.result import QualityResult
    from txn_engine.quality.suite import skipped_checks

    page = make_page(
        evidence,
        judgement.checks,
        reductions,
        run_name=run_name,
        seconds=seconds,
        skipped=skipped_checks(evidence.check, has_input=evidence.input is not None),
        evidence_json=JSON_NAME,
        data_docs="" if judgement.docs_failure else f"{DOCS_NAME}/{REPORT_NAME}",
    )
    result = QualityResult(
        success=page.success,
        checks=judgement.checks,
        report=folder / REPORT_NAME,
        json=folder / JSON_NAME,
        statistics=_statistics(evidence, judgement.checks, seconds),
    )
    _write(
        result.json,
        json.dumps(_as_json(result, run_name, evidence.gathered_ms, judgement), indent=1, default=str),
    )
    _write(result.report, render(page))  # last: where the page is, everything it links to is
    return result


def _statistics(
    evidence: Evidence, checks: Sequence[CheckResult], seconds: float
) -> Mapping[str, int | float | str]:
    """The numbers of the run by name; -1 for what could not be had."""
    from txn_engine.quality.report import hidden_records, visible_records

    counts = Counter(check.status for check in checks)
    topic = evidence.check.topic
    committed, aborted = visible_records(evidence, topic), hidden_records(evidence, topic, "aborted")
    return {
        "checks": len(checks),
        "passed": counts["passed"],
        "failed": counts["failed"],
        "errored": counts["errored"],
        "not_applicable": counts["not_applicable"],
        "input_rows": -1 if evidence.input is None else evidence.input.count,
        "committed_records": -1 if committed is None else committed,
        "aborted_records": -1 if aborted is None else aborted,
        "findings": len(evidence.findings),
        "seconds": round(seconds, 3),
    }


def _as_json(result: QualityResult, run_name: str, gathered_ms: int, judgement: Judgement) -> dict[str, Any]:
    return {
        "run_name": run_name,
        "gathered_ms": gathered_ms,  # the one time of the report, on its page and in Great Expectations' results
        "success": result.success,
        "statistics": dict(result.statistics),
        "checks": [asdict(check) for check in result.checks],
        "great_expectations": dict(judgement.validations),
        "data_docs_failure": judgement.docs_failure,
    }


def _made_folder(folder: Path) -> Path:
    """The folder; a new one is its owner's alone, for reports hold cells, unless the one above names a group."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        is_shared = folder.parent.stat().st_mode & stat.S_ISGID
        folder.mkdir(mode=0o777 if is_shared else 0o700, exist_ok=True)
        (folder / REPORT_NAME).unlink(missing_ok=True)  # no old page beside new results
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def _write(path: Path, text: str) -> None:
    """Replace the file whole: nobody opens half a page."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> StoreAccessError:
    return StoreAccessError(
        f"the report cannot be written: {error.strerror or error}",
        actor="exactly-once check",
        place=str(folder),
        expected="a folder that can be written",
    )


def _file_name(run_name: str) -> str:
    """The run's name as Great Expectations may use it for a folder: nothing that leads out of one."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", run_name).strip("-")[:80] or "run"


def _silent(_: str) -> None:
    """For those who want no progress."""
