"""Ctrl-C, SIGTERM and SIGHUP: raised in the main thread, so that whoever has a transaction open can end it first."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Interrupted(BaseException):
    """A signal asked the command to stop. `note` says what it leaves behind."""

    def __init__(self, signum: int, note: str = "") -> None:
        super().__init__(signum)
        self.signum = signum
        self.note = note

    @property
    def exit_code(self) -> int:
        """As a shell reports a process that the signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.signum

    def __str__(self) -> str:
        told = f"stopped by {signal.Signals(self.signum).name}"
        return f"{told}: {self.note}" if self.note else told


class _Signals:
    """What has come in while signals were held back."""

    def __init__(self) -> None:
        self.holds = 0
        self.waiting: int | None = None

    def receive(self, signum: int, _frame: FrameType | None) -> None:
        if self.holds and self.waiting is None:
            self.waiting = signum
            return
        raise Interrupted(signum)


_signals = _Signals()


def install() -> None:
    """Raise `Interrupted` for the signals that ask a process to stop, but for those that it was started to ignore."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signum = getattr(signal, name, None)
        if signum is not None and signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _signals.receive)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let a short step finish: a first signal is raised when the block has ended, a second one at once."""
    _signals.holds += 1
    try:
        yield
    finally:
        _signals.holds -= 1
        if not _signals.holds:
            signum, _signals.waiting = _signals.waiting, None
            if signum is not None:
                raise Interrupted(signum)
