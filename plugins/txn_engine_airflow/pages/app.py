"""The FastAPI app that Airflow's api-server mounts at `/txn-engine`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request

from txn_engine_airflow.pages import routes_abort, routes_pages, routes_quality, routes_read
from txn_engine_airflow.pages.answers import install_error_answers
from txn_engine_airflow.pages.auth import may_view
from txn_engine_airflow.pages.headers import SafeHeaders
from txn_engine_airflow.pages.routing import AnyMethodRoute
from txn_engine_airflow.pages.store_poller import StorePoller


def make_app(poller: StorePoller | None = None) -> FastAPI:
    """The pages over a poller, which lives as long as the server does.

    Guarantee: no route, known or not, static files and error pages included, answers a request that Airflow's auth
    manager does not let view the DAG `txn_coordinator_sweep`. There is no OpenAPI page, which would.
    """
    poller = poller or StorePoller()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        poller.start()
        try:
            yield
        finally:
            poller.stop()

    app = FastAPI(
        title="txn-engine",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        dependencies=[Depends(may_view)],
    )
    app.state.poller = poller
    app.add_middleware(SafeHeaders)
    install_error_answers(app)
    for routes in (routes_pages, routes_read, routes_quality, routes_abort):
        app.include_router(routes.router)
    app.include_router(_rest)  # last: whatever no other route takes, of any method, asks who is there
    return app


_rest = APIRouter(route_class=AnyMethodRoute)


@_rest.get("/{path:path}")
def _nothing_here(request: Request) -> None:
    if request.method not in ("GET", "HEAD"):
        raise HTTPException(405, "No page takes such a request.")
    raise HTTPException(404, "There is no such page.")
