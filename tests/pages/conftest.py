"""Airflow's own app with the plugin, over a real store, and a client for each role of the simple auth manager."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import busy_store
from tests.support.airflow_home import HOME, forget_runs

ROLES = {"vera": "viewer", "uma": "user", "otto": "op", "ada": "admin"}
PREFIX = "/txn-engine"


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"file://{tmp_path_factory.mktemp('store')}/ledger"
    busy_store.build(url)
    return url


@pytest.fixture(scope="module")
def airflow_settings(store_url: str) -> Iterator[None]:
    settings = {
        "TXN_ENGINE_URL": store_url,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
            f"{name}:{role}" for name, role in ROLES.items()
        ),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(HOME / "passwords.json"),
        "AIRFLOW__API_AUTH__JWT_SECRET": "not-a-secret-but-long-enough-" * 3,
        "_AIRFLOW_PROCESS_CONTEXT": "server",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="module")
def airflow_app(airflow_settings: None) -> Iterator[Any]:
    """The api-server's app as Airflow makes it, the plugin found by its entry point."""
    forget_runs()
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from airflow.plugins_manager import _get_plugins, get_fastapi_plugins

    for cached in (_get_plugins, get_fastapi_plugins):
        cached.cache_clear()  # another test's server has ended the plugin's thread
    purge_cached_app()
    app = create_app(apps="core")
    yield app
    purge_cached_app()


@pytest.fixture(scope="module")
def pages_app(airflow_app: Any) -> Any:
    """The plugin's app, as it is mounted in Airflow's."""
    return next(route.app for route in airflow_app.routes if getattr(route, "path", "") == PREFIX)


@pytest.fixture(scope="module")
def server(airflow_app: Any) -> Iterator[Any]:
    """The app, started: the plugin's thread runs."""
    from fastapi.testclient import TestClient

    with TestClient(airflow_app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(server: Any) -> Callable[..., Any]:
    """A browser that follows no redirects: `client("vera")` is logged in, `client()` is not."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    def make(name: str | None = None) -> Any:
        cookies = {}
        if name is not None:
            user = SimpleAuthManagerUser(username=name, role=ROLES[name].upper(), teams=[])
            cookies = {"_token": get_auth_manager().generate_jwt(user)}
        return TestClient(
            server.app,
            base_url="http://testserver",
            cookies=cookies,
            raise_server_exceptions=False,
            follow_redirects=False,
        )

    return make


@pytest.fixture
def reports_home() -> Path:
    return HOME / "txn_engine_reports"
