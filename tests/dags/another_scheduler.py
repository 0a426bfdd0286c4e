"""Another Airflow on the same store, in a process of its own: `python -m tests.dags.another_scheduler`.

Each line of its standard input is an order in JSON: `url`; `runs`, a list of {dag_id, params}; `pause_before_write`:
the number of the write (from 0) of the first run at which it says `paused` and waits for a line. It says `ready` once
Airflow is there and waits for a line too, then runs one DAG after the other and says
`ran {"dag_id": ..., "state": ..., "errors": [...]}` for each. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.support import running
from tests.support.airflow_home import HOME, REPO, make_database
from tests.support.waiting import must_run


class AnotherScheduler:
    """The child process, as its parent sees it."""

    def __init__(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_HOME")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.dags.another_scheduler"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=REPO,
            env=environment | {"PYTHONPATH": os.pathsep.join([str(REPO), str(REPO / "plugins")])},
        )
        self.log: list[str] = []

    def order(self, url: str, runs: Sequence[dict[str, Any]], *, pause_before_write: int = -1) -> None:
        """Order it to run these DAGs on this store, after it has said `ready` and was told to go on."""
        self._tell(json.dumps({"url": url, "runs": list(runs), "pause_before_write": pause_before_write}))

    def hear(self, word: str) -> str:
        """Wait until it says this word. Returns the rest of its line."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line)
            if line.startswith(f"SAYS {word}"):
                return line.removeprefix(f"SAYS {word}").strip()
        raise AssertionError(f"the other scheduler ended before it said {word}:\n" + "".join(self.log[-60:]))

    def go_on(self) -> None:
        """Let it go on from where it waits."""
        self._tell("go")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def ran(self) -> dict[str, Any]:
        """The next run that has ended."""
        found: dict[str, Any] = json.loads(self.hear("ran"))
        return found

    def must_run(self) -> None:
        """Fail if its process has ended."""
        must_run(self._process, lambda: "\n".join(self.log[-30:]))()

    def end(self) -> None:
        """Wait until it ends, and kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Schedulers:
    """Processes that tests use one after another, because each takes half a minute of a busy machine to
    start."""

    def __init__(self) -> None:
        self._idle: list[AnotherScheduler] = []

    @contextmanager
    def taken(self, count: int = 1) -> Iterator[list[AnotherScheduler]]:
        """Lend `count` idle ones. An error in the block ends them, because nobody knows what they were doing."""
        taken = [self._idle.pop() if self._idle else AnotherScheduler() for _ in range(count)]
        try:
            yield taken
        except BaseException:
            for each in taken:
                each.end()
            raise
        self._idle += taken

    def end(self) -> None:
        """End all that are idle."""
        while self._idle:
            self._idle.pop().end()


def mark_failed(database: Path, dag_id: str) -> None:
    """Mark the run as failed, as "mark state as failed" in the UI does, without telling its worker."""
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        marked = connection.execute(
            "UPDATE task_instance SET state = 'failed' WHERE dag_id = ? AND state = 'running'", (dag_id,)
        )
        assert marked.rowcount == 1
        connection.execute("UPDATE dag_run SET state = 'failed' WHERE dag_id = ?", (dag_id,))


def _say(text: str) -> None:
    print(f"SAYS {text}", flush=True)


@contextmanager
def _pause_before(number: int) -> Iterator[None]:
    """Wrap the store of every engine: the write with this number (-1: none) waits until the parent sends a
    line."""
    if number < 0:
        yield
        return
    import txn_engine.engine as engines
    from tests.support.faults import FaultyStore
    from tests.support.kills import WRITES

    open_store, lock, seen = engines.open_store, threading.Lock(), [0]

    def decide(operation: str, key: str, _call: int) -> None:
        if operation not in WRITES:
            return
        with lock:
            is_it = seen[0] == number
            seen[0] += 1
        if is_it:
            _say(f"paused {operation} {key}")
            sys.stdin.readline()

    engines.open_store = lambda *args, **kwargs: FaultyStore(open_store(*args, **kwargs), decide=decide)  # type: ignore[arg-type]
    try:
        yield
    finally:
        engines.open_store = open_store


def main() -> int:
    """Carry out the orders."""
    make_database()
    while line := sys.stdin.readline():
        orders = json.loads(line)
        os.environ["TXN_ENGINE_URL"] = orders["url"]
        with _pause_before(orders["pause_before_write"]):
            _say(f"ready {HOME}")
            sys.stdin.readline()
            for run in orders["runs"]:
                _run(run)
    return 0


def _run(run: dict[str, Any]) -> None:
    ended = running.run(running.parse(run["dag_id"]), run_conf=run.get("params"))
    states = {f"{each.task_id}[{each.map_index}]": str(each.state) for each in ended.get_task_instances()}
    _say("ran " + json.dumps({"dag_id": run["dag_id"], "state": str(ended.state), "tasks": states}))


if __name__ == "__main__":
    sys.exit(main())
