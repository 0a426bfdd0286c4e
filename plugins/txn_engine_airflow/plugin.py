"""What Airflow loads: the pages of the engine, their entry in Airflow's menu, and a listener.

Loaded by the entry point `airflow.plugins` of the installed package. (`plugins/.airflowignore` keeps Airflow from
loading every module of the package once more, by its bare name, from the plugins folder.)
"""

from __future__ import annotations

from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from txn_engine_airflow import listener

URL_PREFIX = "/txn-engine"


def _airflow_path() -> str:
    """The path below which Airflow is served, "" for the root."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


class TxnEnginePlugin(AirflowPlugin):
    """The pages, and what makes the coordinator's pool. Every process of Airflow loads plugins; the app is made where
    it is asked for: in the api-server.
    """

    name = "txn_engine"
    listeners = [listener]  # noqa: RUF012 - Airflow's own form
    external_views = [  # noqa: RUF012 - Airflow takes entries out of this very list
        {
            "name": "Txn engine",  # what fits below the menu's icons
            "href": f"{_airflow_path()}{URL_PREFIX}/",
            "destination": "nav",
            "url_route": "txn-engine",
            "icon": f"{_airflow_path()}{URL_PREFIX}/static/mark.svg",
            "icon_dark_mode": f"{_airflow_path()}{URL_PREFIX}/static/mark-dark.svg",
            "nav_top_level": True,
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The app, made where it is asked for."""
        from txn_engine_airflow.pages.app import make_app

        return [{"app": make_app(), "url_prefix": URL_PREFIX, "name": "Transaction engine"}]
