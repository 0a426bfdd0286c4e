"""The demo's story with Airflow, Spark and the checker in threads of this process, which has imported all of
them.

They do the same as in processes of their own, with the same orders, stores, DAGs, queries and checks. The
loaders are still processes. A thread cannot get a SIGKILL, so a killed one gets no more orders, and its query
fails.
"""

from __future__ import annotations

import io
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support import running
from tests.support.airflow_home import make_database
from tests.support.bundles import keep, use_bundle
from txn_engine.demo.airflow_home import airflow_environment
from txn_engine.demo.child import Child, Word
from txn_engine.demo.pipe import Order, Pipe
from txn_engine.demo.story import Story
from txn_engine.demo.sweep import LSO, MARKERS, SWEEP

AIRFLOW = "txn_engine.demo.dag_runner"
_END_S = 60
Work = Callable[[Pipe], None]


class KilledError(Exception):
    """Raised in a killed thread at the point where it waits for permission."""


class ThreadPipe(Pipe):
    """Orders and words that go through queues."""

    def __init__(self, inbox: queue.Queue[Word]) -> None:
        self._inbox = inbox
        self.orders: queue.Queue[Order | None] = queue.Queue()
        self.is_killed = False

    def next_order(self) -> Order | None:
        """The next order, or None after the last one."""
        order = self.orders.get()
        if self.is_killed:
            raise KilledError
        return order

    def say(self, word: str, **facts: object) -> None:
        """Send a word to the demo."""
        self._inbox.put(Word(word, facts))


class ThreadChild(Child):
    """A child of the demo in a thread."""

    def __init__(self, name: str, work: Work, *, logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self._inbox = queue.Queue()
        self._pipe = ThreadPipe(self._inbox)
        self._work = work
        self.done: Future[None] = Future()

    @property
    def pid(self) -> int:
        """The id of this process."""
        return os.getpid()

    def work(self) -> None:
        """Carry out all orders."""
        try:
            self._work(self._pipe)
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - as of a process
            self._inbox.put(Word("failed", {"text": repr(error)}))
            if not self._pipe.is_killed:
                self.done.set_exception(error)
                return
        self.done.set_result(None)

    def tell(self, do: str, **facts: object) -> None:
        """Give an order."""
        self._pipe.orders.put(None if do == "end" else {"do": do, **facts})

    def kill(self) -> None:
        """Stop the orders, and return when the thread has ended."""
        self._pipe.is_killed = True
        self._pipe.orders.put(None)
        self.done.exception(_END_S)

    def end(self) -> int:
        """Let it finish."""
        self.tell("end")
        self.done.result(_END_S)
        return 0

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the thread runs."""
        return 0 if self.done.done() else None


def tell(folder: Path, url: str, input_file: Path, patch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run the story. Returns its exit code, and the document that it prints."""
    made, airflow = io.StringIO(), queue.Queue[ThreadChild]()
    _prepare_airflow(folder, url, patch)
    patch.chdir(folder)
    patch.setattr("sys.stdout", made)
    screen = Console(file=io.StringIO(), width=120)
    story = Story(screen, json_output=True, start_child=_in_threads(airflow))
    told: Future[int] = Future()
    _start(lambda: told.set_result(story.tell(url, input_file)), told)
    with running.quick():  # tasks have time-outs, which need the main thread
        airflow.get(timeout=_END_S).work()
    exit_code = told.result()
    printed = made.getvalue()  # Airflow prints too
    return exit_code, printed[printed.index('{\n  "url"') :]


def _prepare_airflow(folder: Path, url: str, patch: pytest.MonkeyPatch) -> None:
    make_database()
    empty = folder / "empty_bundle"
    empty.mkdir()
    use_bundle(empty, patch)  # else each run of a DAG parses all of them
    for dag_id in (SWEEP, MARKERS, LSO):
        keep(running.parse(dag_id))
    for name, value in airflow_environment(folder / "airflow", url).items():
        if name.startswith(("AIRFLOW_CONN_", "AIRFLOW_HOME", "TXN_ENGINE_")):
            patch.setenv(name, value)


def _in_threads(airflow: queue.Queue[ThreadChild]) -> Callable[..., Child]:
    """The function that starts a child. Airflow is handed over, so that it runs in the main thread."""

    def start(name: str, module: str, arguments: Sequence[str], *, logs: Path, **process: Any) -> Child:
        from txn_engine.demo import checker, dag_runner, spark_runner

        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        works: dict[str, Callable[..., None]] = {
            AIRFLOW: dag_runner.work,
            "txn_engine.demo.spark_runner": partial(
                spark_runner.work, url=given.get("--url", ""), checkpoint=given.get("--checkpoint", "")
            ),
            "txn_engine.demo.checker": checker.work,
        }
        if module not in works:
            return Child(name, module, arguments, logs=logs, **process)
        child = ThreadChild(name, works[module], logs=logs)
        if module == AIRFLOW:
            airflow.put(child)
        else:
            _start(child.work, child.done)
        return child

    return start


def _start(work: Callable[[], None], done: Future[Any]) -> None:
    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
