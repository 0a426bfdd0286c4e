"""Folders for what may not outlive its process, in the machine's folder for temporary files: held by a lock.

The lock is gone with the process, however that ends, and whatever namespace of process ids it was in. So who finds a
folder that nobody holds may remove it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from storage.temporary import Swept

FAMILY: Final = "txn-engine-"
_LOCK: Final = ".held"
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class ScratchFolder:
    """A folder of its own for the owner alone, below `parent` or in the machine's folder for temporary files.

    `close` removes it. What a process that was killed has left, the next one removes that makes its first folder there.
    """

    def __init__(self, kind: str, *, parent: Path | None = None) -> None:
        _sweep_once(parent)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{FAMILY}{kind}-", dir=parent))
            held = os.open(self.path / _LOCK, _LOCK_FLAGS | os.O_CREAT, 0o600)
            if _is_taken(held) and (self.path / _LOCK).exists():
                self._held = held
                return
            os.close(held)  # who sweeps was quicker than the lock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove it, with all that is in it; again does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def sweep_scratch(parent: Path | None = None, *, dry_run: bool = False) -> Swept:
    """Remove the folders of this user that no process holds. Left are those that one holds, where they have any bytes,
    and those without a lock: nobody can tell whose they are.
    """
    gone, left = 0, []
    for path in _folders(parent):
        try:
            held = os.open(path / _LOCK, _LOCK_FLAGS)
        except OSError:
            if _has_bytes(path):
                left.append(str(path))
            continue
        try:
            if _is_taken(held):
                if not dry_run:
                    shutil.rmtree(path, ignore_errors=True)
                if dry_run or not path.exists():
                    gone += 1
                else:
                    left.append(str(path))
            elif _has_bytes(path):
                left.append(str(path))
        finally:
            os.close(held)
    return Swept(gone, tuple(left))


@cache
def _sweep_once(parent: Path | None) -> None:
    sweep_scratch(parent)


def _folders(parent: Path | None) -> Iterator[Path]:
    folder = parent or tempfile.gettempdir()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name.startswith(FAMILY) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        yield Path(entry.path)


def _is_taken(held: int) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _has_bytes(path: Path) -> bool:
    return any(_size(f"{folder}/{name}") for folder, _, names in os.walk(path) for name in names)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0  # gone since it was listed
