"""Processes that a bench starts: each is told one task, says when it is ready, and begins with all others."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from txn_engine.errors import TxnEngineError
from txn_engine.reasons import Reason

_PATIENCE_S = 1_800.0
_PACKAGES = str(Path(__file__).parents[2])
Task = Mapping[str, Any]
Answer = dict[str, Any]


def run_children(tasks: Sequence[Task]) -> list[Answer]:
    """What each of them answered. All are ready before the first begins, and none outlives the call."""
    path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(_child(task, environment)) for task in tasks]
        for child in children:
            _line(child)
        for child in children:
            _tell(child, "go")
        return [json.loads(_line(child)) for child in children]


@contextmanager
def _child(task: Task, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-m", "txn_engine.bench.child"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        _tell(child, json.dumps(task))
        yield child
        child.wait(_PATIENCE_S)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def _tell(child: subprocess.Popen[str], line: str) -> None:
    if child.stdin is not None:
        child.stdin.write(f"{line}\n")
        child.stdin.flush()


def _line(child: subprocess.Popen[str]) -> str:
    line = "" if child.stdout is None else child.stdout.readline()
    if not line:
        raise TxnEngineError(
            "a process of the bench ended early; what it said is above",
            actor="bench",
            reason=Reason.CHILD_ENDED,
        )
    return line
