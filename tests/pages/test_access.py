"""Access to the pages: nobody without Airflow's session, users as Airflow's auth manager decides, and no other site."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.pages.conftest import PREFIX, ROLES
from txn_engine import connect

pytestmark = pytest.mark.airflow

OWN_PAGE = {"X-Txn-Engine-Request": "1", "Content-Type": "application/json", "Origin": "http://testserver"}
ABORT = '{"transactional_id": "stream-7", "producer_id": 1003, "producer_epoch": 0}'
NEEDS_RECORDS = {"/api/records", "/api/letters"}
QUERIES = {
    "/api/transaction": "?id=stream-7",
    "/api/topic": "?topic=payments",
    "/api/partition": "?topic=payments&partition=0",
    "/api/records": "?topic=payments&partition=0&offset=0",
    "/api/group": "?group=balances",
    "/api/dead-letter-topic": "?topic=payments-dead",
    "/api/letters": "?topic=payments-dead&partition=0",
    "/api/cut": "?number=0",
}
FILLED = {
    "/static/{name}": "/static/main.js",
    "/report-files/{dag}/{run}/{name:path}": "/report-files/txn_verify_exactly_once/run/index.html",
    "/{path:path}": "/no/such/page",
}


def requests_of(pages_app: Any) -> Iterator[tuple[str, str, str]]:
    """Method, route and a path for everything that the app answers."""
    for route in pages_app.routes:
        path = FILLED.get(route.path, route.path) + QUERIES.get(route.path, "")
        for method in sorted(route.methods):
            yield method, route.path, PREFIX + path


def test_a_request_without_a_session_is_refused_on_every_route(
    pages_app: Any, client: Callable[..., Any]
) -> None:
    """Pages, data, static files, actions and unknown paths answer 401 and show nothing of the store."""
    asked = list(requests_of(pages_app))
    assert len(asked) > 25
    browser = client()
    for method, _, path in asked:
        answer = browser.request(method, path, headers=OWN_PAGE, content=ABORT if method == "POST" else None)
        assert answer.status_code == 401, (method, path, answer.text)
        assert "stream-7" not in answer.text


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND", "HEAD", "DELETE"])
def test_no_method_gets_around_the_guard(pages_app: Any, client: Callable[..., Any], method: str) -> None:
    """Without a log-in, no answer shows which paths exist or which methods they take."""
    stranger, viewer = client(), client("vera")
    for path in {path for _, _, path in requests_of(pages_app)}:
        answer = stranger.request(method, path)
        assert answer.status_code == 401, (method, path)
        assert "allow" not in answer.headers
        if method != "HEAD":
            assert viewer.request(method, path).status_code == 405, (method, path)


@pytest.mark.parametrize("path", ["/", "/transactions", "/static/main.js", "/api/overview", "/api/health"])
def test_head_is_answered_as_get_is(client: Callable[..., Any], path: str) -> None:
    browser = client("vera")
    assert browser.get(PREFIX + path).status_code == 200
    assert browser.head(PREFIX + path).status_code == 200
    assert browser.head(f"{PREFIX}/no/such/page").status_code == 404


def test_a_forged_session_is_refused(pages_app: Any, client: Callable[..., Any]) -> None:
    browser = client()
    browser.cookies.set("_token", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEiLCJyb2xlIjoiQURNSU4ifQ.")
    for method, _, path in requests_of(pages_app):
        assert browser.request(method, path, headers=OWN_PAGE).status_code in (401, 403), (method, path)


def test_no_route_forgets_the_guard(pages_app: Any) -> None:
    """The app guards each route, including new ones. A mounted sub-app would not be guarded, so there is none."""
    from fastapi.routing import APIRoute

    from txn_engine_airflow.pages.auth import may_view

    for route in pages_app.routes:
        assert isinstance(route, APIRoute), route
        assert may_view in {each.call for each in route.dependant.dependencies}, route.path


def test_a_viewer_reads_everything_but_records(pages_app: Any, client: Callable[..., Any]) -> None:
    browser = client("vera")
    for method, route, path in requests_of(pages_app):
        if method != "GET" or route == "/{path:path}":
            continue
        answer = browser.get(path)
        if route in NEEDS_RECORDS:
            assert answer.status_code == 403, path
        elif route in ("/api/report", "/report-files/{dag}/{run}/{name:path}"):
            assert answer.status_code in (404, 422)  # there is none
        else:
            assert answer.status_code == 200, (path, answer.text)


@pytest.mark.parametrize(("name", "aborts", "sees_records"), [
    ("vera", False, False), ("uma", True, False), ("otto", True, True), ("ada", True, True),
])  # fmt: skip
def test_what_each_role_may_do(
    client: Callable[..., Any], name: str, aborts: bool, sees_records: bool
) -> None:
    browser = client(name)
    me = browser.get(f"{PREFIX}/api/me").json()
    assert me == {"user": name, "can_abort": aborts, "can_see_records": sees_records}
    for path in ("records?topic=payments&partition=0&offset=0", "letters?topic=payments-dead&partition=0"):
        answer = browser.get(f"{PREFIX}/api/{path}")
        assert (answer.status_code, "salary" in answer.text) == (
            (200, True) if sees_records else (403, False)
        )


@pytest.mark.parametrize("path", ["/api/abort", "/api/abort-hanging"])
def test_a_viewer_may_not_abort(client: Callable[..., Any], store_url: str, path: str) -> None:
    answer = client("vera").post(PREFIX + path, headers=OWN_PAGE, content=ABORT)
    assert answer.status_code == 403
    assert state_of(store_url) == "Ongoing"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": "application/x-www-form-urlencoded", "X-Txn-Engine-Request": "1"},
        {"Content-Type": "text/plain", "X-Txn-Engine-Request": "1"},
        OWN_PAGE | {"Origin": "https://evil.example"},
        OWN_PAGE | {"Origin": "null"},
        OWN_PAGE | {"Sec-Fetch-Site": "cross-site"},
        OWN_PAGE | {"Sec-Fetch-Site": "same-site"},
    ],
    ids=["no-header", "form", "plain-text", "other-origin", "opaque-origin", "cross-site", "same-site"],
)
def test_another_site_cannot_make_an_admin_s_browser_abort(
    client: Callable[..., Any], store_url: str, headers: dict[str, str]
) -> None:
    answer = client("ada").post(f"{PREFIX}/api/abort", headers=headers, content=ABORT)
    assert answer.status_code == 403
    assert "refused" in answer.json()["detail"]
    assert state_of(store_url) == "Ongoing"


def test_every_answer_carries_the_safety_headers(pages_app: Any, client: Callable[..., Any]) -> None:
    """Errors carry the headers too, and so do answers to those who are not let in."""
    for browser in (client("vera"), client()):
        for method, _, path in requests_of(pages_app):
            headers = browser.request(method, path).headers
            assert "default-src 'none'" in headers["content-security-policy"], path
            assert "frame-ancestors 'self'" in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "SAMEORIGIN"
            assert "no-store" in headers["cache-control"] or "private" in headers["cache-control"]


def test_a_viewer_gets_no_record_in_any_answer(pages_app: Any, client: Callable[..., Any]) -> None:
    """No page, list or error that a viewer can ask for shows the values of records."""
    browser = client("vera")
    for method, _, path in requests_of(pages_app):
        assert "salary" not in browser.request(method, path).text, path


def state_of(store_url: str) -> str:
    with connect(store_url) as engine:
        return engine.admin.describe_transaction("stream-7").state


def test_the_roles_are_all_there() -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManagerRole

    assert {role.upper() for role in ROLES.values()} == {role.name for role in SimpleAuthManagerRole}
