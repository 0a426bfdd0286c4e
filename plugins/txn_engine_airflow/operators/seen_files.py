"""What a load found at its paths, kept beside its run: so a run that is cleared can say what has changed since.

Without a manifest the run is what was loaded, whatever becomes of its files. Size and time of a file are a hint, and
decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_KEY = "txn_engine_files"
FILES_MAX = 1_000
"""Of more files nothing is noted."""


def note_files(context: Context, files: Sequence[Path]) -> None:
    """Note these before they are read."""
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    found = _found(files)
    note = cast("dict[str, JsonValue]", found) if found is not None else None
    context["task_state_store"].set(_KEY, note, retention=NEVER_EXPIRE)


def changed_files(context: Context, files: Sequence[Path]) -> list[str]:
    """A line for each file that is new, gone, or of another size or time than was noted; none without a note."""
    noted = context["task_state_store"].get(_KEY)
    now = _found(files)
    if not isinstance(noted, dict) or now is None:
        return []
    return list(_differences(noted, now))


def _differences(then: Mapping[str, object], now: Mapping[str, list[int]]) -> Iterator[str]:
    for path in sorted({*then, *now}):
        if path not in now:
            yield f"{path} is gone"
        elif path not in then:
            yield f"{path} is new"
        elif then[path] != now[path]:
            yield f"{path} has another size or time"


def _found(files: Sequence[Path]) -> dict[str, list[int]] | None:
    if len(files) > FILES_MAX:
        return None
    states = {}
    for file in files:
        try:
            state = file.stat()
        except OSError:  # whoever reads it says so
            continue
        states[str(file)] = [state.st_size, state.st_mtime_ns]
    return states
