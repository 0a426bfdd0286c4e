"""A plugin of coverage.py that each measured process loads: no process loses its data by being killed.

A process that kills itself saves its data first. A process that a test started saves its data once a second, because
the test may kill it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

import coverage

SAVE_S = 1.0
STARTED_BY_A_TEST = "MEASURED_STARTED_BY_A_TEST"
"""The variable that says so. PYTEST_CURRENT_TEST does not reach a process that gets a few variables only."""
_lock = threading.RLock()


def coverage_init(registry: Any, options: dict[str, str]) -> None:
    """Called by coverage.py in each measured process."""
    save, kill = coverage.Coverage.save, os.kill

    def save_alone(measured: coverage.Coverage) -> None:
        with _lock:  # at exit the main thread saves too, and they share a connection
            save(measured)

    coverage.Coverage.save = save_alone  # type: ignore[method-assign]

    def kill_after_saving(pid: int, number: int) -> None:
        if pid == os.getpid() and number == signal.SIGKILL:
            _save()
        kill(pid, number)

    os.kill = kill_after_saving
    if os.environ.keys() & {"PYTEST_CURRENT_TEST", STARTED_BY_A_TEST}:
        threading.Thread(target=_keep_saving, daemon=True, name="saves coverage").start()


def _save() -> None:
    current = coverage.Coverage.current()
    if current is not None:
        current.save()


def _keep_saving() -> None:
    while True:
        time.sleep(SAVE_S)
        with contextlib.suppress(Exception):  # at the end of the interpreter; the exit saves what there is
            _save()
