"""The Quality page's runs as JSON, and the full reports as the suite wrote them."""

from __future__ import annotations

import mimetypes
from dataclasses import asdict
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Response

from txn_engine_airflow.pages.answers import as_json
from txn_engine_airflow.pages.auth import can_see_runs, may_see_records
from txn_engine_airflow.pages.headers import REPORT_POLICY
from txn_engine_airflow.pages.quality_reports import Report, file_of
from txn_engine_airflow.pages.routes_read import FIRST_LOOK_MS, WatcherDep
from txn_engine_airflow.pages.watcher import Watcher

router = APIRouter()

_SERVED = frozenset({".html", ".css", ".json", ".svg", ".png", ".ico", ".woff2"})


@router.get("/api/reports")
def reports(user: GetUserDep, watcher: WatcherDep) -> Response:
    """The runs of the suite, newest first, without their checks."""
    lines = [asdict(report) for report in _visible(user, watcher)]
    for line in lines:
        del line["checks"]
    return as_json({"reports": lines})


@router.get("/api/report")
def report(
    user: GetUserDep,
    watcher: WatcherDep,
    dag: Annotated[str, Query(min_length=1, max_length=250)],
    run: Annotated[str, Query(min_length=1, max_length=300)],
) -> Response:
    """One run of the suite with its checks."""
    for found in _visible(user, watcher):
        if (found.dag_id, found.folder) == (dag, run):
            return as_json(found)
    raise HTTPException(404, f"There is no report of a run {run!r} of {dag!r} on this machine.")


@router.get("/report-files/{dag}/{run}/{name:path}", dependencies=[Depends(may_see_records)])
def report_file(dag: str, run: str, name: str, user: GetUserDep) -> Response:
    """A file of a report, which may show records. Browsers run none of its scripts."""
    path = file_of(dag, run, name) if can_see_runs(dag, user) else None
    if path is None or path.suffix not in _SERVED:
        raise HTTPException(404, "There is no such file in a report on this machine.")
    media_type = mimetypes.guess_type(path.name)[0]
    return Response(
        path.read_bytes(), media_type=media_type, headers={"Content-Security-Policy": REPORT_POLICY}
    )


def _visible(user: GetUserDep, watcher: Watcher) -> list[Report]:
    watcher.touch(wait_ms=FIRST_LOOK_MS)
    allowed = {dag_id: can_see_runs(dag_id, user) for dag_id in {report.dag_id for report in watcher.reports}}
    return [report for report in watcher.reports if allowed[report.dag_id]]
