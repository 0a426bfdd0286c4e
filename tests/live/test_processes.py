"""Started processes end with the process that started them, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.support.waiting import LIMIT_S, wait_for
from txn_engine_airflow.standalone import guard as guarding
from txn_engine_airflow.standalone.guard import members
from txn_engine_airflow.standalone.processes import Guard, Service, end_all

# A first process with a child that has left its process group, as Airflow's tasks do; neither ends when it is asked to.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setpgid(0, 0)
print("up", flush=True)
time.sleep(600)
"""


def stubborn(folder: Path, guard: Guard, program: str = STUBBORN) -> Service:
    return Service(
        "stubborn", (sys.executable, "-c", program), environment=dict(os.environ), folder=folder, guard=guard
    )


def both(service: Service) -> list[psutil.Process]:
    """The first process and its child, once both have printed that they are up."""
    while service.log.read_text().count("up") < 2:
        assert service.exit_code is None
    first = psutil.Process(service.pid)
    family = [first, *first.children(recursive=True)]
    assert len({os.getpgid(process.pid) for process in family}) == 2
    return family


def still_running(family: list[psutil.Process]) -> list[psutil.Process]:
    return [
        one for one in psutil.wait_procs(family, timeout=LIMIT_S)[1] if one.status() != psutil.STATUS_ZOMBIE
    ]


def test_what_does_not_end_is_killed(tmp_path: Path) -> None:
    """A service is asked first. Then the guard kills its whole session, not only the process group."""
    with Guard() as guard:
        service = stubborn(tmp_path, guard)
        service.start()
        family = both(service)
        end_all([service], patience_s=0.2)
        assert service.exit_code is None
    assert still_running(family) == []


@pytest.mark.shard("airflow")
def test_a_failure_inside_ends_everything_too(tmp_path: Path) -> None:
    family = []

    def fail() -> None:
        with Guard() as guard:
            service = stubborn(tmp_path, guard)
            service.start()
            family.extend(both(service))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert still_running(family) == []


def test_orphans_of_a_killed_service_are_ended_with_the_rest(tmp_path: Path) -> None:
    """A service that dies and is started again leaves children running. They end with the block."""
    with Guard() as guard:
        service = stubborn(tmp_path, guard)
        service.start()
        first, orphan = both(service)
        service.kill_first_process()
        assert service.exit_code == -signal.SIGKILL
        assert orphan.is_running()
        service.log.unlink()
        service.start()
        family = [orphan, *both(service)]
        assert service.pid != first.pid
    assert still_running(family) == []


def test_death_of_the_starter_ends_everything(tmp_path: Path) -> None:
    """After SIGKILL to the process that holds the guard, nothing that it started runs any longer."""
    starter = f"""
import os, pathlib, sys, time
from txn_engine_airflow.standalone.processes import Guard, Service
with Guard() as guard:
    service = Service("stubborn", (sys.executable, "-c", {STUBBORN!r}), environment=dict(os.environ),
                      folder=pathlib.Path({str(tmp_path)!r}), guard=guard)
    service.start()
    while service.log.read_text().count("up") < 2:
        time.sleep(0.05)
    print("up", flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 3, "guard, first process, its child"
    process.kill()
    process.wait()
    process.stdout.close()
    assert still_running(family) == []


def test_a_process_that_begins_a_session_of_its_own_ends_too(tmp_path: Path) -> None:
    """Airflow runs a command of a DAG in a session of its own."""
    with Guard() as guard:
        service = stubborn(tmp_path, guard, program=STUBBORN.replace("os.setpgid(0, 0)", "os.setsid()"))
        service.start()
        family = both(service)
        assert len({os.getsid(process.pid) for process in family}) == 2
    assert still_running(family) == []


def test_a_start_that_is_interrupted_starts_nothing(tmp_path: Path) -> None:
    """Ctrl-C may come when the process is there and the guard does not know of it yet."""
    sessions = []

    class Interrupted(Guard):
        def watch(self, session: int) -> None:
            sessions.append(session)
            raise KeyboardInterrupt

    with Interrupted() as guard:
        service = stubborn(tmp_path, guard)
        with pytest.raises(KeyboardInterrupt):
            service.start()
        assert not service.is_running
    wait_for(lambda: not members(sessions[0]), what="the end of the process")
    assert service.last_lines() == ""


def test_a_process_may_end_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of the session that ends in the middle of a look is not a member, and the look goes on."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    status = psutil.Process.status

    def ended(process: psutil.Process) -> str:
        if process.pid == child.pid:
            child.kill()
            child.wait()
        return status(process)

    assert [process.pid for process in members(child.pid)] == [child.pid]
    monkeypatch.setattr(psutil.Process, "status", ended)
    assert members(child.pid) == []


def test_a_process_that_takes_long_to_die_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a killed process is there for more than a second, and the guard goes on until it is gone."""
    dying, looks = SimpleNamespace(kill=lambda: None), iter(range(60))
    monkeypatch.setattr(guarding, "members", lambda _: [] if next(looks, None) is None else [dying])
    guarding.kill(os.getpid(), guarding.started_at(os.getpid()))
    assert next(looks, None) is None
