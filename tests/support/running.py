"""Run a DAG with `dag.test()`, without three costs that a test does not need to pay.

`dag.test()` parses the whole bundle of its DAG and writes all DAGs of the bundle to the database, once for each run. It
sleeps for a second each time it finds no task to start, as before it skips what follows a skipped task. And with each
task that it serializes, Airflow checks each param's JSON schema against the schema of schemas, several times. Here the
bundle is empty and the DAG that runs is written alone, the second is a hundredth, and a schema is checked once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.airflow_home import DAGS, HOME
from tests.support.bundles import keep, use_bundle

PAUSE_S = 0.01
_SOUND_SCHEMAS: set[str] = set()


def parse(dag_id: str, *, retries: int = 0) -> Any:
    """The DAG, parsed from its file with the environment as it is now. A failed task is retried at once.

    A test cannot share a parsed DAG: its params take their permitted values from the environment, and `dag.test()`
    leaves the params of a run in the DAG. To parse a file takes some 10 ms once its imports are loaded.
    """
    from datetime import timedelta

    from airflow.dag_processing.dagbag import DagBag

    dag = DagBag(dag_folder=DAGS / f"{dag_id}.py").dags[dag_id]
    for task in dag.tasks:
        task.retries = retries
        task.retry_delay = timedelta(seconds=0)
    return dag


def run(dag: Any, **settings: Any) -> Any:
    """Write this DAG to the database as the DAG processor does, and run it with `dag.test()`."""
    with pytest.MonkeyPatch.context() as patch:
        empty = HOME / "empty_bundle"
        empty.mkdir(exist_ok=True)
        use_bundle(empty, patch)
        with quick():
            keep(dag)
            return dag.test(**settings)


def _checked_once(check_schema: Callable[..., None]) -> Callable[..., None]:
    def check(schema: Any, *args: Any, **settings: Any) -> None:
        text = json.dumps(schema, sort_keys=True, default=repr)
        if text not in _SOUND_SCHEMAS:
            check_schema(schema, *args, **settings)
            _SOUND_SCHEMAS.add(text)

    return check


@contextmanager
def collected_failures() -> Iterator[list[Any]]:
    """The errors that tasks raise in this process while the block runs, each try's own."""
    from airflow.listeners import hookimpl
    from airflow.sdk.listener import get_listener_manager

    errors: list[Any] = []

    class Listener:
        @hookimpl
        def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
            errors.append(error)

    listeners, listener = get_listener_manager(), Listener()
    listeners.add_listener(listener)
    try:
        yield errors
    finally:
        listeners.pm.unregister(listener)


@contextmanager
def quick() -> Iterator[None]:
    """Let `dag.test()` look for tasks to start every hundredth of a second, and let a JSON schema be checked once.

    No other code sleeps less, and values are validated against their schemas as always.
    """
    from airflow.sdk import DAG
    from jsonschema import Draft202012Validator as Validator

    sleep, looping = time.sleep, DAG.test.__code__

    def pause(seconds: float) -> None:
        sleep(min(seconds, PAUSE_S) if sys._getframe(1).f_code is looping else seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", pause)
        patch.setattr(Validator, "check_schema", staticmethod(_checked_once(Validator.check_schema)))
        yield
