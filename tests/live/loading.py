"""Runs of DAGs in a running Airflow, started, cleared and watched through its API, and the rows that they load."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from tests.live.stack import Stack

LIMIT_S = 900.0
"""How long a run may take while those of all other cases go on beside it."""
_ENDED = ("success", "failed")
_LISTED_FOR_S = 1.0


@dataclass(frozen=True)
class Run:
    """A DAG run."""

    dag_id: str
    run_id: str

    @property
    def place(self) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{self.run_id}"


@dataclass(frozen=True)
class Ended:
    """What a run came to: the state and the tries of each task, by `task` or `task[map index]`."""

    states: dict[str, str]
    tries: dict[str, int]


class Loads:
    """An Airflow with the DAGs of a folder, and the files that they load."""

    def __init__(self, stack: Stack, dags: Path) -> None:
        self.stack = stack
        self.engine = stack.engine
        self.dags = dags
        self.files = dags / "files"
        self._lock = Lock()
        self._listed: tuple[float, dict[Run, str]] = (0.0, {})

    def write(self, name: str, *ids: int) -> Path:
        """Make a file with a row for each of these ids."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in ("id", *ids)), encoding="utf-8")
        return path

    def rows(self, topic: str) -> list[int]:
        """The ids of all rows that a reader sees, sorted."""
        return sorted(self.engine.scan(topic).to_table(columns=["id"])["id"].to_pylist())

    def start(self, dag_id: str, logical_date: str | None = None) -> Run:
        """Start a run by hand, as soon as the DAG was parsed."""
        self._wait_for(f"DAG {dag_id} parsed", lambda: self._is_parsed(dag_id))
        made = self.stack.rest.post(f"/dags/{dag_id}/dagRuns", {"logical_date": logical_date})
        return Run(dag_id, made["dag_run_id"])

    def backfill(self, dag_id: str, from_date: str, to_date: str) -> list[Run]:
        """Start a back-fill, and return its runs."""
        self._wait_for(f"DAG {dag_id} parsed", lambda: self._is_parsed(dag_id))
        self.stack.rest.post("/backfills", {"dag_id": dag_id, "from_date": from_date, "to_date": to_date})
        runs = self.stack.rest.runs(dag_id)
        return [Run(dag_id, run["dag_run_id"]) for run in runs if run["run_type"] == "backfill"]

    def clear(self, run: Run) -> None:
        """Clear all tasks of a run, so that it runs again."""
        body = {"dag_run_id": run.run_id, "dry_run": False, "only_failed": False}
        self.stack.rest.post(f"/dags/{run.dag_id}/clearTaskInstances", body)

    def again(self, run: Run) -> Ended:
        """Clear a run, and wait for its end."""
        self.clear(run)
        return self.ended(run)

    def ended(self, run: Run) -> Ended:
        """Wait until a run has ended."""
        began = time.monotonic()
        self._wait_for(f"the end of {run}", lambda: self._states(began).get(run) in _ENDED)
        tasks = {_name(task): task for task in self.tasks(run)}
        return Ended(
            {name: task["state"] for name, task in tasks.items()},
            {name: task["try_number"] for name, task in tasks.items()},
        )

    def tasks(self, run: Run) -> list[dict[str, Any]]:
        """The task instances of a run."""
        return list(self.stack.rest.get(f"{run.place}/taskInstances", limit=100)["task_instances"])

    def wait_for_state(self, run: Run, task_id: str, state: str) -> None:
        """Wait until a task is in this state."""
        self._wait_for(
            f"{run.dag_id}.{task_id} {state}",
            lambda: any((_name(task), task["state"]) == (task_id, state) for task in self.tasks(run)),
        )

    def log(self, run: Run, task_id: str, number: int) -> list[dict[str, Any]]:
        """The entries of the log of a task's try."""
        told = self.stack.rest.get(f"{run.place}/taskInstances/{task_id}/logs/{number}", full_content=True)
        return [entry for entry in told["content"] if isinstance(entry, dict)]

    def raised(self, run: Run, task_id: str) -> list[tuple[str, str]]:
        """The class of the error that ended the first try of a task, and the first word of its text."""
        found = [detail for entry in self.log(run, task_id, 1) for detail in entry.get("error_detail") or ()]
        return [(detail["exc_type"], detail["exc_value"].split(" ")[0].rstrip(":")) for detail in found]

    def runs(self, dag_id: str) -> list[Run]:
        """The runs of a DAG that have succeeded."""
        states = self._states(time.monotonic())
        return [run for run, state in states.items() if (run.dag_id, state) == (dag_id, "success")]

    def wait_until_open(self, dag_id: str, transactional_id: str) -> None:
        """Wait until a DAG's commit is held up with its transaction open."""
        self._wait_for(f"a commit of {dag_id}", (self.files / "held" / f"{dag_id}.open").exists)
        self._wait_for(f"{transactional_id} open", lambda: self.state(transactional_id) == "Ongoing")

    def wait_until_final(self, transactional_id: str) -> None:
        """Wait until a transaction is complete. Readers are past it a little earlier."""
        self._wait_for(
            f"the end of {transactional_id}",
            lambda: str(self.state(transactional_id)).startswith("Complete"),
        )

    def state(self, transactional_id: str) -> str | None:
        """The state of a transactional id, as its coordinator says."""
        states = {each.transactional_id: each.state for each in self.engine.admin.list_transactions()}
        return states.get(transactional_id)

    def _is_parsed(self, dag_id: str) -> bool:
        dags = self.stack.rest.get("/dags", dag_id_pattern=dag_id, limit=100)["dags"]
        return any(dag["dag_id"] == dag_id for dag in dags)

    def _states(self, since: float) -> dict[Run, str]:
        """The states of all runs at a moment after this one. All who wait share an answer, at most one a second."""
        with self._lock:
            asked_at, states = self._listed
            if asked_at < since or time.monotonic() - asked_at > _LISTED_FOR_S:
                asked_at = time.monotonic()
                states = {Run(run["dag_id"], run["dag_run_id"]): run["state"] for run in self._all_runs()}
                self._listed = asked_at, states
            return states

    def _all_runs(self) -> Sequence[dict[str, Any]]:
        return list(self.stack.rest.get("/dags/~/dagRuns", limit=100)["dag_runs"])

    def _wait_for(self, what: str, look: Any) -> None:
        self.stack.wait_for(what, look, patience_s=LIMIT_S)


def _name(task: dict[str, Any]) -> str:
    return task["task_id"] if task["map_index"] < 0 else f"{task['task_id']}[{task['map_index']}]"
