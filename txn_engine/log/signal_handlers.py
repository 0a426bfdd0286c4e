"""Whether a call was made by a signal handler, which interrupts a thread that may hold any lock of the engine."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # getsignal without the enum that takes 50 times as long
import functools
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Final

from txn_engine.errors import IllegalStateError
from txn_engine.reasons import Reason

_SIGNALS: Final = tuple(int(each) for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def refuse_in_a_signal_handler() -> None:
    """Raise `IllegalStateError` where a Python signal handler is under way in this thread.

    Python runs handlers in the main thread, between any two instructions of what it was doing. That may be a call of
    the engine, or of a thread pool, which holds a lock. The handler would wait for this lock for ever, because the
    interrupted call goes on only after the handler has returned.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return
    codes = _codes_of_handlers()
    if not codes:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in codes and _was_called_for_a_signal(frame):
            raise IllegalStateError(
                "a call of the engine in a signal handler, which may have interrupted another call and then waits for"
                " it for ever",
                place=frame.f_code.co_name,
                expected="a handler that only notes the signal",
                action="set a flag in the handler (threading.Event), and make the call where the program looks at"
                " the flag",
                reason=Reason.IN_A_SIGNAL_HANDLER,
            )
        frame = frame.f_back


def _codes_of_handlers() -> set[CodeType]:
    """The code of what is registered for signals, so far as it is Python's."""
    handlers = [_signal.getsignal(number) for number in _SIGNALS]
    return {code for handler in handlers if callable(handler) and (code := _code_of(handler)) is not None}


def _code_of(handler: Callable[..., object]) -> CodeType | None:
    """The code that runs first; None for a function that is not Python's."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None


def _was_called_for_a_signal(frame: FrameType) -> bool:
    """Whether Python called this handler, and not the program: then it was given the frame that it interrupted."""
    code = frame.f_code
    count = code.co_argcount + bool(
        code.co_flags & 0x04
    )  # *arguments come right after the others and the named ones
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    values = [value for name in names if (value := frame.f_locals.get(name)) is not None]
    given = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return any(isinstance(each, FrameType) for each in given) or not any(
        isinstance(each, int) for each in given
    )
