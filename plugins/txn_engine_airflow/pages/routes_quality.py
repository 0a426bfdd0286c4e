"""The Quality page's runs as JSON, and the full reports as the suite wrote them."""

from __future__ import annotations

import mimetypes
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.responses import FileResponse

from txn_engine_airflow.pages.answers import as_json
from txn_engine_airflow.pages.auth import can_see_connection, can_see_runs
from txn_engine_airflow.pages.dag_runs import VERIFICATION
from txn_engine_airflow.pages.headers import REPORT_POLICY
from txn_engine_airflow.pages.quality_reports import Report, file_of, folder_of, without_report
from txn_engine_airflow.pages.routes_read import FIRST_LOOK_MS, StorePollerDep
from txn_engine_airflow.pages.routing import ReadRoute
from txn_engine_airflow.pages.store_poller import StorePoller
from txn_engine_airflow.verification import connection_of_report

router = APIRouter(route_class=ReadRoute)

_SERVED = frozenset({".html", ".css", ".json", ".svg", ".png", ".ico", ".woff2"})


@router.get("/api/reports")
def reports(user: GetUserDep, poller: StorePollerDep) -> Response:
    """The runs of the suite, newest first, without their checks; and the runs of the verification that left none."""
    seen = poller.airflow(wait_ms=FIRST_LOOK_MS)
    lines = [asdict(report) for report in _visible(user, poller)]
    for line in lines:
        del line["checks"]
    runs = without_report(seen.verifications, seen.reports) if can_see_runs(VERIFICATION, user) else ()
    return as_json({"reports": lines, "without_report": [asdict(run) for run in runs]})


@router.get("/api/proofs")
def proofs(poller: StorePollerDep) -> Response:
    """The proofs that the store keeps, by topic, the newest first: outcomes and counts."""
    return as_json(asdict(poller.proofs(wait_ms=FIRST_LOOK_MS)))


@router.get("/api/report")
def report(
    user: GetUserDep,
    poller: StorePollerDep,
    dag: Annotated[str, Query(min_length=1, max_length=250)],
    run: Annotated[str, Query(min_length=1, max_length=300)],
) -> Response:
    """One run of the suite with its checks, and whether the user may open the full report."""
    for found in _visible(user, poller):
        if (found.dag_id, found.folder) == (dag, run):
            folder = folder_of(dag, run)
            can_open = folder is not None and _can_open(folder, user)
            return as_json(asdict(found) | {"can_open": can_open})
    raise HTTPException(404, f"There is no report of a run {run!r} of {dag!r} on this machine.")


@router.get("/report-files/{dag}/{run}/{name:path}")
def report_file(dag: str, run: str, name: str, user: GetUserDep) -> Response:
    """A file of a report, which may show records. Browsers run none of its scripts."""
    folder = folder_of(dag, run) if can_see_runs(dag, user) else None
    if folder is not None and not _can_open(folder, user):
        raise HTTPException(
            403,
            "A full report shows records, so it is open to those who may view the connection that it was made of; "
            "one that names no connection is open to nobody.",
        )
    path = None if folder is None else file_of(folder, name)
    if path is None or path.suffix not in _SERVED:
        raise HTTPException(404, "There is no such file in a report on this machine.")
    media_type = mimetypes.guess_type(path.name)[0]
    return FileResponse(path, media_type=media_type, headers={"Content-Security-Policy": REPORT_POLICY})


def _can_open(folder: Path, user: GetUserDep) -> bool:
    conn_id = connection_of_report(folder)
    return conn_id is not None and can_see_connection(conn_id, user)


def _visible(user: GetUserDep, poller: StorePoller) -> list[Report]:
    reports = poller.airflow(wait_ms=FIRST_LOOK_MS).reports
    allowed = {dag_id: can_see_runs(dag_id, user) for dag_id in {report.dag_id for report in reports}}
    return [report for report in reports if allowed[report.dag_id]]
