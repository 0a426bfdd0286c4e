"""A store of which the objects are as old as a test wants: its clock is this machine's, which no test sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from storage import MemoryStore, ObjectStore
from txn_engine import Engine, connect
from txn_engine.clock import system_clock
from txn_engine.testing import ManualClock


def age(folder: Path, by_ms: int, only: Callable[[Path], bool] = lambda _: True) -> None:
    """Set the modified times of the files below a folder back by so much, as if they had been written then."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and only(path):
            was = path.stat()
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns - by_ms * 1_000_000))


def age_memory(store: ObjectStore, by_ms: int) -> None:
    """The same for the objects of a store in memory."""
    if not isinstance(store, MemoryStore):
        raise TypeError(f"{store.url} is not in memory")
    objects = store._shelf._objects
    for key, (data, at_ms) in objects.items():
        objects[key] = (data, at_ms - by_ms)


@contextmanager
def written_ago(url: str, ago_ms: int) -> Iterator[Engine]:
    """An engine on a store on disk, in which all that is written was written so long ago, by every clock."""
    folder = Path(url.removeprefix("file://"))
    before = set(folder.rglob("*"))
    with connect(url, clock=ManualClock(system_clock() - ago_ms)) as earlier:
        yield earlier
    age(folder, ago_ms, lambda path: path not in before)
