"""Who may do what, decided by Airflow's own auth manager; and what a mutating request must carry.

    see the pages               view the DAG `txn_coordinator_sweep`     (`GET` on the DAG)
    see a DAG's runs, reports   view that DAG's runs                     (`GET` on the DAG's `RUN`)
    see what its tasks gave     view that DAG's XComs                    (`GET` on the DAG's `XCOM`)
    see records                 view the connection `txn_engine_default` (`GET` on the connection)
    open a full report          view the connection that it was made of  (`GET` on the connection)
    abort a transaction         edit the DAG `txn_coordinator_sweep`     (`PUT` on the DAG)

Who may view a connection could read its store itself; who may edit the DAG could have it abort. With the simple auth
manager these are: viewer, where the DAG is asked about; op, where a connection is; user for Abort (each, and the roles
above it).

A browser sends Airflow's session cookie with whatever another site makes it send. So a request that changes something
must be one that a form or image of another site cannot make: a header of its own, JSON, and from the same origin.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import (
    ConnectionDetails,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.configuration import conf
from airflow.models import Connection
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request, status

from txn_engine_airflow.connection import DEFAULT_CONN_ID

GUARD_DAG = "txn_coordinator_sweep"
REQUEST_HEADER, REQUEST_VALUE = "X-Txn-Engine-Request", "1"

may_view = requires_access_dag("GET", param_dag_id=GUARD_DAG)
may_abort = requires_access_dag("PUT", param_dag_id=GUARD_DAG)


def can_abort(user: GetUserDep) -> bool:
    """Whether the user may abort transactions."""
    details = DagDetails(id=GUARD_DAG, team_name=DagModel.get_team_name(GUARD_DAG))
    return get_auth_manager().is_authorized_dag(method="PUT", details=details, user=user)


def can_see_connection(conn_id: str, user: GetUserDep) -> bool:
    """Whether the user may view a connection, and so see what is in its store."""
    details = ConnectionDetails(conn_id=conn_id, team_name=Connection.get_team_name(conn_id))
    return get_auth_manager().is_authorized_connection(method="GET", details=details, user=user)


def can_see_records(user: GetUserDep) -> bool:
    """Whether the user may see records of the store that the pages show."""
    return can_see_connection(DEFAULT_CONN_ID, user)


def can_see_runs(dag_id: str, user: GetUserDep) -> bool:
    """Whether the user may see the runs of a DAG."""
    return _can_see(DagAccessEntity.RUN, dag_id, user)


def can_see_xcoms(dag_id: str, user: GetUserDep) -> bool:
    """Whether the user may see what the tasks of a DAG returned."""
    return _can_see(DagAccessEntity.XCOM, dag_id, user)


def _can_see(entity: DagAccessEntity, dag_id: str, user: GetUserDep) -> bool:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(
        method="GET", access_entity=entity, details=details, user=user
    )


def may_see_records(allowed: Annotated[bool, Depends(can_see_records)]) -> None:
    """Refuse whoever may not see records."""
    if not allowed:
        raise HTTPException(
            status.HTTP_403_FORBIDDEN,
            f"Records are shown to those who may view the connection {DEFAULT_CONN_ID}.",
        )


def from_our_own_page(request: Request) -> None:
    """Refuse a mutating request that another site could have made."""
    wrong = _what_is_foreign(request)
    if wrong:
        raise HTTPException(status.HTTP_403_FORBIDDEN, f"The request was refused: {wrong}.")


def _what_is_foreign(request: Request) -> str:
    headers = request.headers
    if headers.get(REQUEST_HEADER) != REQUEST_VALUE:
        return f"it lacks the header {REQUEST_HEADER}: {REQUEST_VALUE}"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return "its content type is not application/json"
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return f"it comes from another site ({site})"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc not in _own_hosts(request):
        return "it comes from another origin"
    return ""


def _own_hosts(request: Request) -> set[str]:
    """This server's host as the request names it, and as Airflow's `[api] base_url` does (behind a proxy)."""
    hosts = {request.headers.get("host", ""), urlsplit(conf.get("api", "base_url", fallback="") or "").netloc}
    return hosts - {""}
