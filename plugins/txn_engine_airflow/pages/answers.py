"""What goes back to the browser: JSON for `/api`, HTML around everything else, and errors as either."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowException
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from txn_engine.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.ids import new_write_id
from txn_engine_airflow.pages.store_poller import NothingSeenYetError
from txn_engine_airflow.pages.troubles import for_viewers

STATIC = Path(__file__).parent / "static"

log = logging.getLogger(__name__)

_TITLES = {
    400: "The request cannot be read",
    401: "Please log in",
    403: "Not allowed",
    404: "Nothing here",
    405: "Not possible",
    409: "Changed meanwhile",
    422: "The request cannot be read",
    500: "Something broke",
    503: "The store is not there yet",
}


def as_json(value: object, *, status_code: int = 200) -> Response:
    """A dataclass, or JSON's own values."""
    content = value if isinstance(value, (dict, list)) else asdict(value)  # type: ignore[call-overload]
    return Response(json.dumps(content), status_code=status_code, media_type="application/json")


def page(request: Request, name: str, title: str) -> Response:
    """The HTML around the page `name`; its script fills it."""
    return _html(request, "page.html", {"page": name, "title": title})


def error_answer(
    request: Request, status_code: int, told: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An error: `{"detail": ...}` for a program, a page for a person."""
    if request.url.path.removeprefix(_base(request)).startswith("/api/"):
        answer = as_json({"detail": told}, status_code=status_code)
    else:
        title = _TITLES.get(status_code, "That did not work")
        fields = {"title": title, "status": str(status_code), "told": told, "login": _login_url(request)}
        name = "login.html" if status_code == 401 else "error.html"
        answer = _html(request, name, fields, status_code=status_code)
    answer.headers.update(headers or {})
    return answer


def install_error_answers(app: FastAPI) -> None:
    """Whatever is raised leaves as a readable page, or as JSON; never as a trace."""

    def on(kind: type[Exception], answer: Callable[[Request, Any], Response]) -> None:
        app.add_exception_handler(kind, answer)

    def refused(request: Request, error: HTTPException) -> Response:
        told = str(error.detail)
        if error.status_code == 404 and told == "Not Found":
            told = "There is no such page."
        elif error.status_code == 401:
            told = "You are not logged in to Airflow, or your session has ended."
        elif error.status_code == 403 and told == "Forbidden":
            told = "Your role in Airflow does not allow this."
        return error_answer(request, error.status_code, told, error.headers)

    def unreadable(request: Request, error: RequestValidationError) -> Response:
        wrong = "; ".join(f"{'.'.join(map(str, at['loc'][1:]))}: {at['msg']}" for at in error.errors())
        return error_answer(request, 422, wrong)

    def not_seen_yet(request: Request, error: NothingSeenYetError) -> Response:
        return error_answer(request, 503, str(error), {"Retry-After": "2"})

    def engine_refused(request: Request, error: TxnEngineError) -> Response:
        log.info("pages: request %s %r: %s", request.method, request.url.path, error)
        return error_answer(request, _status_of(error), for_viewers(error))

    def airflow_refused(request: Request, error: AirflowException) -> Response:
        log.info("pages: request %s %r: %s", request.method, request.url.path, error)
        return error_answer(request, 503, for_viewers(error))

    def broken(request: Request, error: Exception) -> Response:
        name = new_write_id()[:12]
        log.error(
            "pages: request %s %r failed, reference %s",
            request.method,
            request.url.path,
            name,
            exc_info=error,
        )
        return error_answer(request, 500, f"The api-server's log has the reason, under the reference {name}.")

    on(StarletteHTTPException, refused)
    on(RequestValidationError, unreadable)
    on(NothingSeenYetError, not_seen_yet)
    on(TxnEngineError, engine_refused)
    on(AirflowException, airflow_refused)
    on(Exception, broken)


def _status_of(error: TxnEngineError) -> int:
    if isinstance(error, UnknownTopicOrPartitionError):
        return 404
    if isinstance(error, (InvalidRequestError, OffsetOutOfRangeError)):
        return 400
    return 503 if isinstance(error, StoreUnavailableError) else 409


def _base(request: Request) -> str:
    """The path at which Airflow has mounted the app."""
    return str(request.scope.get("root_path", ""))


def _login_url(request: Request) -> str:
    from airflow.api_fastapi.app import get_auth_manager

    return get_auth_manager().get_url_login(next_url=f"{_base(request)}/")


def _html(request: Request, name: str, fields: Mapping[str, str], *, status_code: int = 200) -> Response:
    text = _template(name)
    for field, value in {"base": f"{_base(request)}/", **fields}.items():
        text = text.replace(f"{{{{{field}}}}}", html.escape(value))
    return Response(text, status_code=status_code, media_type="text/html")


@cache
def _template(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
