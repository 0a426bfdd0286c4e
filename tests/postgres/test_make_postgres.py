"""`make postgres`: one server a checkout, whose file for the shell and whose data go when it ends, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import missing_server
from tests.support.postgres import postgres_binaries
from tests.support.servers import REPOSITORY
from tests.support.waiting import must_run, wait_for

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The file for a shell."""
    return tmp_path / "postgres.env"


@pytest.fixture
def start(environment: Path) -> Iterator[Start]:
    """Start what `make postgres` starts."""
    if postgres_binaries() is None:
        missing_server("no Postgres: install Debian's `postgresql`, or run .ci/setup-debian")
    started: list[subprocess.Popen[str]] = []

    def call() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.support.postgres", "--environment", environment]
        started.append(subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield call
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def running(start: Start, environment: Path) -> tuple[subprocess.Popen[str], Path]:
    """A server that runs, and the folder of its data."""
    process = start()
    wait_for(environment.exists, what="the file for a shell", meanwhile=must_run(process))
    folder = Path(environment.with_suffix(".lock").read_text().splitlines()[1])
    assert (folder / "data").is_dir()
    return process, folder


def connected(environment: Path) -> psycopg.Connection[Any]:
    """A connection as a shell makes one that has read the file."""
    lines = environment.read_text().splitlines()[1:]
    words = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    return psycopg.connect(
        host=words["PGHOST"],
        port=words["PGPORT"],
        user=words["PGUSER"],
        password=words["PGPASSWORD"],
        dbname=words["PGDATABASE"],
    )


def test_a_second_server_is_refused(start: Start, environment: Path) -> None:
    """A second `make postgres` names the first process, and touches neither its file nor its data."""
    first, folder = running(start, environment)
    before = environment.read_text()
    second = start()
    said, _ = second.communicate(timeout=60)
    assert (second.returncode, len(said.splitlines())) == (1, 1)
    assert f"process {first.pid} " in said
    assert str(environment) in said
    assert environment.read_text() == before
    with connected(environment) as database:
        assert database.execute("SELECT 1").fetchall() == [(1,)]
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 0
    assert not environment.exists()
    assert not folder.exists()


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_terminal_removes_the_data(start: Start, environment: Path, signum: int) -> None:
    """A terminal that is closed sends SIGHUP twice. The server ends as with Ctrl-C, and its data goes."""
    process, folder = running(start, environment)
    process.send_signal(signum)
    wait_for(lambda: not environment.exists(), what="the end to begin")
    process.send_signal(signum)
    assert process.wait(60) == 0
    assert not folder.exists()


def test_a_signal_during_the_start_removes_the_data(start: Start, environment: Path) -> None:
    """A server that is told to end while it is being made leaves nothing behind."""
    process = start()
    lock = environment.with_suffix(".lock")
    wait_for(
        lambda: lock.exists() and len(lock.read_text().splitlines()) > 1,
        what="its folder",
        meanwhile=must_run(process),
    )
    folder = Path(lock.read_text().splitlines()[1])
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0
    assert not folder.exists()
    assert not environment.exists()


def test_what_a_killed_server_left_is_removed_by_the_next_one(start: Start, environment: Path) -> None:
    """Nobody can clean up after SIGKILL but the next server, which then has a file of its own."""
    process, folder = running(start, environment)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = environment.read_text()
    start()
    wait_for(lambda: environment.read_text() != before, what="the second server")
    assert not folder.exists()
