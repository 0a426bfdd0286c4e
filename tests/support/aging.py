"""A store on disk of which the files are as old as a test wants: its clock is this machine's, which no test sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def age(folder: Path, by_ms: int, only: Callable[[Path], bool] = lambda _: True) -> None:
    """Set the modified times of the files below a folder back by so much, as if they had been written then."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and only(path):
            was = path.stat()
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns - by_ms * 1_000_000))
