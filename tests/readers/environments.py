"""Programs run in the environments of `.ci/setup-readers`, with other engines at versions that cannot be
installed next to ours."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import REPOSITORY
from txn_engine.spark.java import find_java_home

HOME = REPOSITORY / ".cache" / "readers"
PROGRAMS = Path(__file__).parent / "programs"
SESSION: dict[str, Any] = {
    "tables": (),
    "delta": pytest.mark.together("a session with Delta"),
    "iceberg": pytest.mark.together("a session with Iceberg"),
}
"""The mark of a test by its environment: those that need a JVM share one."""
_TIMEOUT_S = 280


class Environment:
    """A process in one of the environments, which runs programs one after the other. It starts its engine once."""

    def __init__(self, name: str, jars: str) -> None:
        held = {
            variable: value
            for variable, value in os.environ.items()
            if not variable.startswith(("PYTHON", "SPARK"))
        }
        self._name = name
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [HOME / name / "bin" / "python", PROGRAMS / "serve.py"],
            env=held | {"JAVA_HOME": str(find_java_home()), "READER_JARS": jars},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._told, bufsize=0,
        )  # fmt: skip
        atexit.register(self.end)

    def run(self, program: str, request: dict[str, Any]) -> Any:
        """The program's answer. Raises `AssertionError` if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"program": program, "request": request}).encode() + b"\n")
        answers = select.select([self._process.stdout], [], [], _TIMEOUT_S)[0]
        said = json.loads(self._process.stdout.readline() or b"{}") if answers else {}
        assert "answer" in said, f"{program} in {self._name}: {said.get('failed', 'no answer')} {self._log()}"
        return said["answer"]

    def _log(self) -> str:
        self._told.seek(0)
        return self._told.read().decode(errors="replace")[-6000:]

    def end(self) -> None:
        """End the process, and Spark's JVM with it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_TIMEOUT_S)


_started = cache(Environment)


def jars_of(environment: str) -> list[Path]:
    """The jars of an environment's engine."""
    return sorted((HOME / f"{environment}-jars").glob("*.jar"))


def run(environment: str, program: str, request: dict[str, Any], jars: list[Path] | None = None) -> Any:
    """Run `programs/<program>.py` in `tables`, `delta` or `iceberg`, and return its answer. Raises
    `AssertionError` if it fails.

    The request and the answer are JSON. jars: those that its JVM loads, if not the environment's own. Programs with
    the same environment and jars share a process.
    """
    chosen = jars_of(environment) if jars is None else jars
    return _started(environment, ",".join(map(str, chosen))).run(program, request)
