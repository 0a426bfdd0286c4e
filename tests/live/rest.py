"""Airflow's public API, as an administrator's script uses it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx

TRIES = 60
"""How often a request that SQLite's lock stopped is sent again, a second apart."""


class Rest:
    """A client that has logged in once, with the generated password."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=180, trust_env=False)
        answer = self._client.post("/auth/token", json={"username": user, "password": password})
        answer.raise_for_status()
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def get(self, path: str, **query: Any) -> Any:
        answer = self._client.get(f"/api/v2{path}", params=query)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._send("POST", path, body)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self._send("PATCH", path, body)

    def delete(self, path: str, **query: Any) -> None:
        self._send("DELETE", path, params=query)

    def _send(self, method: str, path: str, body: Any = None, **settings: Any) -> Any:
        """Airflow says "Database error" where another of its processes holds SQLite's lock for too long. Nothing was
        done then, and it is asked again."""
        for _ in range(TRIES):
            answer = self._client.request(method, f"/api/v2{path}", json=body, **settings)
            if answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR or "Database error" not in answer.text:
                break
            time.sleep(1)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def trigger(self, dag_id: str, **params: Any) -> str:
        """Start a run by hand and return its id."""
        return str(self.post(f"/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": params})["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The runs of a DAG, oldest first. Empty if the DAG has not been parsed yet."""
        query = {"order_by": "start_date", "limit": 100}
        answer = self._client.get(f"/api/v2/dags/{dag_id}/dagRuns", params=query)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return []
        answer.raise_for_status()
        return list(answer.json()["dag_runs"])

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Every task instance."""
        seen = 0
        while True:
            page = self.get("/dags/~/dagRuns/~/taskInstances", limit=100, offset=seen)
            yield from page["task_instances"]
            seen += len(page["task_instances"])
            if not page["task_instances"] or seen >= page["total_entries"]:
                return

    def close(self) -> None:
        self._client.close()


def overhead_s(task: dict[str, Any]) -> float | None:
    """Seconds from when a task could be started until it was. None if it has not run."""
    if not task.get("scheduled_when") or not task.get("start_date"):
        return None
    began, ready = (datetime.fromisoformat(task[name]) for name in ("start_date", "scheduled_when"))
    return (began - ready).total_seconds()
