"""The other end of a `Guard`: told of sessions over its input, it kills what is left of them when that ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable

import psutil

_PATIENCE_S, _PAUSE_S = 60.0, 0.02
"""For how long a session is listed again until it is empty. A process may fork while it is looked at, and on a busy
machine one that was killed takes a while to die.
"""


def members(session: int) -> list[psutil.Process]:
    """The living processes of a session."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def started_at(pid: int) -> float | None:
    """When that process was started; None where there is none."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def begun_by(sessions: Iterable[int]) -> set[int]:
    """The sessions that living processes of these have begun, as Airflow does for a command of a DAG."""
    own = set(sessions)
    found: set[int] = set()
    for session in own:
        for process in members(session):
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in process.children(recursive=True):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        found.add(os.getsid(child.pid))
    return found - own


def kill(session: int, leader_started_at: float | None) -> None:
    """Kill all its members, unless another process bears the leader's number by now: then ours died out long ago."""
    if started_at(session) not in (None, leader_started_at):
        return
    deadline = time.monotonic() + _PATIENCE_S
    while (left := members(session)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_PAUSE_S)


def main() -> None:
    """Listen until the pipe closes, then kill."""
    sessions: dict[int, float | None] = {}
    for line in sys.stdin:
        sessions[int(line)] = started_at(int(line))
    others = {session: started_at(session) for session in begun_by(sessions)}
    for session, leader_started_at in (sessions | others).items():
        kill(session, leader_started_at)


if __name__ == "__main__":
    main()
