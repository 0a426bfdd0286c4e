"""Wait until a condition holds, with a limit that is generous enough for a busy machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

LIMIT_S: Final = 60.0
"""How long a test waits for what takes a moment on a quiet machine."""

_FIRST_PAUSE_S, _GROWTH = 0.001, 1.5

_Found = TypeVar("_Found")


def wait_for(
    condition: Callable[[], _Found],
    *,
    what: str,
    limit_s: float = LIMIT_S,
    every_s: float = 0.05,
    meanwhile: Callable[[], object] | None = None,
    seen: Callable[[], object] | None = None,
) -> _Found:
    """Call the condition until its value is truthy, and return that value.

    what: what the test waits for, as the error says it: "the first file".
    limit_s: raise TimeoutError after this many seconds.
    every_s: the longest pause between two calls. The first pauses are shorter.
    meanwhile: called after each call that was in vain. The wait ends with any error that it raises.
    seen: its value is added to the error.
    """
    deadline, pause_s = time.monotonic() + limit_s, min(_FIRST_PAUSE_S, every_s)
    while not (found := condition()):
        if meanwhile is not None:
            meanwhile()
        if time.monotonic() > deadline:
            instead = "" if seen is None else f": {seen()}"
            raise TimeoutError(f"waited {limit_s:.0f} s in vain for {what}{instead}")
        time.sleep(pause_s)
        pause_s = min(pause_s * _GROWTH, every_s)
    return found


def must_run(process: subprocess.Popen[Any], said: Callable[[], object] | None = None) -> Callable[[], None]:
    """A `meanwhile` of `wait_for` that fails if the process has ended.

    said: what the process wrote, for the error.
    """

    def check() -> None:
        code = process.poll()
        assert code is None, f"the process ended with exit code {code}: {'' if said is None else said()}"

    return check
