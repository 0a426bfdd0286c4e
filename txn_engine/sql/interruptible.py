"""DuckDB's work in another thread, so that a signal is raised as what it is.

On the main thread DuckDB looks for signals by itself, and gives a `RuntimeError` for whatever a handler has raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

_PATIENCE_S: Final = 0.1

T = TypeVar("T")


def interruptibly(work: Callable[[], T], stop: Callable[[], None] | None = None) -> T:
    """What the work gives. What a signal raises meanwhile is raised here, once `stop` has ended the work, or it has
    ended by itself.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # no signal is raised there
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- raised by who waits
            done.set_exception(error)

    thread = threading.Thread(target=run, name="txn-sql", daemon=True)
    thread.start()
    try:
        return done.result()
    finally:
        while thread.is_alive() and not done.done():
            if stop is not None:
                stop()
            thread.join(_PATIENCE_S)
