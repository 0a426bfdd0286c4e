"""The other end of a `Guard`: told of sessions over its input, it kills what is left of them when that ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time

import psutil

_ROUNDS_MAX = 50
"""A session is listed again until it is empty, for a process may fork while it is looked at."""


def members(session: int) -> list[psutil.Process]:
    """The living processes of a session."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) == session:
                found.append(psutil.Process(pid))
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


def started_at(pid: int) -> float | None:
    """When that process was started; None where there is none."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def kill(session: int, leader_started_at: float | None) -> None:
    """Kill all its members, unless another process bears the leader's number by now: then ours died out long ago."""
    if started_at(session) not in (None, leader_started_at):
        return
    for _ in range(_ROUNDS_MAX):
        left = members(session)
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.02)


def main() -> None:
    """Listen until the pipe closes, then kill."""
    sessions: dict[int, float | None] = {}
    for line in sys.stdin:
        sessions[int(line)] = started_at(int(line))
    for session, leader_started_at in sessions.items():
        kill(session, leader_started_at)


if __name__ == "__main__":
    main()
