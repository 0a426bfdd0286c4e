"""Errors are written for people: a page or one line of JSON says what is wrong, without a traceback."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pages.conftest import PREFIX
from txn_engine.errors import (
    CorruptObjectError,
    OutcomeUnknownError,
    StoreAccessError,
    StoreUnavailableError,
    TxnEngineError,
)

pytestmark = pytest.mark.airflow
SERVER = "(http://minio:9000)"


def test_a_path_that_is_none_gives_a_page(client: Callable[..., Any]) -> None:
    answer = client("vera").get(f"{PREFIX}/no/such/<script>")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "<h1>Nothing here</h1>" in answer.text
    assert f'<base href="{PREFIX}/">' in answer.text
    assert "<script>" not in answer.text.replace('<script src="static/theme.js"></script>', "")


def test_who_is_not_logged_in_is_shown_the_way(client: Callable[..., Any]) -> None:
    """A user who is not logged in gets a page that leads to the log-in. It needs no other file of the app,
    which would be refused too."""
    answer = client().get(f"{PREFIX}/")
    assert answer.status_code == 401
    assert "/auth/login?next=%2Ftxn-engine%2F" in answer.text
    assert "static/" not in answer.text


def test_a_fault_gives_a_reference_and_no_trace(
    client: Callable[..., Any],
    pages_app: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from txn_engine_airflow.pages import routes_pages

    def break_down(**_: Any) -> None:
        raise RuntimeError("secret inner workings")

    monkeypatch.setattr(pages_app.state.poller, "sight", break_down)
    for path, kind in (("/api/topics", "application/json"), ("/api/overview", "application/json")):
        answer = client("vera").get(PREFIX + path)
        assert answer.status_code == 500
        assert answer.headers["content-type"] == kind
        assert "secret inner workings" not in answer.text
        reference = answer.json()["detail"].rstrip(".").rpartition(" ")[2]
        assert len(reference) == 12
        assert reference in caplog.text
    monkeypatch.setattr(routes_pages, "files_to_serve", break_down)
    answer = client("vera").get(f"{PREFIX}/static/main.js")
    assert (answer.status_code, "<h1>Something broke</h1>" in answer.text) == (500, True)


def test_a_method_that_is_none(client: Callable[..., Any]) -> None:
    assert client("ada").delete(f"{PREFIX}/api/overview").status_code in (404, 405)


def test_static_files_are_sent_again_only_when_they_changed(client: Callable[..., Any]) -> None:
    browser = client("vera")
    first = browser.get(f"{PREFIX}/static/main.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = browser.get(f"{PREFIX}/static/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["page.html", "..%2Fapp.py", "%2e%2e/app.py", "nothing.js", "%2e%2e"])
def test_only_the_pages_own_files_are_served(client: Callable[..., Any], name: str) -> None:
    assert client("ada").get(f"{PREFIX}/static/{name}").status_code in (404, 405)


def test_a_viewer_learns_that_the_store_is_away_and_not_where_it_is(
    client: Callable[..., Any], pages_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither health nor a failed answer shows the place, except to users who may view the connection."""
    error = StoreUnavailableError("no answer from http://10.1.2.3:9000", place="s3://ledger/prod")
    poller = pages_app.state.poller
    client("vera").get(f"{PREFIX}/api/overview")

    def away(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("txn_engine_airflow.pages.store_poller.look", away)
    poller.look_again(wait_ms=60_000)
    for who, knows in (("vera", False), ("uma", False), ("otto", True), ("ada", True)):
        trouble = client(who).get(f"{PREFIX}/api/health").json()["trouble"]
        assert "[NETWORK_EXCEPTION]" in trouble
        assert ("10.1.2.3" in trouble) == knows, who

    monkeypatch.setattr(poller, "sight", away)
    answer = client("vera").get(f"{PREFIX}/api/topics")
    assert answer.status_code == 503
    assert "10.1.2.3" not in answer.text
    assert "NETWORK_EXCEPTION" in answer.text
    monkeypatch.undo()
    poller.look_again(wait_ms=60_000)
    assert poller.health.trouble == ""


@pytest.mark.parametrize(
    "error",
    [
        CorruptObjectError("40 bytes", place=f"s3://ledger/p/topics/hurt/0.json {SERVER}", expected="50"),
        OutcomeUnknownError("put failed: 500", place=f"s3://ledger/p/x {SERVER}"),
        StoreAccessError("get failed: 403", place=f"s3://ledger/p/topics/hurt {SERVER}"),
        StoreUnavailableError("no answer", place="s3://ledger/p", action="look at http://minio:9000"),
    ],
)
def test_no_error_tells_viewers_where_the_store_is(error: TxnEngineError) -> None:
    """No answer tells viewers the server or the bucket of the store. A row of damage names the object below
    it."""
    from txn_engine_airflow.pages.troubles import for_viewers
    from txn_engine_airflow.pages.views_overview import damage_lines

    said = for_viewers(error)
    assert [word for word in ("minio", "9000", "s3:", "ledger", "of_a_write", "\n") if word in said] == []
    assert said.endswith(f"[{error.code}]")
    if isinstance(error, CorruptObjectError):
        assert "the store/p/topics/hurt/0.json" in said
    hurt = SimpleNamespace(topic="hurt", partition=-1, error=error)
    moment: Any = SimpleNamespace(unreadable=[hurt], missing=[])
    (line,) = damage_lines(moment)
    assert line.error == said
