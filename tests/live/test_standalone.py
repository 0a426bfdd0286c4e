"""`make airflow` starts everything with one command, and leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.live.rest import Rest
from tests.support.waiting import must_run, wait_for

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.shard("airflow"),
    pytest.mark.minio,
    pytest.mark.timeout(1_800),
]

START_S, SEE_S, END_S = 600.0, 400.0, 60.0


class Running:
    """The command, and the processes that it has started."""

    def __init__(self, home: Path) -> None:
        self._log = home.with_suffix(".log")
        command = [sys.executable, "-m", "txn_engine_airflow.standalone", "--home", home]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def value(self, what: str) -> str:
        """A value of the welcome text, for example `URL` in `Airflow        URL`."""
        found = re.search(rf"^  {what} +(\S+)$", self.said, re.MULTILINE)
        assert found, self.said
        return found[1]

    def wait_for(self, what: str, look: Callable[[], object], patience_s: float) -> None:
        said = self._log.read_text
        alive = must_run(self.process, said)
        wait_for(look, what=what, limit_s=patience_s, every_s=0.5, meanwhile=alive, seen=said)

    def family(self) -> list[psutil.Process]:
        """All processes that it has started, and their children."""
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def running(tmp_path: Path, minio_program: Path) -> Iterator[Running]:
    running = Running(tmp_path / "home")
    yield running
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(END_S)


def still_running(family: list[psutil.Process], patience_s: float = END_S) -> list[psutil.Process]:
    """The processes that still run after the time limit. One whose end nobody has asked for (a zombie) runs no more."""
    left = psutil.wait_procs(family, timeout=patience_s)[1]
    return [process for process in left if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def test_starts_shows_moving_transactions_and_stops_with_ctrl_c(running: Running) -> None:
    """The password works and is in no log, the line for the command line works, payments continue, a killed
    scheduler comes back, and Ctrl-C ends everything.
    """
    running.wait_for("the welcome", lambda: "password" in running.said, START_S)
    pasted = re.search(r"^  command line +(.+)$", running.said, re.MULTILINE)
    assert pasted
    listed = subprocess.run(["sh", "-c", pasted[1]], capture_output=True, text=True, check=True)
    assert "payments" in listed.stdout
    home = Path(running.value("logs")).parent
    assert stat.S_IMODE((home / "cli.env").stat().st_mode) == 0o600
    rest = Rest(running.value("Airflow"), running.value("log in as"), running.value("password"))
    with contextlib.closing(rest):
        swept = lambda: any(run["state"] == "success" for run in rest.runs("txn_coordinator_sweep"))  # noqa: E731
        running.wait_for("a sweep that ran by itself", swept, SEE_S)
        payments = Path(running.value("logs")) / "payments.log"
        before = payments.read_text().count("committed")
        assert before >= 1
        assert "left open" in payments.read_text()
        parsed = lambda: {dag["dag_id"] for dag in rest.get("/dags")["dags"]}  # noqa: E731
        wanted = {"example_txn_pipeline", "txn_maintain"}
        running.wait_for("the DAGs of both folders", lambda: wanted <= parsed(), SEE_S)
        logs = [path.read_bytes() for path in home.rglob("*.log")]
        assert not [log for log in logs if running.value("password").encode() in log]
        running.wait_for("more payments", lambda: payments.read_text().count("committed") > before, SEE_S)
    (scheduler,) = (
        child for child in psutil.Process(running.process.pid).children() if "scheduler" in child.cmdline()
    )
    scheduler.kill()
    running.wait_for("another scheduler", lambda: "scheduler ended" in running.said, END_S)
    family = running.family()
    assert len(family) >= 8
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(END_S) == 0, running.said
    assert still_running(family, 1) == []
    assert not (home / "cli.env").exists()


def test_leaves_nothing_behind_when_it_is_killed_itself(running: Running) -> None:
    """After SIGKILL the guard ends what still runs, including tasks in process groups of their own."""
    running.wait_for("the services", lambda: len(running.family()) >= 8, START_S)
    family = running.family()
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    assert still_running(family) == []
