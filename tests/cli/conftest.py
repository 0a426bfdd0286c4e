"""The fixtures give a ledger in memory, and call the command line in this process or as a process of its
own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from storage import BACKENDS
from tests.support.servers import REPOSITORY
from txn_engine import Engine, connect
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
        """The one line that a failed command writes to stderr."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, self.stderr
        assert "Traceback" not in self.stderr
        return lines[0]

    @property
    def error_reason(self) -> str | None:
        """The reason in the JSON object of the one error."""
        found: str | None = json.loads(self.error)["error"]["reason"]
        return found

    @property
    def error_code(self) -> str:
        """The code of the one error, from the end of its line or from the JSON object. The line of a usage
        error has no code."""
        if self.error.startswith("{"):
            return str(json.loads(self.error)["error"]["code"])
        found = re.search(r" \[([A-Z_]+)\]$", self.error)
        return "" if found is None else found[1]


Run = Callable[..., Answer]


@pytest.fixture(autouse=True)
def signals_are_heard() -> Iterator[None]:
    """The processes of a test react to SIGHUP and SIGINT, even if the tests themselves run under nohup."""
    before = {
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
    }
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove every store and every credential of the machine from the environment of the tests."""
    of_stores = [name for backend in BACKENDS for name in backend.environment]
    for name in list(os.environ):
        if name.startswith(("TXN_ENGINE_URL", "TXN_ENGINE_BACKUP", *of_stores)):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def url() -> str:
    """An empty store in memory for this test only."""
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


_CALLS = """
import json, sys
from txn_engine.cli.main import main
for words in json.loads(sys.argv[1]):
    main(words)
    sys.stderr.flush()
    sys.stdout.write("\\x1e")
    sys.stdout.flush()
"""


def on_a_terminal(calls: Sequence[Sequence[str]], *, width: int) -> list[str]:
    """What each call writes to a terminal of this width, stdout and stderr together. One process makes all calls."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-c", _CALLS, json.dumps(calls)],
        cwd=REPOSITORY,
        env=environment | {"TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while part := os.read(ours, 65_536):
                written += part
    os.close(ours)
    *shown, rest = written.decode().replace("\r\n", "\n").split("\x1e")
    assert (len(shown), rest) == (len(calls), ""), rest
    return shown


@pytest.fixture
def loaded(run: Run, payments: str, good: Path) -> str:
    """The topic `payments` with three records in partition 0."""
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    return payments


@pytest.fixture
def engine(url: str, payments: str) -> Iterator[Engine]:
    """An engine on the test's store, for steps that have no command."""
    with connect(url) as opened:
        yield opened
