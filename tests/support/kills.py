"""Clients and processes that die: in this process by an error, or a process of its own by SIGKILL.

What differs between folders is where their processes die. Those places are in the folders' own modules.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Literal, NoReturn, cast

from storage import ObjectStore, StorageError, open_store
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.waiting import LIMIT_S, wait_for

REPOSITORY: Final = Path(__file__).resolve().parents[2]
WRITES: Final[tuple[Operation, ...]] = ("put_if_absent", "put", "delete")

Blow = Fault | Literal["dies before", "dies after", "killed"]
"""What happens at a call. A fault: the store fails there once. dies before, dies after: the client dies before or after
the call takes effect. killed: SIGKILL for this process, before the call takes effect.
"""

_SAID_MAX = 3_000


class ProcessDiedError(BaseException):
    """The error that a store raises if its process is gone. No handler of the engine may take it for an ordinary
    error."""


def died(operation: Operation, key: str) -> NoReturn:
    """The `error` of a FaultyStore whose client is dead."""
    raise ProcessDiedError(f"{operation} {key}")


def die(*_: object) -> NoReturn:
    """Die in this process, in place of a call."""
    raise ProcessDiedError


def kill_myself(*_: object, **__: object) -> None:
    """End this process by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


# --- stores at which a client dies ----------------------------------------------------------------------------------


class Death:
    """A client dies, or its store fails, at one call to the store.

    at: the number of the call from 0, or None for a death that does not come.
    operations: the calls that are counted, or None for all. The calls of all clients are counted together.
    """

    def __init__(
        self, blow: Blow, at: int | None, *, operations: Collection[Operation] | None = None
    ) -> None:
        self._blow, self._at, self._operations = blow, at, operations
        self._lock = threading.Lock()
        self.calls = 0
        """How many calls were counted, up to the one at which it happened."""
        self.happened = False

    def client(self) -> Callable[[Operation, str, int], Fault | None]:
        """What a FaultyStore of one client decides by. Nothing that a dead client calls takes effect. Other clients
        live on."""
        is_dead = False

        def decide(operation: Operation, _key: str, _number: int) -> Fault | None:
            nonlocal is_dead
            with self._lock:
                if is_dead:
                    return "before"
                if self.happened or not (self._operations is None or operation in self._operations):
                    return None
                self.calls += 1
                if self._at is None or self.calls <= self._at:
                    return None
                self.happened = True
                if self._blow == "killed":
                    kill_myself()
                is_dead = self._dies
                return cast(Fault, self._blow.removeprefix("dies "))

        return decide

    def error(self, operation: Operation, key: str) -> StorageError:
        """What a FaultyStore raises: the store's error, or the end of the client."""
        if self._dies:
            died(operation, key)
        return StorageError(f"injected: {operation}", actor="faulty store", place=key)

    def of(self, store: ObjectStore) -> FaultyStore:
        """The store, as a client uses it that meets this death."""
        return FaultyStore(store, decide=self.client(), error=self.error)

    @property
    def _dies(self) -> bool:
        return self._blow.startswith("dies ")


class DyingStore(FaultyStore):
    """A store whose client dies at its n-th put, before or after the put took effect. It does nothing from then on."""

    def __init__(self, url: str, at: int, *, after: bool) -> None:
        self._death = Death("dies after" if after else "dies before", at, operations=("put_if_absent",))
        super().__init__(open_store(url), decide=self._death.client(), error=self._death.error)

    @property
    def puts(self) -> int:
        """How many puts the client made, with the one at which it died."""
        return self._death.calls


# --- processes that are killed --------------------------------------------------------------------------------------


def run_module(
    *arguments: str, environment: Mapping[str, str] | None = None, limit_s: float = 280
) -> subprocess.CompletedProcess[str]:
    """Run `python -m` with these arguments in a process of its own, to its end.

    environment: the process's whole environment, or None for this process's.
    """
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=limit_s,
    )


def run_until_killed(
    *arguments: str, environment: Mapping[str, str] | None = None, limit_s: float = 280
) -> None:
    """Run `python -m` with these arguments, and fail unless SIGKILL ended the process."""
    done = run_module(*arguments, environment=environment, limit_s=limit_s)
    assert done.returncode == -signal.SIGKILL, (arguments, done.returncode, said_by(done))


def kill_when_it_says(line: str, *arguments: str) -> None:
    """Run `python -m` with these arguments, wait until it prints this line first, and kill it."""
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{line}\n"
        finally:
            process.kill()


def said_by(done: subprocess.CompletedProcess[str]) -> str:
    """The end of what a process wrote."""
    return done.stdout[-_SAID_MAX:] + done.stderr[-_SAID_MAX:]


def in_a_child(
    call: Callable[[], object],
    *,
    failed: Callable[[BaseException], int] | None = None,
    limit_s: float = LIMIT_S,
) -> int:
    """Call in a forked child, and wait for its end. The exit code is 0 if the call returns, and below 0 for a signal.

    failed: the exit code for an error of the call. It is 1 by default, and the child prints the error.
    limit_s: a child that takes longer is killed, and the test fails.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
            code = 0
        except BaseException as error:  # noqa: BLE001 - the parent gets the exit code
            code = _print(error) if failed is None else failed(error)
        finally:
            os._exit(code)
    try:
        status = wait_for(lambda: _ended(child), what="the end of the child", limit_s=limit_s, every_s=0.005)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return os.waitstatus_to_exitcode(status[0])


def _ended(child: int) -> tuple[int] | None:
    """The child's status, or None while it runs."""
    pid, status = os.waitpid(child, os.WNOHANG)
    return (status,) if pid else None


def _print(error: BaseException) -> int:
    traceback.print_exception(error)
    return 1
