"""A process that the demo starts, talks to over pipes and, whatever happens, ends."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from txn_engine.errors import TxnEngineError
from txn_engine.reasons import Reason

PATIENCE_S = 180
"""How long a child may take for one answer, where nothing else is said."""
_END_S = 10
_PACKAGES = str(Path(__file__).parents[2])
_PYTHON = {
    "PYTHONUNBUFFERED": "1",
    # with -P: the packages that the demo itself runs from, never a folder of the same name where it was called
    "PYTHONPATH": os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH")))),
}


class ChildFailedError(TxnEngineError):
    """A process of the demo failed or fell silent. Its log says why."""

    code: ClassVar[str] = "DEMO_PROCESS_FAILED"


@dataclass(frozen=True, slots=True)
class Word:
    """One thing that a child said; `gone` when it has ended and will say no more."""

    word: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Child:
    """One process `python -m MODULE` in a process group of its own, its stderr in a log of its own."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        *,
        logs: Path,
        environment: Mapping[str, str] | None = None,
        niceness: int = 0,
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self._inbox: queue.Queue[Word] = queue.Queue()
        command = [sys.executable, "-P", "-m", module, *arguments]
        if niceness:
            command = ["nice", "-n", str(niceness), *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **_PYTHON, **(environment or {})},
                start_new_session=True,
            )
        threading.Thread(target=self._listen, name=f"listen-{name}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id, which is its group's too."""
        return self._process.pid

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"

    # --- talking --------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        pipe = self._process.stdout
        for line in pipe or ():
            said = json.loads(line)
            self._inbox.put(Word(said.pop("word"), said))
        self._inbox.put(Word("gone"))

    def tell(self, do: str, **facts: object) -> None:
        """Give an order. One that is not heard any more shows in what the child says next."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        try:
            pipe.write(json.dumps({"do": do, **facts}, default=str).encode() + b"\n")
            pipe.flush()
        except (BrokenPipeError, ConnectionResetError):
            return

    def hear(self, *expected: str, patience_s: float = PATIENCE_S) -> Word:
        """The next word, which must be one of those expected.

        Raises `ChildFailedError`, naming the log, where the child failed, ended, said something else or took too long.
        """
        try:
            word = self._inbox.get(timeout=patience_s)
        except queue.Empty:
            raise self.failure(f"no answer within {patience_s:.0f} s") from None
        if word.word in expected:
            return word
        if word.word == "failed":
            raise self.failure(str(word.facts.get("text", "it failed")), Reason.CHILD_FAILED)
        if word.word == "gone":
            code = self.wait_gone()
            how = f"{_how(code)}{_last_line(self.log) if code > 0 else ''}"
            raise self.failure(f"it ended with {how}", Reason.CHILD_ENDED)
        raise self.failure(f"it said {word.word!r} where {' or '.join(expected)} was expected")

    def failure(self, seen: str, reason: Reason | None = None) -> ChildFailedError:
        """The error that says what became of this child."""
        return ChildFailedError(seen, actor=str(self), action=f"its log: {self.log}", reason=reason)

    # --- ending ---------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL to the process and all that it started; returns when it is dead."""
        self._signal(signal.SIGKILL)
        self._process.wait(_END_S)

    def stop(self) -> None:
        """SIGSTOP: it sleeps until it is woken."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def end(self) -> int:
        """Let it finish by itself, and kill it where it does not; its exit code."""
        self.tell("end")
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where one ended it."""
        return self._process.poll()

    def wait_gone(self, patience_s: float = _END_S) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired as error:
            raise self.failure(f"it did not end within {patience_s:.0f} s") from error

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group: a JVM that Python started goes with it."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            return


def _how(exit_code: int) -> str:
    return f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"


def _last_line(log: Path) -> str:
    """The end of a log, as the reason that is most likely."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f": {' '.join(lines[-1].split())[:200]}" if lines else ""


class Children:
    """All children of a run. Leaving it ends every one of them, at once where the run failed.

    `start_child` takes what `Child` takes.
    """

    def __init__(self, logs: Path, start_child: Callable[..., Child] = Child) -> None:
        self._logs = logs
        self._start_child = start_child
        self._started: list[Child] = []
        self._ended = False

    def start(
        self,
        name: str,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        niceness: int = 0,
    ) -> Child:
        """Start one. It hears of its orders as soon as it listens."""
        if self._ended:
            raise ChildFailedError("the demo is ending", actor=name)
        child = self._start_child(
            name, module, arguments, logs=self._logs, environment=environment, niceness=niceness
        )
        self._started.append(child)
        return child

    def kill_all(self) -> None:
        """Kill those that still run; no other will start."""
        self._ended = True
        for child in self._started:
            if child.exit_code is None:
                child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
