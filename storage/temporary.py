"""Temporary files of the local store: named after the process that writes them, so that leftovers can be
told.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import stat
import time
from dataclasses import dataclass
from typing import Final

_SEQUENCE = itertools.count()
_NAME = re.compile(r"put-(?P<host>[0-9a-f]{12})-(?P<pid>\d+)-(?P<started>\d+)-\d+")
_AGE_MAX_NS: Final = 24 * 3600 * 1_000_000_000
_WRITE_MAX_NS: Final = 60 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Swept:
    """How many leftovers are gone, or would be, and the paths of what stays: whose it is, or that it may go, nobody
    here can tell.
    """

    gone: int
    left: tuple[str, ...]


def temporary_name() -> str:
    """Return a file name no other call gets, here or in any other process."""
    return f"{_prefix(os.getpid())}{next(_SEQUENCE)}"


def sweep_temporary(folder: str) -> int:
    """Remove what dead processes left in `folder` and return how many files that were.

    A file goes when its writer, known by boot, process namespace, id and start time, is dead, or when it is
    older than a day. A file whose writer cannot be judged from here stays that day. Never raises: a folder
    that cannot be read or written is left as it is, and one that a symbolic link leads to.
    """
    try:
        names = [] if stat.S_ISLNK(os.lstat(folder).st_mode) else os.listdir(folder)
    except OSError:
        return 0
    removed = 0
    for name in names:
        if _is_leftover(folder, name):
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}/{name}")
                removed += 1
    return removed


def sweep_strangers(folder: str, *, dry_run: bool = False) -> Swept:
    """As `sweep_temporary`, for who may leave nothing: also what a writer that cannot be judged from here wrote to for
    the last time more than a minute ago. One that is only slow finds its file gone, and writes another. Files of
    writers that are alive are theirs, and are not told.
    """
    try:
        if stat.S_ISLNK(os.lstat(folder).st_mode):
            return Swept(0, (folder,))
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return Swept(0, ())
    except OSError:
        return Swept(0, (folder,))
    gone, left = 0, []
    for name in names:
        if _is_alive(name):
            continue
        if _is_leftover(folder, name, _WRITE_MAX_NS):
            try:
                if not dry_run:
                    os.unlink(f"{folder}/{name}")
            except FileNotFoundError:
                continue
            except OSError:
                left.append(f"{folder}/{name}")
            else:
                gone += 1
        elif os.path.lexists(f"{folder}/{name}"):
            left.append(f"{folder}/{name}")
    return Swept(gone, tuple(left))


def _is_leftover(folder: str, name: str, age_max_ns: int = _AGE_MAX_NS) -> bool:
    parts = _NAME.fullmatch(name)
    if parts is None:
        return False
    if parts["host"] == _host() and not _is_alive(name):
        return True
    try:
        age_ns = time.time_ns() - os.stat(f"{folder}/{name}").st_mtime_ns  # noqa: TID251 -- litter only
    except OSError:
        return False
    return age_ns > age_max_ns


def _is_alive(name: str) -> bool:
    """Whether the file's writer is a process that can be seen from here, and is there."""
    parts = _NAME.fullmatch(name)
    return (
        parts is not None
        and parts["host"] == _host()
        and _start_time(int(parts["pid"])) == int(parts["started"])
    )


@functools.lru_cache(maxsize=2)
def _prefix(pid: int) -> str:
    """Names one process, so that no other, before or after a reboot or in another container, has the same name."""
    return f"put-{_host()}-{pid}-{_start_time(pid)}-"


@functools.lru_cache(maxsize=1)
def _host() -> str:
    """This boot and this namespace of process ids; where they cannot be told, a name that nothing else has."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            identity = file.read() + os.readlink("/proc/self/ns/pid")
    except OSError:
        identity = os.urandom(16).hex()  # noqa: TID251 -- only ever a name nobody else has
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


def _start_time(pid: int) -> int:
    """The kernel's start time of the process, 0 when there is none (or no /proc)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The command's name is in brackets and may hold anything: count the fields from its end.
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0
