"""The tests put their files in memory if it has room.

Every object of a local store is synced to the disk, as is every commit of Airflow's SQLite, Postgres and
MinIO. On most disks each sync waits for milliseconds, hundreds of times a test. No test can take the power
away to see what a disk kept. The recorded system calls do that (`tests/support/power.py`), and they are the
same in memory and on a disk.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM_BYTES = 8 * 1024**3
"""What must be free in the file system and in the machine; a run of all tests takes less than a quarter of it."""


def use_memory() -> None:
    """Put pytest's folders and everything in `TMPDIR` in memory, for this process and for the processes that
    it starts.

    Paths that the environment names stay. Everything stays if there is not enough room, or if no program
    could be run from there.
    """
    if "TMPDIR" in os.environ or "PYTEST_DEBUG_TEMPROOT" in os.environ or not _has_room():
        return
    root = MEMORY / f"tests-of-txn-engine-{os.getuid()}"  # pytest's: what failed stays, of three runs
    root.mkdir(mode=0o700, exist_ok=True)
    own = Path(tempfile.mkdtemp(prefix="temporary-of-tests-", dir=MEMORY))
    own.chmod(0o711)  # Postgres does not run as root: its folder is another user's
    os.environ |= {"PYTEST_DEBUG_TEMPROOT": str(root), "TMPDIR": str(own)}
    tempfile.tempdir = None  # asked anew
    atexit.register(_remove, own, os.getpid())


def _has_room() -> bool:
    try:
        there = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False  # no Linux
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    free = min(there.f_bavail * there.f_frsize, kilobytes.get("MemAvailable", 0) * 1024)
    return free >= ROOM_BYTES and os.access(MEMORY, os.W_OK) and not there.f_flag & os.ST_NOEXEC


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)
