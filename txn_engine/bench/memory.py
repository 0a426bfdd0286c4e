"""How much memory this process has, and had at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def resident_bytes() -> int:
    """What it has now; where the system does not tell, the most that it had."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    return most_resident_bytes()


def most_resident_bytes() -> int:
    """The most that it had since its program began.

    On Linux `ru_maxrss` may be that of the process which started this one, whose memory a child shares until then.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1_024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1_024
