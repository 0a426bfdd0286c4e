"""The latest runs of the engine's DAGs, as Airflow's own database has them after a real run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pages.conftest import PREFIX
from tests.support import running
from tests.support.airflow_home import forget_runs
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def swept(airflow_settings: None) -> None:
    """A real run of the sweep, before the api-server starts."""
    forget_runs()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("_AIRFLOW_PROCESS_CONTEXT")
        assert str(running.run(running.parse("txn_coordinator_sweep")).state) == "success"


@pytest.fixture(scope="module")
def airflow_app(swept: None) -> Any:
    """Airflow's app over the database that the run left."""
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from airflow.plugins_manager import _get_plugins, get_fastapi_plugins

    for cached in (_get_plugins, get_fastapi_plugins):
        cached.cache_clear()
    purge_cached_app()
    yield create_app(apps="core")
    purge_cached_app()


def test_the_last_sweep_is_shown_with_what_it_did(client: Callable[..., Any]) -> None:
    """The page tells users who may see that DAG that the run aborted the overdue transaction."""
    browser = client("vera")
    dags = wait_for(
        lambda: browser.get(f"{PREFIX}/api/runs").json()["dags"], what="the run on the page", every_s=0.2
    )
    (sweep,) = [dag for dag in dags if dag["dag_id"] == "txn_coordinator_sweep"]
    assert [run["state"] for run in sweep["runs"]] == ["success"]
    assert sweep["runs"][0]["end_ms"] >= sweep["runs"][0]["start_ms"] > 0
    assert (sweep["did"], sweep["did_in_last"]) == ("aborted 1 transaction", True)
    found = browser.get(f"{PREFIX}/api/transaction", params={"id": "nightly/import of accounts"}).json()
    assert found["line"]["state"] == "CompleteAbort"


def test_runs_and_what_tasks_returned_are_asked_about_by_themselves(
    client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users who may see a DAG but not its runs get no runs here. Without the right to see XComs they get no results."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity

    def shown(*entities: DagAccessEntity) -> list[tuple[str, bool]]:
        def may(*_: Any, access_entity: DagAccessEntity | None = None, **__: Any) -> bool:
            return access_entity is None or access_entity in entities

        monkeypatch.setattr(type(get_auth_manager()), "is_authorized_dag", may)
        dags = client("vera").get(f"{PREFIX}/api/runs").json()["dags"]
        return [(dag["dag_id"], dag["did"] != "") for dag in dags if dag["runs"]]

    assert shown() == []
    assert shown(DagAccessEntity.XCOM) == []
    assert shown(DagAccessEntity.RUN) == [("txn_coordinator_sweep", False)]
    assert shown(DagAccessEntity.RUN, DagAccessEntity.XCOM) == [("txn_coordinator_sweep", True)]
