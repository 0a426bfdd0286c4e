"""A ledger in memory, the command line called in this process, and as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from storage import BACKENDS
from tests.servers import REPOSITORY
from txn_engine.cli.main import cli

SCHEMA = "id:int64,account_id:int64,day:date32,amount:decimal(18,2),note:string?"
COMMAND = (sys.executable, "-m", "txn_engine.cli.main")


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def error(self) -> str:
        """The one line on stderr that a failure must be."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, self.stderr
        assert "Traceback" not in self.stderr
        return lines[0]


Run = Callable[..., Answer]


@pytest.fixture(autouse=True)
def signals_are_heard() -> Iterator[None]:
    """Under nohup SIGHUP is ignored, in a shell's background SIGINT; what is started here shall not inherit that."""
    before = {
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
    }
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store and no credentials from the machine that runs the tests."""
    of_stores = [name for backend in BACKENDS for name in backend.environment]
    for name in list(os.environ):
        if name.startswith(("TXN_ENGINE_URL", "TXN_ENGINE_BACKUP", *of_stores)):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def url() -> str:
    """A store of this test's own, in this process's memory."""
    return f"memory://cli-{uuid.uuid4().hex}"


@pytest.fixture
def run(url: str) -> Run:
    """Call the command line in this process, on the store `url` unless another is named."""

    def call(*arguments: str, store: str | None = None, env: Mapping[str, str] | None = None) -> Answer:
        named = [] if "--help" in arguments or store == "" else ["--url", store or url]
        result = CliRunner().invoke(
            cli, [*arguments, *named], prog_name="txn-engine", env=dict(env or {}), catch_exceptions=False
        )
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def payments(run: Run) -> str:
    """A topic with money in it, two partitions by account."""
    made = run("topics", "create", "payments", "--partitions", "2", "--key", "account_id", "--schema", SCHEMA)
    assert made.code == 0, made.stderr
    return "payments"


GOOD = """id,account_id,day,amount,note
1,10,2026-01-01,100.00,salary
2,11,2026-01-01,0.05,
3,10,2026-01-02,-7.5,"a, quoted
note"
"""


@pytest.fixture
def good(write: Callable[..., Path]) -> Path:
    """A file of three payments that fit the topic."""
    return write("good.csv", GOOD)


def process(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = 60) -> Answer:
    """Run the command line as a process of its own."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        cwd=REPOSITORY,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
    )
    return Answer(done.returncode, done.stdout, done.stderr)
