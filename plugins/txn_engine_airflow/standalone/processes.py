"""Processes that end when they are told to, and when whoever started them is gone, however it went."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self, cast

import psutil

from txn_engine.clock import monotonic_ms, pause_ms
from txn_engine.errors import IllegalStateError
from txn_engine_airflow.standalone.guard import members

_GUARD = Path(__file__).with_name("guard.py")
"""Run by its path: it must be there at once, and needs nothing of the packages that it lies in."""
_WHEN_TOLD = ("/bin/sh", "-c", 'read -r told && exec "$@" </dev/null', "sh")
"""Runs a command as the same process, once a line comes in; does nothing where its input ends without one."""


class Guard:
    """A process that kills what is left of every session it was told of, once its pipe closes.

    It closes when the block is left, and when this process dies, by SIGKILL too. Sessions, because Airflow puts each
    task into a process group of its own, which a signal to the scheduler's group does not reach.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", str(_GUARD)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        return self

    def watch(self, session: int) -> None:
        """Kill that session at the end."""
        if self._process is None or self._process.stdin is None:
            raise IllegalStateError("not entered", actor="guard")
        self._process.stdin.write(f"{session}\n".encode())
        self._process.stdin.flush()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


class Service:
    """A command in a session of its own, started again at will, its output in one log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        guard: Guard,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = command
        self._environment = environment
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. What an earlier life of it left behind is not touched.

        The command begins once the guard watches its session: a Ctrl-C, or our death, leaves none that nobody ends.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                (*_WHEN_TOLD, *self._command),
                env=dict(self._environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us, who then end it in order
            )
        with cast("IO[bytes]", process.stdin) as told:
            self._guard.watch(process.pid)
            self._process = process
            told.write(b"go\n")

    @property
    def pid(self) -> int:
        """The id of its first process, and of its session."""
        if self._process is None:
            raise IllegalStateError("not started", actor=self.name)
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None before it was started and while it runs; minus the signal's number where a signal ended it."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def listens_on(self, port: int) -> bool:
        """Whether a process of its session listens on that port of 127.0.0.1: then nobody else answers there."""
        mine = (psutil.CONN_LISTEN, ("127.0.0.1", port))
        for process in members(self.pid):
            with suppress(psutil.Error):  # it ended meanwhile
                if any((found.status, found.laddr) == mine for found in process.net_connections("tcp")):
                    return True
        return False

    def ask_to_end(self) -> None:
        """SIGTERM to its first process, which ends its own children."""
        self._signal(signal.SIGTERM)

    def kill_first_process(self) -> None:
        """SIGKILL to its first process alone, as a machine out of memory does it: its children live on, orphans."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def last_lines(self, count: int = 10) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])
        except OSError:
            return ""

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            self._process.send_signal(number)


def end_all(services: Sequence[Service], *, patience_s: float) -> None:
    """Ask all to end, at once, and wait up to `patience_s` for them. The guard kills what goes on."""
    for service in services:
        service.ask_to_end()
    deadline_ms = monotonic_ms() + int(patience_s * 1_000)
    while any(service.is_running for service in services) and monotonic_ms() < deadline_ms:
        pause_ms(50)
