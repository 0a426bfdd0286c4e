"""The HTML pages and the static files they load. Nothing here asks the store."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from pathlib import PurePosixPath

from fastapi import APIRouter, HTTPException, Request, Response

from txn_engine_airflow.pages.answers import STATIC, page
from txn_engine_airflow.pages.routing import ReadRoute

router = APIRouter(route_class=ReadRoute)

PAGES = {
    "": ("overview", "Overview"),
    "transactions": ("transactions", "Transactions"),
    "transaction": ("transaction", "Transaction"),
    "topics": ("topics", "Topics"),
    "topic": ("topic", "Topic"),
    "partition": ("partition", "Partition"),
    "groups": ("groups", "Groups"),
    "group": ("group", "Group"),
    "dead-letters": ("dead-letters", "Dead letters"),
    "dead-letter-topic": ("dead-letter-topic", "Dead letters"),
    "cuts": ("cuts", "Cuts"),
    "cut": ("cut", "Cut"),
    "quality": ("quality", "Quality"),
    "report": ("report", "Report"),
}
"""Path below the app's prefix, and the module that fills the page; what it is about stands in the query."""

_SERVED = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def _add_page(path: str, name: str, title: str) -> None:
    def show(request: Request) -> Response:
        return page(request, name, title)

    router.add_api_route(f"/{path}", show, methods=["GET"], name=f"page-{name}")


for _path, (_name, _title) in PAGES.items():
    _add_page(_path, _name, _title)


@router.get("/static/{name}")
def static_file(name: str, request: Request) -> Response:
    """A style sheet, module or picture of the pages; asked again each time, sent again only when it changed."""
    found = files_to_serve().get(name)
    if found is None:
        raise HTTPException(404, "There is no such file.")
    content, tag = found
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    media_type = _SERVED.get(PurePosixPath(name).suffix) or mimetypes.guess_type(name)[0]
    return Response(content, media_type=media_type, headers=headers)


@cache
def files_to_serve() -> dict[str, tuple[bytes, str]]:
    """All that may be served, by name: no path of a request ever reaches the file system."""
    files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in _SERVED}
    return {
        name: (content, f'"{hashlib.sha256(content).hexdigest()[:20]}"') for name, content in files.items()
    }
